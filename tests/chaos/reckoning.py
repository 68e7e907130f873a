"""What must hold when the dust has settled, from the topics alone and, where there is one, from what an observer saw.

A loss is a requested trial
- without a fate, except where its group was admitted and too few others were left for one more update;
- whose group was excluded as `poison` or `halted_version`: no fault of the schedule makes a record bad;
- whose group was excluded as `unresolved` for a reason that the schedule does not explain (see `explained`).
`stale` and `zero_contrast` are fates like `trained`: admission named its reason.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from schemas import topics
from schemas.group import GroupAdmission, GroupClosed
from schemas.policy import PolicyPublished, TrainingUpdate
from schemas.record import Record
from schemas.rollout import INFRA_STOPS, Invocation, RolloutCompleted, RolloutRequested
from schemas.sandbox import SandboxCommand, SandboxResult
from schemas.verification import VerificationAlarm, VerificationVerdict
from services.agent.engines.synthetic import is_right
from services.runtime.cluster import Cluster, connection
from services.runtime.core import Message
from services.runtime.ledger import AuditReport, audit, excluded
from services.runtime.tap import read_all
from tests.chaos.explained import Injured, explained
from tests.chaos.faults import BROKER, ENDING, EVERYTHING
from tests.chaos.observer import Observer

TIMES = frozenset({"requested_ms", "started_ms", "ended_ms", "closed_ms", "decided_ms", "published_ms"})
READ = (
    topics.TRAINING_UPDATE, topics.POLICY_PUBLISHED, topics.GROUP_ADMISSION, topics.GROUP_CLOSED,
    topics.VERIFICATION_ALARM, topics.VERIFICATION_VERDICT, topics.ROLLOUT_COMPLETED, topics.SANDBOX_RESULT,
    topics.SANDBOX_COMMAND, topics.ROLLOUT_INVOCATION, topics.ROLLOUT_REQUESTED,
)  # fmt: skip
NEVER = (excluded("poison"), excluded("halted_version"))
ADMITTED = "admitted"
MOVES = (*ENDING, "long_pause", "roll", "rebalance", "whole")
SHARED_FATE = (BROKER, EVERYTHING)


@dataclass
class Story:
    """What a storm knows beyond the topics: what was broken when, what was seen when, how the run was set up."""

    observer: Observer
    injured: Sequence[Injured]
    batch_groups: int
    pass_rate: float
    problems: list[str] = field(default_factory=list)
    taken_over: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """By partition, the ends of `rollout.invocation` that samplers read to before they sampled there."""


@dataclass
class Reckoning:
    """`problems` empty: nothing lost, nothing twice. `duplicates`: repeated records that changed nothing, by topic;
    `late` of them are invocations whose first record was not in the log yet when the next sampler read to its end.

    `unresolved`: trials of groups that the schedule's faults left unresolved, each for a reason that explains it.
    """

    trials: int = 0
    updates: int = 0
    losses: int = 0
    unresolved: int = 0
    judged: int = 0
    late: int = 0
    duplicates: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    audit: list[str] = field(default_factory=list)


def reckon(cluster: Cluster, *, deadline_s: float, story: Story | None = None) -> Reckoning:
    """Read the run's topics and judge them; services must have been drained. Without a story nothing is explained."""
    undecodable: list[Any] = []
    messages = [message for topic in READ for message in read_all(cluster, topic, undecodable=undecodable.append)]
    records = [message.record for message in messages]
    out = Reckoning()
    if undecodable:
        out.problems.append(f"{len(undecodable)} undecodable records")
    result = audit(records, over=True)
    out.audit = result.lines()
    if not result.balanced:
        out.problems += [f"audit: {problem}" for problem in result.problems] or ["the audit does not balance"]
    out.trials = len({r.trial_id for r in records if isinstance(r, RolloutCompleted) and r.final_attempt})
    _fates(records, result, story, out)
    _versions(records, out)
    _verdicts(records, out)
    _repeats(messages, story.taken_over if story else {}, out)
    out.problems += [f"alarm: {r.kind}, {r.severity}" for r in records if isinstance(r, VerificationAlarm)]
    out.problems += [f"dead letters: {letters}" for letters in dead_letters(cluster)]
    if story is None:
        _waits(records, deadline_s, out)
    else:
        _waits_seen(story, deadline_s, out)
        _truths(records, story, out)
        out.problems += story.problems
    return out


