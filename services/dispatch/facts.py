"""What the topics say about the run so far; rebuilt from them at every start, in whatever order they are read."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas import ids
from schemas.codec import ContractViolation
from schemas.group import GroupAdmission
from schemas.policy import EvaluationResult, PolicyGate, TrainingUpdate
from schemas.record import Record
from schemas.rollout import RolloutRequested
from schemas.verification import VerificationAlarm
from services.dispatch.cohorts import Cohorts, read_sizes
from services.dispatch.selection import PassRates
from services.runtime.core import Message

MAX_SKIPPED = 1_000_000
"""Group numbers that may be missing below a new one: no run plans so many, and the numbers of a run are not endless."""
MAY_COLLECT = frozenset({"promoted", "released"})


@dataclass
class Planned:
    """A group that was started: its first request, the members requested, and when this process learnt of it."""

    request: RolloutRequested
    members: set[int]
    seen_ms: int

    @property
    def missing(self) -> list[int]:
        """Member indices that were planned and never requested."""
        return [member for member in range(self.request.group_size) if member not in self.members]


@dataclass
class Facts:
    """State of the run. Group numbers stand for groups.

    `planned` holds a group until its fate is known, so it is bounded by credit; the sets of numbers grow with the run.
    A number that a crash skipped stays unused: within a partition, numbers only ever rise.
    """

    planned: dict[int, Planned] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    next_number: int = 0
    training: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    """Training groups started, neither excluded nor trained on."""
    queued: set[int] = field(default_factory=set)
    """Admitted groups that no update has consumed and the trainer has not excluded."""
    fates: dict[int, set[str]] = field(default_factory=dict)
    gate: dict[int, str] = field(default_factory=dict)
    updates: int = 0
    cohorts: Cohorts = field(default_factory=Cohorts)
    rates: PassRates = field(default_factory=PassRates)
    offsets: dict[int, int] = field(default_factory=dict)
    alarm: VerificationAlarm | None = None
    """The first one that stops the line."""
    quarantined: set[str] = field(default_factory=set)
    """Tasks whose check sets were found unfit during this run: their verdicts would all be unknown."""

    @property
    def promoted(self) -> int | None:
        """The newest version that may collect data; None when there is none."""
        return max((v for v, decision in self.gate.items() if decision in MAY_COLLECT), default=None)

    @property
    def undecided(self) -> dict[int, Planned]:
        """Training groups that admission has not decided on, by number."""
        return {number: group for number, group in self.planned.items() if number in self.training}

    def observe(self, message: Message, now_ms: int) -> None:
        """Take in one record of this run. Raises ContractViolation for ids that no dispatch makes."""
        record = message.record
        if isinstance(record, RolloutRequested):
            self.requested(record, now_ms)
        elif isinstance(record, GroupAdmission):
            position = message.position
            self.offsets[position.partition] = max(position.next_offset, self.offsets.get(position.partition, 0))
            self._decided(record)
        else:
            self._control(record)

    def requested(self, record: RolloutRequested, now_ms: int) -> None:
        """A planned member, whether just made or read back."""
        number = _number(record.group_id)
        if number > self.next_number + MAX_SKIPPED:
            raise ContractViolation("id", f"{record.group_id}: group {number} long before group {self.next_number}")
        if record.split == "eval":
            self.cohorts.asked(record.policy_version, read_sizes(record), record.task_set, record.task_id)
        else:
            self.training.add(number)
        if number in self.numbers and number not in self.planned:
            return  # nothing waits for it any more
        self.numbers.add(number)
        self.next_number = max(self.next_number, number + 1)
        group = self.planned.setdefault(number, Planned(record, set(), now_ms))
        group.members.add(record.member)
        self._settle(number)

    def _fate(self, number: int, fate: str) -> None:
        self.fates.setdefault(number, set()).add(fate)
        self._settle(number)

    def _settle(self, number: int) -> None:
        """Bring the derived sets up to date, and let go of a group that nothing waits for."""
        fates = self.fates.get(number, set())
        over = bool(fates & {"excluded", "trained"})
        _keep(self.open, number, number in self.training and not over)
        _keep(self.queued, number, "admitted" in fates and not over)
        group = self.planned.get(number)
        if group is not None and (
            fates & {"admitted", "excluded"} or (number not in self.training and not group.missing)
        ):
            del self.planned[number]

    def _decided(self, record: GroupAdmission) -> None:
        number = _number(record.group_id)
        if record.pass_rate is not None:
            if not 0 <= record.pass_rate <= 1:
                raise ContractViolation("range", f"{record.group_id}: a pass rate of {record.pass_rate:g}")
            judged = sum(coefficient is not None for coefficient in record.member_coefficients)
            self.rates.observe(record.task_id, number, record.pass_rate, judged)
        self._fate(number, record.decision)

    def _control(self, record: Record) -> None:
        if isinstance(record, PolicyGate):
            self.gate[record.policy_version] = record.decision
        elif isinstance(record, TrainingUpdate):
            self.updates = max(self.updates, record.policy_version)
            for group_id in record.group_ids:
                self._fate(_number(group_id), "trained")
        elif isinstance(record, EvaluationResult):
            self.cohorts.measured(record.policy_version, record.task_set)
        elif isinstance(record, VerificationAlarm):
            if record.severity == "stop":
                self.alarm = self.alarm or record
            if record.kind == "quarantine" and record.task_id is not None:
                self.quarantined.add(record.task_id)
        else:
            raise ContractViolation("topic", f"dispatch does not read {type(record).__name__}")


def _keep(numbers: set[int], number: int, wanted: bool) -> None:
    if wanted:
        numbers.add(number)
    else:
        numbers.discard(number)


def _number(group_id: str) -> int:
    try:
        return ids.parse_trial(ids.trial_id(group_id, 0)).group
    except ids.BadId as e:
        raise ContractViolation("id", f"{group_id!r} is no group id") from e
