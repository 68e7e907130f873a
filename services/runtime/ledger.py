"""The audit: every requested trial has exactly one fate, proved from the topics alone and in any order of reading."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from schemas.group import GroupAdmission, GroupClosed
from schemas.policy import TrainingUpdate
from schemas.record import Record
from schemas.rollout import RolloutCompleted, RolloutRequested
from schemas.verification import VerificationVerdict
from services.runtime.causes import Causes
from services.runtime.plan import Claim, claim, contradiction

T = TypeVar("T")
TRAINED = "trained"
EVALUATED = "evaluated"
IN_FLIGHT = "in_flight"
FINAL = frozenset({"pass", "fail", "unknown"})
ALWAYS = frozenset({"rollout.completed"})
"""What every audit is fed whole, beside what decides a fate."""
NAMED = 5
"""How many trials or groups a line names before it counts the rest."""


def excluded(reason: str) -> str:
    """The fate `excluded` with its reason, as a key of the counts."""
    return f"excluded/{reason}"


@dataclass
class _Trial:
    """What the topics say about one trial."""

    group_id: str = ""
    split: str = ""
    plan: tuple[object, ...] | None = None
    completed: bool = False  # its last attempt
    verdicts: set[str] = field(default_factory=set)
    rewards: set[float | None] = field(default_factory=set)
    asked: RolloutRequested | None = None
    claims: set[Claim] = field(default_factory=set)


@dataclass
class _Group:
    """What the topics say about one group."""

    closures: list[GroupClosed] = field(default_factory=list)
    admissions: list[GroupAdmission] = field(default_factory=list)
    trainer: list[GroupAdmission] = field(default_factory=list)
    updates: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class AuditReport:
    """`counts` has one entry per fate (`trained`, `excluded/REASON`, `evaluated`, `in_flight`), summing to `requested`.

    `in_flight` says where each unfinished trial stands. `notes` are harmless: repeated records that say the same.
    """

    requested: int
    counts: dict[str, int]
    in_flight: dict[str, list[str]]
    problems: list[str]
    notes: list[str]

    @property
    def balanced(self) -> bool:
        """Whether every requested trial has exactly one fate and no record contradicts another."""
        return not self.problems and sum(self.counts.values()) == self.requested

    def lines(self) -> list[str]:
        """The audit as text."""
        parts = " + ".join(f"{count} {fate}" for fate, count in sorted(self.counts.items())) or "0"
        out = [f"audit: {self.requested} requested = {parts}: {'balanced' if self.balanced else 'NOT BALANCED'}"]
        out += [f"  in flight, {where}: {_names(trials)}" for where, trials in sorted(self.in_flight.items())]
        out += [f"  problem: {problem}" for problem in self.problems]
        return out + [f"  note: {note}" for note in self.notes]


class Ledger:
    """Fed with decoded records of the topics that decide a trial's fate; others are ignored."""

    def __init__(self, asked: Collection[str] = ALWAYS) -> None:
        """`asked`: names of the record kinds of which every record is fed, in which an absent one is a loss."""
        self._causes = Causes(asked)
        self._trials: dict[str, _Trial] = defaultdict(_Trial)
        self._groups: dict[str, _Group] = defaultdict(_Group)
        self._members: dict[str, list[str]] = defaultdict(list)
        self._conflicts: list[str] = []
        self._repeats: Counter[str] = Counter()

    def add(self, record: Record) -> None:
        """Take in one record."""
        self._causes.add(record)
        if isinstance(record, RolloutRequested):
            self._requested(record)
        elif isinstance(record, RolloutCompleted):
            trial = self._trials[record.trial_id]
            trial.completed |= record.final_attempt
            trial.claims.add(claim(record))
        elif isinstance(record, VerificationVerdict):
            trial = self._trials[record.trial_id]
            trial.claims.add(claim(record))
            if record.verdict in FINAL:
                trial.verdicts.add(record.verdict)
                trial.rewards.add(record.reward)
        elif isinstance(record, GroupClosed):
            self._groups[record.group_id].closures.append(record)
        elif isinstance(record, GroupAdmission):
            group = self._groups[record.group_id]
            (group.admissions if record.stage == "admission" else group.trainer).append(record)
        elif isinstance(record, TrainingUpdate):
            for group_id in record.group_ids:
                self._groups[group_id].updates.add(record.update_id)

    def _requested(self, record: RolloutRequested) -> None:
        trial = self._trials[record.trial_id]
        plan = tuple(getattr(record, f.name) for f in dataclasses.fields(record) if f.name != "requested_ms")
        if trial.plan is None:
            trial.plan, trial.group_id, trial.split = plan, record.group_id, record.split
            trial.asked = record
            self._members[record.group_id].append(record.trial_id)
        elif trial.plan == plan:
            self._repeats["rollout.requested"] += 1
        else:
            self._conflicts.append(f"{record.trial_id} was requested twice with different content")

    def balance(self, over: bool = False) -> AuditReport:
        """The account as it stands. With `over` (the run ended and its services were drained) a trial that closure or
        admission owed a record is a problem, not in flight."""
        problems = list(self._conflicts)
        notes = [f"{count} repeated records on {topic}" for topic, count in sorted(self._repeats.items())]
        problems += self._strangers()
        problems += [f"{what}: {_names(trials)}" for what, trials in self._causes.missing()]
        problems += self._lies()
        for group_id, group in self._groups.items():
            problems += _contradictions(group_id, group, self._members.get(group_id, []), self._trials)
            notes += _repeated(group_id, group)
        counts: Counter[str] = Counter()
        in_flight: dict[str, list[str]] = defaultdict(list)
        requested = [(trial_id, trial) for trial_id, trial in self._trials.items() if trial.plan is not None]
        for trial_id, trial in requested:
            fates = self._fates(trial_id, trial)
            if len(fates) > 1:
                problems.append(f"{trial_id} has {len(fates)} fates: {', '.join(sorted(fates))}")
            fate = min(fates) if fates else IN_FLIGHT
            counts[fate] += 1
            if fate == IN_FLIGHT:
                in_flight[self._stands(trial_id, trial)].append(trial_id)
        if over:
            for where in ("owed by closure", "owed by admission"):
                if where in in_flight:
                    problems.append(f"unaccounted at the end of the run, {where}: {_names(in_flight[where])}")
        return AuditReport(len(requested), dict(counts), dict(in_flight), problems, notes)

    def _strangers(self) -> Iterator[str]:
        unknown = [trial_id for trial_id, trial in self._trials.items() if trial.plan is None]
        if unknown:
            yield f"completed or judged, but never requested: {_names(unknown)}"
        groups = [group_id for group_id in self._groups if group_id not in self._members]
        if groups:
            yield f"closed, decided or trained on, but never requested: {_names(groups)}"

    def _lies(self) -> Iterator[str]:
        """Completions and verdicts that cannot be what became of their requests."""
        for trial_id, trial in self._trials.items():
            if trial.asked is None:
                continue
            for said in sorted(trial.claims):
                if (why := contradiction(trial.asked, said)) is not None:
                    yield f"{trial_id}: its {said.by} record says {why}"

    def _fates(self, trial_id: str, trial: _Trial) -> set[str]:
        group = self._groups.get(trial.group_id)
        if group is None:
            return set()
        if trial.split == "eval":
            verdicts = {_member(closure, trial_id) for closure in group.closures} - {None}
            return {EVALUATED if verdict in ("pass", "fail") else excluded("unresolved") for verdict in verdicts}
        fates = {
            excluded(decision.reason or "unnamed")
            for decision in (*group.admissions, *group.trainer)
            if decision.decision == "excluded"
        }
        if group.updates:
            fates.add(TRAINED if _was_scored(group, trial_id) else excluded("unresolved"))
        return fates

    def _stands(self, trial_id: str, trial: _Trial) -> str:
        """Who an unfinished trial waits for."""
        group = self._groups.get(trial.group_id, _Group())
        if group.admissions:
            return "admitted, waiting for an update"
        if group.closures:
            return "owed by admission" if trial.split == "train" else "closed without it"
        if all(self._trials[member].verdicts for member in self._members[trial.group_id]):
            return "owed by closure"
        if trial.verdicts:
            return "judged, waiting for its group"
        return "with the verifier" if trial.completed else "with the sampler"


