"""What a running run shows: a state fed with records and two ways to show it, a panel for a terminal and one line."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from services.monitor.facts import ratio
from services.runtime.screen import cell

if TYPE_CHECKING:
    from rich.panel import Panel

    from schemas.group import GroupAdmission, GroupClosed
    from schemas.policy import EvaluationResult, PolicyGate, TrainingUpdate
    from schemas.record import Record
    from schemas.rollout import RolloutCompleted, RolloutRequested
    from schemas.verification import VerificationVerdict
    from services.runtime.settings import RunSettings

RATE_S = 30.0
"""Rates are counts over this many last seconds."""
RECENT_TRIALS = 256
RECENT_GROUPS = 64
STAGES = ("requested", "sampled", "verified", "closed", "admitted", "trained")
_REASONS = 8
"""Reasons of exclusions that are shown."""
_SMOOTH = 0.2
"""Weight of the newest interval between two updates in their moving average."""
_DOWNTIME_FACTOR, _DOWNTIME_S = 10.0, 60.0
"""An interval this many times the average, and this long at least, is a pause of the run: not counted."""


class Progress:
    """State of one run as its records tell it. `clock` gives Unix seconds; records may come late or twice.

    Counts of groups are training groups; evaluation is counted apart, per evaluated version.
    """

    def __init__(self, settings: RunSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self.began = clock()
        self.updates = 0
        self.version: int | None = None
        self.gate = ""
        self.trouble = ""
        """What keeps everything waiting, for a person to put right; shown before anything else."""
        self.unresolved = 0
        self.excluded: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.evaluations: dict[int, dict[str, float]] = {}
        self.last_update: TrainingUpdate | None = None
        self.by_version: dict[int, list[int]] = {}
        self._times: dict[str, deque[float]] = {stage: deque() for stage in STAGES}
        self._tokens: deque[tuple[float, int]] = deque()
        self._outcomes: deque[bool] = deque(maxlen=RECENT_TRIALS)
        self._first: list[bool] = []
        self._contrast: deque[bool] = deque(maxlen=RECENT_GROUPS)
        self._lags: deque[int] = deque(maxlen=RECENT_GROUPS * 8)
        self._open: set[str] = set()
        self._evaluating: dict[int, set[str]] = {}  # version -> its judged trials
        self._evaluated_as: dict[str, int] = {}  # trial -> version that it was asked to measure
        self._interval: float | None = None
        self._last_finish: float | None = None

    def feed(self, record: Record, timestamp_ms: int) -> None:
        """Take one record of the watched topics, with its time; a record of another topic changes nothing."""
        handler = _HANDLERS.get(record.TYPE.name)
        if handler is not None:
            handler(self, record, timestamp_ms / 1000)

    def _count(self, stage: str, at: float) -> None:
        self.totals[stage] += 1
        self._times[stage].append(at)

    def _requested(self, r: RolloutRequested, at: float) -> None:
        self._open.add(r.trial_id)
        self._count("requested", at)
        if r.split == "eval":
            self._evaluating.setdefault(r.policy_version, set())
            self._evaluated_as[r.trial_id] = r.policy_version

    def _completed(self, r: RolloutCompleted, at: float) -> None:
        self._tokens.append((at, r.policy_tokens))
        self._count("sampled", at)

    def _verdict(self, r: VerificationVerdict, at: float) -> None:
        if r.verdict == "pending":
            return
        self._open.discard(r.trial_id)
        self.unresolved += r.verdict == "unknown"
        self._count("verified", at)
        if r.split == "eval":
            version = self._evaluated_as.get(r.trial_id, r.policy_version)
            self._evaluating.setdefault(version, set()).add(r.trial_id)
            return
        if r.verdict == "unknown":
            return
        passed = r.verdict == "pass"
        self._outcomes.append(passed)
        if len(self._first) < RECENT_TRIALS:
            self._first.append(passed)
        counts = self.by_version.setdefault(r.policy_version, [0, 0])
        counts[0] += passed
        counts[1] += 1

    def _closed(self, r: GroupClosed, at: float) -> None:
        self._open.difference_update(r.member_trials)
        if r.split == "train":
            self._count("closed", at)
            self._contrast.append(r.contrast == "mixed")

    def _admission(self, r: GroupAdmission, at: float) -> None:
        if r.decision == "excluded":
            self.excluded[r.reason or "no reason"] += 1
            return
        self._count("admitted", at)
        self._lags.extend(r.member_lags)

    def _update(self, r: TrainingUpdate, at: float) -> None:
        self.totals["trained"] += len(r.group_ids)
        self._times["trained"].extend([at] * len(r.group_ids))
        self.updates = max(self.updates, r.policy_version)
        self.last_update = r
        finish = r.finished_ms / 1000
        if self._last_finish is not None and finish > self._last_finish:
            self._learn_interval(finish - self._last_finish)
        self._last_finish = finish

    def _learn_interval(self, interval: float) -> None:
        if self._interval is None:
            self._interval = interval
        elif interval < max(_DOWNTIME_S, _DOWNTIME_FACTOR * self._interval):
            self._interval += _SMOOTH * (interval - self._interval)

    def _gate(self, r: PolicyGate, at: float) -> None:
        del at
        self.gate = f"v{r.policy_version} {r.decision}"
        if r.decision in ("promoted", "released"):
            self.version = max(r.policy_version, self.version or 0)

    def _evaluation(self, r: EvaluationResult, at: float) -> None:
        del at
        self.evaluations.setdefault(r.policy_version, {})[r.task_set] = r.pass_at_1

    def rate(self, stage: str) -> float:
        """Records (groups from `closed` on) per second over the last RATE_S seconds."""
        since = self._clock() - RATE_S
        times = self._times[stage]
        while times and times[0] < since:
            times.popleft()
        return len(times) / self._window()

    def token_rate(self) -> float:
        """Tokens sampled per second in trials that ended within the last RATE_S seconds."""
        since = self._clock() - RATE_S
        while self._tokens and self._tokens[0][0] < since:
            self._tokens.popleft()
        return sum(tokens for _, tokens in self._tokens) / self._window()

    def _window(self) -> float:
        return max(1.0, min(RATE_S, self._clock() - self.began))

    @property
    def pass_rate(self) -> float | None:
        """Share of passes among the last RECENT_TRIALS judged training trials."""
        return sum(self._outcomes) / len(self._outcomes) if self._outcomes else None

    @property
    def first_pass_rate(self) -> float | None:
        """The same of the first ones, once there are RECENT_TRIALS of them."""
        return sum(self._first) / len(self._first) if len(self._first) == RECENT_TRIALS else None

    @property
    def contrast(self) -> float | None:
        """Share of mixed groups among the last RECENT_GROUPS closed training groups."""
        return sum(self._contrast) / len(self._contrast) if self._contrast else None

    @property
    def lag(self) -> tuple[float, int] | None:
        """Mean and largest lag of recently admitted members (versions)."""
        return (sum(self._lags) / len(self._lags), max(self._lags)) if self._lags else None

    @property
    def in_flight(self) -> int:
        """Training trials that were asked for and are not judged yet."""
        return len(self._open)

    def seconds_left(self) -> float | None:
        """Seconds until the last update, by the moving average; None before two updates."""
        remaining = self._settings.dispatch.updates - self.updates
        if remaining <= 0:
            return 0.0
        return None if self._interval is None else remaining * self._interval

    def phase(self) -> str:
        """What the run is doing now, in a few words."""
        plan = self._settings.evaluation
        sizes = [size for size in (plan.train_tasks, plan.heldout_bugs, plan.heldout_families) if size]
        current = max(self._evaluating, default=None)
        if current is not None and len(self.evaluations.get(current, ())) < len(sizes):
            return f"evaluating v{current}: {len(self._evaluating[current])} of {sum(sizes) * plan.samples} trials"
        if self.updates >= self._settings.dispatch.updates:
            return "last update done"
        return "training" if self.totals["requested"] else "starting"

    def line(self) -> str:
        """The state in one plain line."""
        lag = self.lag
        parts = [
            f"update {self.updates}/{self._settings.dispatch.updates}",
            "v-" if self.version is None else f"v{self.version}",
            self.phase(),
            f"pass {ratio(self.pass_rate)}",
            f"lag {'-' if lag is None else f'{lag[0]:.1f}'} (bound {self._settings.admission.max_lag})",
            f"contrast {percent(self.contrast)}",
            f"{self.rate('sampled'):.1f} trials/s",
            f"{self.token_rate():,.0f} tokens/s",
            f"in flight {self.in_flight}",
            f"unresolved {self.unresolved}",
            f"excluded {self.excluded_text()}",
            f"left {duration(self.seconds_left())}",
        ]
        return " | ".join([self.trouble, *parts] if self.trouble else parts)

    def excluded_text(self) -> str:
        """Excluded training groups by reason."""
        return (
            ", ".join(f"{cell(reason, 40)} {count}" for reason, count in self.excluded.most_common(_REASONS)) or "none"
        )

    def panel(self) -> Panel:
        """The state as a panel for a terminal."""
        from services.monitor.progress_panel import panel

        return panel(self, self._settings, self._clock())

    def curve(self) -> Sequence[float]:
        """Pass rate of the training trials of each version that has any, oldest first."""
        return [passed / judged for _, (passed, judged) in sorted(self.by_version.items()) if judged]


_HANDLERS: dict[str, Callable[[Progress, Any, float], None]] = {
    "rollout.requested": Progress._requested,
    "rollout.completed": Progress._completed,
    "verification.verdict": Progress._verdict,
    "group.closed": Progress._closed,
    "group.admission": Progress._admission,
    "training.update": Progress._update,
    "policy.gate": Progress._gate,
    "evaluation.result": Progress._evaluation,
}


def percent(share: float | None) -> str:
    """A share as a whole percentage; `-` when unknown."""
    return "-" if share is None else f"{share:.0%}"


def duration(seconds: float | None) -> str:
    """A time span for people; `-` when unknown."""
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
