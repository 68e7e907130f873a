"""What a run's records say about it, as plain numbers: everything the report prints and plots; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from services.monitor.paired import Paired, paired_difference

if TYPE_CHECKING:
    from schemas.group import GroupAdmission
    from schemas.policy import EvaluationResult, TrainingUpdate
    from schemas.record import Record
    from schemas.rollout import RolloutCompleted
    from schemas.verification import VerificationVerdict

T = TypeVar("T", bound="Record")
AGE_STAGES = ("generation", "tool_wait", "verification", "buffer", "queue")
_SETS = {"train": "training tasks", "heldout_bugs": "held-out bugs", "heldout_families": "held-out families"}
Interval = tuple[int, int]
"""Begin and end, Unix milliseconds."""


def set_name(task_set: str) -> str:
    """A task set's name for people."""
    return _SETS.get(task_set, task_set.replace("_", " "))


def of_type(records: Iterable[Record], kind: type[T], *identity: str) -> list[T]:
    """The records of one type, in order; of those equal in the `identity` fields (redelivered ones) the last."""
    found: dict[tuple[Any, ...], T] = {}
    for record in records:
        if isinstance(record, kind):
            key = tuple(getattr(record, name) for name in identity) if identity else (len(found),)
            found[key] = record
    return list(found.values())


@dataclass(frozen=True)
class TaskSetResult:
    """One task set, measured before and (perhaps) after. `pass_at_1` is the mean over tasks of passes / samples."""

    task_set: str
    before_version: int
    before: float
    after_version: int | None
    after: float | None
    tasks: int
    samples: int  # of one measurement
    unresolved: int  # of both
    paired: Paired | None


@dataclass(frozen=True)
class Stage:
    """Time of one stage over a run: seconds in which at least one was under way, and seconds summed over all."""

    name: str
    busy_s: float
    summed_s: float
    count: int


@dataclass(frozen=True)
class Summary:
    """Five numbers of a sample."""

    count: int
    mean: float
    median: float
    p90: float
    largest: float


def summary(values: Sequence[float]) -> Summary | None:
    """Count, mean, median, 90th percentile (linear interpolation) and maximum; None for an empty sample."""
    if not values:
        return None
    import numpy as np

    array = np.asarray(values, dtype=np.float64)
    p50, p90 = np.quantile(array, [0.5, 0.9])
    return Summary(len(array), float(array.mean()), float(p50), float(p90), float(array.max()))


def updates_of(records: Iterable[Record]) -> list[TrainingUpdate]:
    """Updates by the version that they produced; of one made again after a crash, the last."""
    from schemas.policy import TrainingUpdate

    return sorted(of_type(records, TrainingUpdate, "policy_version"), key=lambda u: u.policy_version)


def verdicts_of(records: Iterable[Record], split: str) -> list[VerificationVerdict]:
    """The verdict that counts of every trial of a split: never `pending`, of the last attempt judged."""
    from schemas.verification import VerificationVerdict

    last: dict[str, VerificationVerdict] = {}
    for verdict in of_type(records, VerificationVerdict):
        if verdict.split != split or verdict.verdict == "pending":
            continue
        known = last.get(verdict.trial_id)
        if known is None or verdict.attempt >= known.attempt:
            last[verdict.trial_id] = verdict
    return list(last.values())


def pass_rate_by_version(verdicts: Iterable[VerificationVerdict]) -> list[tuple[int, int, int]]:
    """(policy version, passes, judged trials) of trials with a pass or fail, by the version that sampled them."""
    counts: dict[int, list[int]] = {}
    for verdict in verdicts:
        if verdict.verdict in ("pass", "fail"):
            count = counts.setdefault(verdict.policy_version, [0, 0])
            count[0] += verdict.verdict == "pass"
            count[1] += 1
    return [(version, passed, judged) for version, (passed, judged) in sorted(counts.items())]


