"""Dispatch's core: plans evaluation and training groups within credit, and knows when the run is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schemas.group import GroupAdmission
from schemas.policy import EvaluationResult, PolicyGate, TrainingUpdate
from schemas.rollout import RolloutRequested
from schemas.topics import ROLLOUT_REQUESTED
from services.dispatch import ending
from services.dispatch.cohorts import Cell, EvaluationPlan
from services.dispatch.credit import Credit
from services.dispatch.ending import ActiveTime, Patience, Reason
from services.dispatch.facts import MAY_COLLECT, Facts
from services.dispatch.requests import Planner
from services.dispatch.selection import Policy, Task, choose
from services.runtime.core import BaseCore, Effects, Message, Output

MARGIN_MS = 60_000
"""Beyond closure's deadline, before a group without a decision is called overdue."""
GATE_OVERDUE_MS = 120_000
Alarm = Callable[[str, Sequence[str]], None]


class DispatchCore(BaseCore):
    """Facts in, requests out; every input is replayed from its beginning at start, nothing is kept anywhere else.

    A run is: evaluate the first promoted version, train within credit, evaluate the last promoted version. `finished`
    then says why training ended, and nothing more is written. An alarm that stops the line ends a run at once: nothing
    is asked for or measured any more, since no verdict is believed.
    """

    def __init__(
        self,
        planner: Planner,
        tasks: Sequence[Task],
        plan: EvaluationPlan,
        credit: Credit,
        *,
        group_size: int,
        selection: Policy,
        evaluate_every: int = 0,
        wall_s: float = 0.0,
        closure_deadline_ms: int = 900_000,
        alarm: Alarm = lambda what, names: None,
    ) -> None:
        self._planner = planner
        self._tasks = tasks
        self._plan = plan
        self._credit = credit
        self._group_size = group_size
        self._selection = selection
        self._every = evaluate_every
        self._wall_s = wall_s
        self._overdue_ms = closure_deadline_ms + MARGIN_MS
        self._alarm = alarm
        self._alarmed: set[str] = set()
        self._facts = Facts()
        self._active = ActiveTime()
        self._held = Patience(ending.HELD_GRACE_MS)
        self._stopped = Patience(ending.ALARM_GRACE_MS)
        self._ungated = Patience(GATE_OVERDUE_MS)
        self._unmeasured = Patience(2 * self._overdue_ms)
        self._barren = 0
        self._caught_up = False
        self._over: Reason | None = None
        self.finished: Reason | None = None
        """Why training ended, once the final evaluation is in; None while the run goes on."""

    @property
    def facts(self) -> Facts:
        """What is known of the run, to read from."""
        return self._facts

    # --- records in --------------------------------------------------------------------------------------------------

    def handle(self, message: Message, now_ms: int) -> Effects:
        record = message.record
        if getattr(record, "run_id", None) != self._planner.run_id:
            return Effects()
        self._facts.observe(message, now_ms)
        if isinstance(record, TrainingUpdate):
            self._barren = 0
        if not self._caught_up:
            self._note_time(message)
            return Effects()
        if isinstance(record, GroupAdmission) and record.decision == "excluded":
            self._barren += 1
        # Our own requests come back: they change nothing, and asking after each would only cost time.
        return Effects() if isinstance(record, RolloutRequested) else self._advance(now_ms)

    def _note_time(self, message: Message) -> None:
        record = message.record
        evaluating = isinstance(record, RolloutRequested) and record.split == "eval"
        if not evaluating and not isinstance(record, PolicyGate | EvaluationResult):
            self._active.note(message.timestamp_ms)

    def caught_up(self, now_ms: int) -> Effects:
        if self._caught_up:
            return Effects()
        self._caught_up = True
        self._active.settle(now_ms)
        effects = Effects() if self._facts.alarm is not None else self._repair(now_ms)
        effects += self._advance(now_ms)
        return effects

    def tick(self, now_ms: int) -> Effects:
        if not self._caught_up or self.finished:
            return Effects()
        self._raise_alarms(now_ms)
        return self._advance(now_ms)

    # --- requests out ------------------------------------------------------------------------------------------------

    def _emit(self, requests: Sequence[RolloutRequested], now_ms: int) -> Effects:
        for record in requests:
            self._facts.requested(record, now_ms)
        return Effects(outputs=[Output(ROLLOUT_REQUESTED, record) for record in requests])

    def _repair(self, now_ms: int) -> Effects:
        """Exactly what a crash left out: members of begun groups, then groups of announced evaluations."""
        effects = Effects()
        for _, group in sorted(self._facts.planned.items()):
            lost = [self._planner.member(group.request, member, now_ms) for member in group.missing]
            effects += self._emit(lost, now_ms)
        effects += self._measure(self._facts.cohorts.missing(self._plan), now_ms)
        return effects

    def _measure(self, cells: Sequence[Cell], now_ms: int) -> Effects:
        effects = Effects()
        for cell in cells:
            sizes = self._facts.cohorts.sizes.get(cell.version, self._plan.sizes)
            number = self._facts.next_number
            requests = self._planner.evaluation(number, cell, sizes, self._plan.samples, now_ms)
            effects += self._emit(requests, now_ms)
        return effects

    def _train(self, promoted: int, now_ms: int) -> Effects:
        effects = Effects()
        facts = self._facts
        count = self._credit.free(promoted=promoted, trained_versions=facts.updates, open_groups=len(facts.open))
        busy = {group.request.task_id for group in facts.undecided.values()}
        tasks = self._usable
        for _ in range(count if tasks else 0):
            number = facts.next_number
            choice = choose(self._selection, self._planner.run_seed, number, tasks, facts.rates, busy, facts.offsets)
            busy.add(choice.task.task_id)
            requests = self._planner.training(number, choice, self._group_size, promoted, now_ms)
            effects += self._emit(requests, now_ms)
        return effects

    # --- the order of a run ------------------------------------------------------------------------------------------

    def _advance(self, now_ms: int) -> Effects:
        if self.finished:
            return Effects()
        if self._facts.alarm is not None:
            if not self._facts.undecided or self._stopped.holds(True, now_ms):
                self.finished = "alarm"
            return Effects()
        promoted = self._facts.promoted
        if promoted is None:
            if self._held.holds(bool(self._facts.gate), now_ms):
                self.finished = "held"
            return Effects()
        if self._plan.sizes and not self._facts.cohorts.sizes and not self._facts.training:
            return self._measure(self._plan.cells(promoted), now_ms)
        if not self._facts.training and not self._evaluated():
            return Effects()
        if self._facts.training or self._over is None:
            self._active.advance(now_ms)
        self._over = self._over or self._reason(promoted, now_ms)
        if self._over is not None:
            return self._conclude(promoted, now_ms)
        effects = self._measure_between(promoted, now_ms)
        if not self._stopping:
            effects += self._train(promoted, now_ms)
        return effects

    def _evaluated(self) -> bool:
        """Whether every evaluation that was asked for has its results."""
        cohorts = self._facts.cohorts
        return all(cohorts.complete(version) for version in cohorts.sizes)

    @property
    def _stopping(self) -> bool:
        """No new groups, though those under way are still waited for."""
        return (0 < self._wall_s <= self._active.seconds) or self._is_barren

    @property
    def _is_barren(self) -> bool:
        nothing_left = bool(self._tasks) and not self._usable
        return nothing_left or self._barren >= ending.BARREN_BATCHES * self._credit.batch_groups

    @property
    def _usable(self) -> list[Task]:
        """Training tasks whose check sets are believed."""
        return [task for task in self._tasks if task.task_id not in self._facts.quarantined]

    def _reason(self, promoted: int, now_ms: int) -> Reason | None:
        facts = self._facts
        drained = not facts.undecided and len(facts.queued) < self._credit.batch_groups
        newest_known = facts.updates == 0 or facts.updates in facts.gate
        if facts.updates >= self._credit.updates:
            return "updates"
        if drained and newest_known and self._stopping:
            return "barren" if self._is_barren else "wall"
        free = self._credit.free(promoted=promoted, trained_versions=facts.updates, open_groups=len(facts.open))
        blocked = drained and free == 0 and newest_known and facts.gate.get(facts.updates) not in MAY_COLLECT
        return "held" if self._held.holds(blocked, now_ms) else None

    def _measure_between(self, promoted: int, now_ms: int) -> Effects:
        """An evaluation on the way, once every so many versions; training goes on meanwhile."""
        last = max(self._facts.cohorts.sizes, default=0)
        if not self._every or promoted // self._every <= last // self._every:
            return Effects()
        return self._measure(self._plan.cells(promoted), now_ms)

    def _conclude(self, promoted: int, now_ms: int) -> Effects:
        """Measure the last promoted version, unless it was, and wait for every result."""
        updates = self._facts.updates
        if updates and updates not in self._facts.gate:
            return Effects()
        if self._plan.sizes and promoted not in self._facts.cohorts.sizes:
            return self._measure(self._plan.cells(promoted), now_ms)
        if self._evaluated():
            self.finished = self._over
        return Effects()

    # --- alarms ------------------------------------------------------------------------------------------------------

    def _raise_alarms(self, now_ms: int) -> None:
        """Name once what is overdue. Nothing is refunded for it: closure owes every group a record."""
        late = [
            group.request.group_id
            for group in self._facts.planned.values()
            if now_ms - group.seen_ms > self._overdue_ms and group.request.group_id not in self._alarmed
        ]
        if late:
            self._alarmed.update(late)
            self._alarm("groups without a decision", late)
        name = f"version {self._facts.updates}"
        if self._ungated.holds(self._facts.updates not in self._facts.gate, now_ms):
            self._raise_once("a version without a gate decision", name)
        waiting = [version for version in self._facts.cohorts.sizes if not self._facts.cohorts.complete(version)]
        if self._unmeasured.holds(bool(waiting), now_ms):
            self._raise_once("an evaluation without its results", f"version {waiting[0]}")

    def _raise_once(self, what: str, name: str) -> None:
        if what + name not in self._alarmed:
            self._alarmed.add(what + name)
            self._alarm(what, [name])