# -- losses --------------------------------------------------------------------------------------------------------


def _fates(records: list[Record], result: AuditReport, story: Story | None, out: Reckoning) -> None:
    lost = result.requested - sum(result.counts.values())
    for where, trials in result.in_flight.items():
        if where.startswith(ADMITTED):
            groups = {trial.rpartition("/")[0] for trial in trials}
            if story is None or len(groups) < story.batch_groups:
                continue
            out.problems.append(f"{len(groups)} admitted groups wait for an update, which takes {story.batch_groups}")
        else:
            out.problems.append(f"{len(trials)} trials without a fate, {where}: {sorted(trials)[:5]}")
        lost += len(trials)
    for fate in NEVER:
        if count := result.counts.get(fate, 0):
            out.problems.append(f"{count} trials were {fate}")
            lost += count
    for closure, why in _unresolved(records):
        reasons = [cause for cause, at in why if not _excused(cause, at, story)]
        if not reasons:
            out.unresolved += closure.group_size
            continue
        out.problems.append(f"{closure.group_id} is unresolved, which no fault explains: {reasons[:3]}")
        lost += closure.group_size
    out.losses = lost


def _excused(cause: str, key: tuple[str, int], story: Story | None) -> bool:
    if story is None:
        return False
    trial, attempt = key
    at = story.observer.ended.get(key) if attempt >= 0 else story.observer.judged.get(trial)
    return explained(cause, at, story.injured)


def _unresolved(records: list[Record]) -> list[tuple[GroupClosed, list[tuple[str, tuple[str, int]]]]]:
    """Unresolved groups with every cause behind each member that has no reward: (cause, (trial, attempt or -1))."""
    ends: dict[str, dict[int, str]] = defaultdict(dict)
    causes: dict[str, str] = {}
    for r in records:
        if isinstance(r, RolloutCompleted):
            ends[r.trial_id].setdefault(r.attempt, r.stop_reason)
        elif isinstance(r, VerificationVerdict) and r.verdict == "unknown":
            causes.setdefault(r.trial_id, r.cause)
    found = []
    seen: set[str] = set()
    for r in records:
        if not isinstance(r, GroupClosed) or r.contrast != "unresolved" or r.group_id in seen:
            continue
        seen.add(r.group_id)
        why: list[tuple[str, tuple[str, int]]] = []
        for trial, verdict in zip(r.member_trials, r.member_verdicts, strict=True):
            if verdict in ("pass", "fail"):
                continue
            cause = causes.get(trial, verdict)
            if cause in INFRA_STOPS:
                why += [(stop, (trial, attempt)) for attempt, stop in sorted(ends[trial].items())]
            else:
                why.append((cause, (trial, -1)))
        found.append((r, why))
    return found


def dead_letters(cluster: Cluster) -> list[str]:
    """What stands in the dead-letter topics: no fault of the schedule makes a record bad, so nothing explains one."""
    names = [name for topic in topics.ALL if (name := topics.dead_letter(topic))]
    out = []
    consumer = KafkaConsumer(
        **connection(cluster), group_id=None, enable_auto_commit=False, auto_offset_reset="earliest",
        allow_auto_create_topics=False, metrics_enabled=False,
    )  # fmt: skip
    try:
        parts = [TopicPartition(name, n) for name in names for n in consumer.partitions_for_topic(name) or ()]
        consumer.assign(parts)
        starts, ends = (find(parts, timeout_ms=30_000) for find in (consumer.beginning_offsets, consumer.end_offsets))
        left = {tp for tp in parts if ends[tp] > starts[tp]}
        for tp in left:
            consumer.seek(tp, starts[tp])
        while left:
            for tp, letters in consumer.poll(timeout_ms=1000).items():
                for letter in letters:
                    said = {name: value.decode(errors="replace") for name, value in letter.headers}
                    out.append(f"{tp.topic}: {said.get('dlq.reason')}: {said.get('dlq.error')}")
            left = {tp for tp in left if (consumer.position(tp, timeout_ms=10_000) or 0) < ends[tp]}
    finally:
        consumer.close(timeout_ms=1000)
    return out


