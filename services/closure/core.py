"""Closure's core: holds a group's records until its cohort is resolved, then closes it exactly once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from schemas.codec import ContractViolation
from schemas.group import GroupClosed
from schemas.rollout import RolloutRequested
from schemas.topics import GROUP_CLOSED
from schemas.verification import VerificationVerdict
from services.closure.cohort import Cohort, Rewards, Rule, close, contradictions, group_number
from services.closure.memory import ClosedGroups
from services.runtime.core import BaseCore, Effects, Message, Output, Position, finished, on_account_of


class _Partition:
    """What is known of one partition number of the co-partitioned topics."""

    def __init__(self) -> None:
        self.catching_up = True
        self.open: dict[str, Cohort] = {}
        self.unplanned: dict[str, Cohort] = {}  # those of `open` whose request has not come
        self.closed = ClosedGroups()
        self.newest_planned = -1


class ClosureCore(BaseCore):
    """Requests and verdicts in, one closure per group out.

    A request or verdict is finished only together with its group's closure, so an open group is read again after a
    crash: no state of its own. While catching up nothing is closed, since the closure may stand further on in the log.
    Relies on dispatch asking for each member once and in order of group number within a partition.
    """

    def __init__(
        self,
        run_id: str,
        rule: Rule,
        deadline_ms: int,
        rewards: Rewards = Rewards(),  # noqa: B008  # frozen
        on_contradiction: Callable[[str, str], None] = lambda trial, why: None,
    ) -> None:
        self._run_id = run_id
        self._rule = rule
        self._rewards = rewards
        self._on_contradiction = on_contradiction
        self._deadline_ms = deadline_ms
        self._partitions: dict[int, _Partition] = {}
        self._counts: dict[str, int] = defaultdict(int)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often: closed, deadline (of the closed), orphans (verdicts whose request never came), late, contradicted
        (verdicts)."""
        return dict(self._counts)

    @property
    def open_groups(self) -> int:
        return sum(len(state.open) for state in self._partitions.values())

    def assigned(self, partitions: frozenset[int]) -> None:
        for number in partitions:
            self._partitions[number] = _Partition()

    def revoked(self, partitions: frozenset[int]) -> None:
        for number in partitions:
            self._partitions.pop(number, None)

    def caught_up(self, now_ms: int) -> Effects:
        effects = Effects()
        for state in self._partitions.values():
            if state.catching_up:
                state.catching_up = False
                for cohort in [cohort for cohort in state.open.values() if cohort.complete]:
                    effects += self._close(state, cohort, now_ms)
        return effects

    def handle(self, message: Message, now_ms: int) -> Effects:
        record = message.record
        state = self._partitions.setdefault(message.partition, _Partition())
        if not isinstance(record, RolloutRequested | VerificationVerdict | GroupClosed):
            raise ContractViolation("topic", f"closure does not read {type(record).__name__}")
        if record.run_id != self._run_id:
            return finished(message)
        if isinstance(record, GroupClosed):
            return self._read_back(state, record.group_id, message.position, now_ms)
        if record.group_id in state.closed:
            self._counts["late"] += 1
            state.closed.late(record.group_id, message.position)
            return finished(message)
        if isinstance(record, RolloutRequested):
            return self._planned(state, record, message.position, now_ms)
        return self._judged(state, record, message.position, now_ms)

    def _read_back(self, state: _Partition, group_id: str, position: Position, now_ms: int) -> Effects:
        state.closed.closed(group_id, position, now_ms)
        cohort = state.open.pop(group_id, None)
        state.unplanned.pop(group_id, None)
        if cohort is None:
            return Effects()
        for held in cohort.positions:
            state.closed.late(group_id, held)
        state.closed.drop(cohort.positions)
        return Effects(done=cohort.positions)

    def _planned(self, state: _Partition, record: RolloutRequested, position: Position, now_ms: int) -> Effects:
        number = group_number(record)
        cohort = state.open.get(record.group_id) or Cohort(record.group_id, number, now_ms)
        cohort.plan(record, position)
        state.unplanned.pop(record.group_id, None)
        effects = self._keep(state, cohort, position, now_ms)
        if number > state.newest_planned:
            state.newest_planned = number
            effects += self._drop_orphans(state, number)
        return effects

    def _judged(self, state: _Partition, record: VerificationVerdict, position: Position, now_ms: int) -> Effects:
        if record.verdict == "pending":
            return Effects(done=[position])
        number = group_number(record)
        cohort = state.open.get(record.group_id) or Cohort(record.group_id, number, now_ms)
        cohort.judge(record, position)
        if cohort.request is None:
            state.unplanned[record.group_id] = cohort
        return self._keep(state, cohort, position, now_ms)

    def _keep(self, state: _Partition, cohort: Cohort, position: Position, now_ms: int) -> Effects:
        state.open[cohort.group_id] = cohort
        state.closed.hold(position)
        if cohort.complete and not state.catching_up:
            return self._close(state, cohort, now_ms)
        return Effects()

    def _close(self, state: _Partition, cohort: Cohort, now_ms: int) -> Effects:
        del state.open[cohort.group_id]
        state.closed.closing(cohort.group_id, cohort.positions)
        self._counts["closed"] += 1
        with on_account_of(cohort.judged or cohort.positions):
            contradicted = contradictions(cohort, self._rewards)
            closure = close(cohort, self._rule, now_ms, contradicted)
        for trial, why in contradicted.items():
            self._counts["contradicted"] += 1
            self._on_contradiction(trial, why)
        return Effects(outputs=[Output(GROUP_CLOSED, closure)], done=cohort.positions)

    def _drop_orphans(self, state: _Partition, number: int) -> Effects:
        """Finish verdicts whose request lies behind us: requests come in order of group number within a partition, so a
        verdict of a lower group without a plan belongs to a group that was closed and committed before we started."""
        effects = Effects()
        for cohort in [cohort for cohort in state.unplanned.values() if cohort.number < number]:
            effects += self._drop(state, cohort)
        return effects

    def _drop(self, state: _Partition, cohort: Cohort) -> Effects:
        self._counts["orphans"] += len(cohort.verdicts)
        del state.open[cohort.group_id], state.unplanned[cohort.group_id]
        state.closed.drop(cohort.positions)
        return Effects(done=cohort.positions)

    def tick(self, now_ms: int) -> Effects:
        """Close what is overdue. A deadline counts from when this process first saw the group: the time in which the
        whole stack was stopped is not held against it."""
        effects = Effects()
        for state in self._partitions.values():
            if state.catching_up:
                continue
            for cohort in [c for c in state.open.values() if now_ms - c.first_seen_ms >= self._deadline_ms]:
                if cohort.request is None:
                    effects += self._drop(state, cohort)
                else:
                    self._counts["deadline"] += 1
                    effects += self._close(state, cohort, now_ms)
            effects.done += state.closed.release(now_ms)
        return effects