def _member(closure: GroupClosed, trial_id: str) -> str | None:
    found = dict(zip(closure.member_trials, closure.member_verdicts, strict=True))
    return found.get(trial_id)


def _was_scored(group: _Group, trial_id: str) -> bool:
    """Whether a trained group's update used this member: under `shrink` some members have no coefficient."""
    for decision in group.admissions:
        scored = dict(zip(decision.member_trials, decision.member_coefficients, strict=True))
        if trial_id in scored:
            return scored[trial_id] is not None
    return True


def _contradictions(group_id: str, group: _Group, members: list[str], trials: dict[str, _Trial]) -> Iterator[str]:
    """What the records of one group say against each other."""
    if _differ(group.closures, _closure_content):
        yield f"{group_id} was closed {len(group.closures)} times with different content"
    for closure in group.closures[:1]:
        yield from _closure_problems(closure, members, trials)
    if _differ(group.admissions, lambda a: (a.decision, a.reason)):
        yield f"{group_id} was decided {len(group.admissions)} times, differently"
    if group.admissions and not group.closures:
        yield f"{group_id} was decided but never closed"
    admitted = any(decision.decision == "admitted" for decision in group.admissions)
    if group.trainer and not admitted:
        yield f"{group_id} was excluded by the trainer but never admitted"
    if group.updates and not admitted:
        yield f"{group_id} was trained on but never admitted"
    if len(group.updates) > 1:
        yield f"{group_id} was trained on {len(group.updates)} times: {', '.join(sorted(group.updates))}"
    if any(closure.split == "eval" for closure in group.closures) and (group.admissions or group.updates):
        yield f"{group_id} belongs to an evaluation but was offered for training"