# -- nothing twice, nothing wrong ----------------------------------------------------------------------------------


def _versions(records: list[Record], out: Reckoning) -> None:
    updates = [r for r in records if isinstance(r, TrainingUpdate)]
    versions = sorted({r.policy_version for r in updates})
    out.updates = len(versions)
    if versions != list(range(1, len(versions) + 1)):
        out.problems.append(f"versions with gaps: {versions}")
    published = {r.policy_version for r in records if isinstance(r, PolicyPublished)}
    if missing := set(versions) - published:
        out.problems.append(f"trained but not published: {sorted(missing)}")
    trained: dict[str, set[int]] = defaultdict(set)
    for update in updates:
        for group in update.group_ids:
            trained[group].add(update.policy_version)
    out.problems += [f"{group} was trained in versions {sorted(v)}" for group, v in trained.items() if len(v) > 1]


def _verdicts(records: list[Record], out: Reckoning) -> None:
    """One final verdict per trial, and no infrastructure fault behind a fail."""
    said: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    first_end: dict[tuple[str, int], RolloutCompleted] = {}
    for r in records:
        if isinstance(r, RolloutCompleted):
            first_end.setdefault((r.trial_id, r.attempt), r)
    for r in records:
        if isinstance(r, VerificationVerdict) and r.verdict != "pending":
            said[r.trial_id].add((r.attempt, r.verdict, r.reward))
            end = first_end.get((r.trial_id, r.attempt))
            if r.verdict == "fail" and (end is None or end.stop_reason in INFRA_STOPS):
                out.problems.append(f"{r.trial_id}.{r.attempt} failed though {end.stop_reason if end else 'no end'}")
    out.problems += [f"{trial}: two verdicts {sorted(v, key=repr)}" for trial, v in said.items() if len(v) > 1]


def _truths(records: list[Record], story: Story, out: Reckoning) -> None:
    """The synthetic engine says beforehand which attempts are right: whatever verdict says otherwise is our fault."""
    for r in records:
        if isinstance(r, VerificationVerdict) and r.verdict in ("pass", "fail"):
            out.judged += 1
            right = is_right(f"{r.trial_id}.{r.attempt}", story.pass_rate)
            if right != (r.verdict == "pass"):
                truth = "right" if right else "wrong"
                out.problems.append(f"{r.trial_id}.{r.attempt} is {truth} and was judged {r.verdict} ({r.cause})")


def _content(record: Record) -> tuple[Any, ...]:
    values = ((f.name, getattr(record, f.name)) for f in fields(record) if f.name not in TIMES)  # type: ignore[arg-type]  # every record is a dataclass
    return tuple(v.tobytes() if hasattr(v, "tobytes") else v for name, v in values if not name.endswith("_ms"))


