"""Admission's core: one decision per closed training group, against the trainer's version at that moment."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas.codec import ContractViolation
from schemas.group import GroupAdmission, GroupClosed
from schemas.policy import PolicyGate, PolicyPublished
from schemas.topics import GROUP_ADMISSION
from services.admission.decide import Standing, contradicts_itself, decide
from services.runtime.core import BaseCore, Effects, Message, Output, Position, finished, on_account_of

SETTLE_MS = 2_000
"""How long a decision that was read back stays unfinished: it may be seen before the producer hears that it was
written, and the closure that it belongs to must be committed first."""
REMEMBERED = 65_536
"""Decided groups that are remembered in one partition, against a group that is closed or delivered twice."""


PATIENCE_MS = 60_000
"""How long a group waits for the news that a version was published which a member says it was sampled with: the two
stand on different topics, and nothing may be sampled with a version before it is published."""


@dataclass
class _Partition:
    """What waits in one partition, in order, and what was decided there."""

    catching_up: bool = True
    waiting: list[tuple[Position, GroupClosed, int]] = field(default_factory=list)  # and since when (ms)
    read_early: list[Position] = field(default_factory=list)
    read_back: deque[tuple[Position, int]] = field(default_factory=deque)
    decided: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def remember(self, group_id: str) -> None:
        self.decided[group_id] = None
        while len(self.decided) > REMEMBERED:
            self.decided.popitem(last=False)


class AdmissionCore(BaseCore):
    """Closed groups in, one decision each out; groups of the evaluation split pass without one.

    Decisions wait while catching up (the decision may stand further on in the log), until a published version is known,
    and, not for ever, until those are that a group says it was sampled with. Our own records, read back, are finished
    later than the closures that they belong to: else a crash could find a closure without its decision.
    """

    def __init__(
        self, run_id: str, max_lag: int, on_poison: Callable[[str, str], None] = lambda group, why: None
    ) -> None:
        self._run_id = run_id
        self._max_lag = max_lag
        self._on_poison = on_poison
        self._trainer_version = -1
        self._gate: dict[int, str] = {}
        self._partitions: dict[int, _Partition] = {}
        self._counts: dict[str, int] = defaultdict(int)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many groups were admitted or excluded, by reason."""
        return dict(self._counts)

    @property
    def waiting_groups(self) -> int:
        return sum(len(state.waiting) for state in self._partitions.values())

    def assigned(self, partitions: frozenset[int]) -> None:
        for number in partitions:
            self._partitions[number] = _Partition()

    def revoked(self, partitions: frozenset[int]) -> None:
        for number in partitions:
            self._partitions.pop(number, None)

    def caught_up(self, now_ms: int) -> Effects:
        for state in self._partitions.values():
            state.catching_up = False
        return self._decide_all(now_ms)

    def handle(self, message: Message, now_ms: int) -> Effects:
        record = message.record
        if isinstance(record, PolicyPublished):
            return self._published(record, message, now_ms)
        if isinstance(record, PolicyGate):
            if record.run_id == self._run_id:
                self._gate[record.policy_version] = record.decision
            return finished(message)
        state = self._partitions.setdefault(message.partition, _Partition())
        if isinstance(record, GroupAdmission):
            return self._read_back(state, record, message.position, now_ms)
        if not isinstance(record, GroupClosed):
            raise ContractViolation("topic", f"admission does not read {type(record).__name__}")
        if record.run_id != self._run_id or record.split == "eval":
            return finished(message)
        state.waiting.append((message.position, record, now_ms))
        return self._decide(state, now_ms)

    def _published(self, record: PolicyPublished, message: Message, now_ms: int) -> Effects:
        effects = finished(message)
        if record.run_id == self._run_id:
            self._trainer_version = max(self._trainer_version, record.policy_version)
            effects += self._decide_all(now_ms)
        return effects

    def _read_back(self, state: _Partition, record: GroupAdmission, position: Position, now_ms: int) -> Effects:
        if record.run_id == self._run_id and record.stage == "admission":
            state.remember(record.group_id)
        if state.catching_up or state.waiting:
            state.read_early.append(position)  # its closure may still wait here: the time to settle starts with that
        else:
            state.read_back.append((position, now_ms))
        return Effects()

    def tick(self, now_ms: int) -> Effects:
        effects = self._decide_all(now_ms)
        for state in self._partitions.values():
            while state.read_back and state.read_back[0][1] <= now_ms - SETTLE_MS:
                effects.done.append(state.read_back.popleft()[0])
        return effects

    def _decide_all(self, now_ms: int) -> Effects:
        effects = Effects()
        for state in self._partitions.values():
            effects += self._decide(state, now_ms)
        return effects

    def _decide(self, state: _Partition, now_ms: int) -> Effects:
        if state.catching_up or self._trainer_version < 0:
            return Effects()
        effects = Effects()
        waiting, state.waiting = state.waiting, []
        for position, group, since_ms in waiting:
            newest = max(group.member_versions, default=-1)
            if newest > self._trainer_version and 0 <= now_ms - since_ms < PATIENCE_MS:
                state.waiting.append((position, group, since_ms))
                continue
            with on_account_of([position]):
                effects += self._decided(state, position, group, now_ms)
        if state.waiting:
            return effects
        state.read_back.extend((position, now_ms) for position in state.read_early)
        state.read_early.clear()
        return effects

    def _decided(self, state: _Partition, position: Position, group: GroupClosed, now_ms: int) -> Effects:
        effects = Effects(done=[position])
        if group.group_id not in state.decided:
            effects.outputs.append(Output(GROUP_ADMISSION, self._decision(group, now_ms)))
            state.remember(group.group_id)
        return effects

    def _decision(self, group: GroupClosed, now_ms: int) -> GroupAdmission:
        halted = {version for version, decision in self._gate.items() if decision == "halted"}
        decision = decide(group, Standing(self._trainer_version, self._max_lag, halted), now_ms)
        self._counts[decision.reason or "admitted"] += 1
        if decision.reason == "poison":
            self._on_poison(group.group_id, contradicts_itself(group, self._trainer_version) or "")
        return decision