def _closure_problems(closure: GroupClosed, members: list[str], trials: dict[str, _Trial]) -> Iterator[str]:
    listed = set(closure.member_trials)
    if left_out := [trial for trial in members if trial not in listed]:
        yield f"{closure.group_id} was closed without its members {_names(left_out)}"
    for trial_id, verdict, reward in zip(
        closure.member_trials, closure.member_verdicts, closure.member_rewards, strict=True
    ):
        said = trials[trial_id].verdicts if trial_id in trials else set()
        if verdict in FINAL and verdict not in said:
            yield f"{trial_id} was closed as {verdict}, which no verdict says ({', '.join(sorted(said)) or 'none'})"
        if reward is not None and verdict in said and reward not in trials[trial_id].rewards:
            yield f"{trial_id} was closed with reward {reward:g}, which no verdict says"
        if reward is not None and verdict not in ("pass", "fail"):
            yield f"{trial_id} has a reward ({reward:g}) without a pass or a fail ({verdict})"


def _closure_content(closure: GroupClosed) -> tuple[object, ...]:
    return closure.member_attempts, closure.member_verdicts, closure.member_rewards, closure.member_coefficients


def _repeated(group_id: str, group: _Group) -> Iterator[str]:
    for what, records in (("closed", group.closures), ("decided", group.admissions), ("excluded", group.trainer)):
        if len(records) > 1:
            yield f"{group_id} was {what} {len(records)} times"


def _differ(records: list[T], content: Callable[[T], object]) -> bool:
    return len({content(record) for record in records}) > 1


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = len(listed) - NAMED
    return ", ".join(listed[:NAMED]) + (f" and {more} more" if more > 0 else "")


def audit(records: Iterable[Record], over: bool = False) -> AuditReport:
    """The audit of a run's records, read in any order; see `Ledger.balance` for `over`."""
    ledger = Ledger()
    for record in records:
        ledger.add(record)
    return ledger.balance(over)