def _repeats(messages: Sequence[Message], taken_over: Mapping[int, Sequence[int]], out: Reckoning) -> None:
    """Repeated ids: harmless when they say the same. The first in the log counts for invocations."""
    ids: dict[type[Record], Any] = {
        RolloutRequested: lambda r: r.trial_id,
        Invocation: lambda r: r.invocation_id,
        SandboxCommand: lambda r: r.operation_id,
        SandboxResult: lambda r: r.operation_id,
        RolloutCompleted: lambda r: (r.trial_id, r.attempt),
        VerificationVerdict: lambda r: None if r.verdict == "pending" else (r.trial_id, r.attempt),
        GroupClosed: lambda r: r.group_id,
        GroupAdmission: lambda r: (r.group_id, r.stage),
        TrainingUpdate: lambda r: r.policy_version,
        PolicyPublished: lambda r: r.policy_version,
    }
    seen: dict[tuple[str, Any], Message] = {}
    for message in messages:
        r = message.record
        key = ids.get(type(r), lambda r: None)(r)
        if key is None:
            continue
        name = type(r).__name__
        first = seen.setdefault((name, key), message)
        if first is message:
            continue
        out.duplicates[name] += 1
        if isinstance(r, Invocation) and _content(first.record) != _content(r):
            _sampled_again(first, message, taken_over, out)


def _sampled_again(counts: Message, other: Message, taken_over: Mapping[int, Sequence[int]], out: Reckoning) -> None:
    """Recorded tokens are never sampled again; what was not acknowledged is, and both records may come to stand.

    No sampler may have read past the first one before it made the other: between the two lies no end that one read to,
    unless the other was begun before the first was there, by a sampler that was stopped meanwhile.
    """
    first, second = counts.record, other.record
    assert isinstance(first, Invocation)
    assert isinstance(second, Invocation)
    read = [end for end in taken_over.get(other.partition, ()) if counts.position.offset < end <= other.position.offset]
    if second.started_ms <= first.ended_ms or not read:
        out.late += 1
        return
    spans = ", ".join(f"{r.started_ms}..{r.ended_ms} by version {r.policy_version}" for r in (first, second))
    out.problems.append(f"{second.invocation_id} was sampled again though a sampler had read to {read[-1]}: {spans}")


def taken_over(logs: Path) -> dict[int, list[int]]:
    """See `Story.taken_over`; from what samplers say in their logs."""
    ends: dict[int, list[int]] = defaultdict(list)
    for file in sorted(logs.glob("sampler*.log")):
        for line in file.read_text(errors="replace").splitlines():
            said = json.loads(line) if line.startswith("{") and line.endswith("}") else {}
            for name, end in said.get("ends", {}).items():
                topic, _, number = name.rstrip("]").partition("[")
                if topic == topics.ROLLOUT_INVOCATION.name:
                    ends[int(number)].append(end)
    return {number: sorted(found) for number, found in ends.items()}


# -- waits ---------------------------------------------------------------------------------------------------------


def _waits(records: list[Record], deadline_s: float, out: Reckoning) -> None:
    """No group waited for its closure longer than the deadline allows, by the records' own times."""
    asked: dict[str, int] = {}
    closed: dict[str, int] = {}
    for r in records:
        if isinstance(r, RolloutRequested):
            asked[r.group_id] = min(asked.get(r.group_id, r.requested_ms), r.requested_ms)
        elif isinstance(r, GroupClosed):
            closed.setdefault(r.group_id, r.closed_ms)
    late = [g for g, at in closed.items() if g in asked and at - asked[g] > 1000 * deadline_s]
    out.problems += [f"{group} waited longer than {deadline_s:g} s" for group in late]


def _waits_seen(story: Story, deadline_s: float, out: Reckoning) -> None:
    """The same by the observer's clock, which nobody set.

    A closure service counts a group's deadline from when it first saw the group, since the time in which it was stopped
    is not to be held against it. So the wait is counted from the last fault that can have moved the group to another.
    """
    seen = story.observer
    moves = [one.until for one in story.injured if one.fault.kind in MOVES and one.services & {"closure", *SHARED_FATE}]
    for group, at in seen.closed.items():
        if group in seen.asked:
            waited = at - max([seen.asked[group], *(moved for moved in moves if moved < at)])
            if waited > deadline_s:
                out.problems.append(f"{group} waited {waited:.0f} s under one closure service, over {deadline_s:g} s")