def smoothed(curve: Sequence[tuple[int, int, int]], width: int) -> list[float]:
    """Pooled pass rate over a centred window of `width` versions (by position), at every point of the curve."""
    half = max(0, width // 2)
    out = []
    for i in range(len(curve)):
        window = curve[max(0, i - half) : i + half + 1]
        out.append(sum(p for _, p, _ in window) / sum(n for _, _, n in window))
    return out


def evaluations_of(records: Iterable[Record]) -> list[TaskSetResult]:
    """Every task set that was measured: the first evaluated version against the last one, paired by task."""
    from schemas.policy import EvaluationResult

    by_set: dict[str, list[EvaluationResult]] = {}
    for result in of_type(records, EvaluationResult, "policy_version", "task_set"):
        by_set.setdefault(result.task_set, []).append(result)
    order = sorted(by_set, key=lambda name: (list(_SETS).index(name) if name in _SETS else len(_SETS), name))
    return [_compare(name, sorted(by_set[name], key=lambda r: r.policy_version)) for name in order]


def _compare(name: str, results: Sequence[EvaluationResult]) -> TaskSetResult:
    first, last = results[0], results[-1]
    one_only = first.policy_version == last.policy_version
    return TaskSetResult(
        task_set=name,
        before_version=first.policy_version,
        before=first.pass_at_1,
        after_version=None if one_only else last.policy_version,
        after=None if one_only else last.pass_at_1,
        tasks=len(first.task_ids),
        samples=sum(first.task_samples),
        unresolved=first.unresolved + (0 if one_only else last.unresolved),
        paired=None if one_only else paired_difference(task_rates(first), task_rates(last)),
    )


def task_rates(result: EvaluationResult) -> dict[str, float]:
    """Share of passes of every task that has a sample with a verdict."""
    counts = zip(result.task_ids, result.task_samples, result.task_passes, strict=True)
    return {task: passes / samples for task, samples, passes in counts if samples > 0}


def admissions_of(records: Iterable[Record]) -> list[GroupAdmission]:
    """The decision that stands for each group: the trainer's where it wrote one, else admission's."""
    from schemas.group import GroupAdmission

    standing: dict[str, GroupAdmission] = {}
    for decision in of_type(records, GroupAdmission, "group_id", "stage"):
        known = standing.get(decision.group_id)
        if known is None or decision.stage == "trainer":
            standing[decision.group_id] = decision
    return list(standing.values())


def ages(admissions: Iterable[GroupAdmission]) -> dict[str, list[float]]:
    """Seconds that each group spent in each stage until its decision."""
    listed = list(admissions)
    return {stage: [getattr(a, f"age_{stage}_ms") / 1000 for a in listed] for stage in AGE_STAGES}


def exclusions(admissions: Iterable[GroupAdmission]) -> dict[str, tuple[int, int]]:
    """reason -> (groups, trials), most groups first."""
    groups: Counter[str] = Counter()
    trials: Counter[str] = Counter()
    for a in admissions:
        if a.decision == "excluded":
            groups[a.reason or "no reason given"] += 1
            trials[a.reason or "no reason given"] += len(a.member_trials)
    return {reason: (count, trials[reason]) for reason, count in groups.most_common()}


def member_lags(admissions: Iterable[GroupAdmission]) -> Counter[int]:
    """Lag (versions) of every member of an admitted group at its admission."""
    return Counter(lag for a in admissions if a.decision == "admitted" for lag in a.member_lags)


def lengths(verdicts: Iterable[VerificationVerdict]) -> dict[str, list[int]]:
    """Sampled tokens per trial by verdict."""
    out: dict[str, list[int]] = {}
    for verdict in verdicts:
        out.setdefault(verdict.verdict, []).append(verdict.policy_tokens)
    return {name: out[name] for name in ("pass", "fail", "unknown") if name in out}


def covered(intervals: Iterable[Interval]) -> float:
    """Seconds of the union of intervals."""
    total, end = 0, None
    for start, stop in sorted(i for i in intervals if i[1] > i[0]):
        if end is None or start > end:
            total += stop - start
            end = stop
        elif stop > end:
            total += stop - end
            end = stop
    return total / 1000


@dataclass(frozen=True)
class Timing:
    """Where the time went. `wall_s` is from the first request to the last record; `idle_s` had nothing under way.

    `sampling_s` and `tools_s` split the summed time of rollouts; `waited_s` is the trainer's, for groups.
    """

    wall_s: float
    stages: tuple[Stage, ...]
    sampling_s: float
    tools_s: float
    waited_s: float
    idle_s: float


def timing(
    rollouts: Sequence[RolloutCompleted],
    verdicts: Sequence[VerificationVerdict],
    updates: Sequence[TrainingUpdate],
) -> Timing | None:
    """Busy and summed time of rollouts, verification and updates, evaluation included; None without any of them."""
    spans: dict[str, list[Interval]] = {
        "rollouts": [(r.started_ms, r.ended_ms) for r in rollouts],
        "verification": [(v.verification_started_ms, v.verification_ended_ms) for v in verdicts if not v.reused],
        "updates": [(u.finished_ms - u.computed_ms, u.finished_ms) for u in updates],
    }
    everything = [span for listed in spans.values() for span in listed]
    if not everything:
        return None
    wall = (max(end for _, end in everything) - min(start for start, _ in everything)) / 1000
    stages = [
        Stage(name, covered(listed), sum(max(0, b - a) for a, b in listed) / 1000, len(listed))
        for name, listed in spans.items()
    ]
    return Timing(
        wall_s=wall,
        stages=tuple(stages),
        sampling_s=sum(r.generation_ms for r in rollouts) / 1000,
        tools_s=sum(r.tool_wait_ms for r in rollouts) / 1000,
        waited_s=sum(u.waited_ms for u in updates) / 1000,
        idle_s=max(0.0, wall - covered(everything)),
    )


_STAGES = (
    ("rollouts requested", "rollout.requested", "requested_ms", ("trial_id",)),
    ("rollouts completed", "rollout.completed", "ended_ms", ("trial_id", "attempt")),
    ("verdicts", "verification.verdict", "verification_ended_ms", ("trial_id", "attempt", "verdict")),
    ("groups closed", "group.closed", "closed_ms", ("group_id",)),
    ("group decisions", "group.admission", "decided_ms", ("group_id", "stage")),
    ("updates", "training.update", "finished_ms", ("policy_version",)),
    ("policies published", "policy.published", "published_ms", ("policy_version",)),
)
"""Label, record, the moment of it, and what makes two records the same (delivered twice)."""


def stage_rates(records: Iterable[Record]) -> list[tuple[str, int, float | None]]:
    """(stage, records, records per second between the first and the last) of every stage that wrote any."""
    forms = {record: (moment, identity) for _, record, moment, identity in _STAGES}
    times: dict[str, dict[tuple[Any, ...], int]] = {}
    for record in records:
        form = forms.get(record.TYPE.name)
        if form is not None:
            key = tuple(getattr(record, name) for name in form[1])
            times.setdefault(record.TYPE.name, {}).setdefault(key, getattr(record, form[0]))
    out = []
    for label, name, _, _ in _STAGES:
        found = times.get(name, {}).values()
        if found:
            span = (max(found) - min(found)) / 1000
            out.append((label, len(found), (len(found) - 1) / span if span > 0 else None))
    return out
