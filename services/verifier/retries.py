"""Courses of check runs on worker threads: one that met an infrastructure fault rests, and the tick wakes it.

What no counter tells apart, our own known answer does: where a check run broke the check set itself, or the memory of
everything around its jail, the reference is asked the same questions next. Where that goes well (after memory faults:
every time), the candidate was the cause, and has failed: nobody gets out of a fail by breaking what judges it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from services.patch.admission import Admitted
from services.runtime.core import Effects, Job
from services.runtime.settings import Verifier
from services.tasks.fixture import CheckSet
from services.verifier.attribution import Facts, attribute
from services.verifier.candidate import Unjudgeable
from services.verifier.judge import Course, Judgement, pause_s

CheckRunner = Callable[[Admitted, CheckSet, int], Facts]
"""One check run: candidate, check set, seed -> facts."""
_SHARED_MEMORY = frozenset({"memory_killer", "host_oom"})
"""Infrastructure faults that a candidate could bring about by itself."""


class Provoked(Exception):
    """A check run raised for the candidate, and not for the reference on the same questions."""


@dataclass(frozen=True, eq=False)
class Task:
    """A course with what it judges. `then` gets every judgement, `pending` ones too; `wanted`: whether somebody still
    waits for it. `beside` is done once on the worker's thread before the first check run."""

    course: Course
    admitted: Admitted
    check: CheckSet
    then: Callable[[Judgement], Effects]
    wanted: Callable[[], bool] = lambda: True
    beside: Callable[[], object] = lambda: None
    provoked: list[int] = field(default_factory=list)
    """Seeds of the check runs that met a fault which the reference did not meet."""


class Courses:
    """Runs courses through jobs. No thread waits while one rests; all is forgotten at a restart, when the completions
    without a final verdict are read again."""

    def __init__(self, settings: Verifier, check_runner: CheckRunner, now_ms: Callable[[], int]) -> None:
        self._backoff_s = settings.retry_backoff_s
        self._check_runner = check_runner
        self._now_ms = now_ms
        self._resting: list[tuple[float, int, Task]] = []
        self._count = itertools.count()

    @property
    def resting(self) -> int:
        """How many courses rest."""
        return len(self._resting)

    def start(self, task: Task) -> Effects:
        """Go on with a course on a worker. No partition: others may wait for the same candidate as well."""

        def run() -> Judgement:
            task.beside()
            return task.course.go_on(lambda seed: self._check_run(task, seed), self._now_ms)

        return Effects(jobs=[Job(run, lambda result: self._came(task, result))])

    def _check_run(self, task: Task, seed: int) -> Facts:
        try:
            facts = self._check_runner(task.admitted, task.check, seed)
        except Unjudgeable:
            raise
        except Exception as error:
            if self._reference_is_fine(task.check, seed):
                raise Provoked(type(error).__name__) from error
            raise
        if attribute(facts)[1] in _SHARED_MEMORY and self._reference_is_fine(task.check, seed):
            task.provoked.append(seed)
        return facts

    def _reference_is_fine(self, check: CheckSet, seed: int) -> bool:
        if not check.reference:
            return False
        try:
            facts = self._check_runner(Admitted(dict(check.reference), ()), check, seed)
        except Exception:  # then it is the check set's fault or the host's
            return False
        return attribute(facts)[0] == "pass"

    def _came(self, task: Task, result: Judgement | Exception) -> Effects:
        if isinstance(result, Unjudgeable):
            result = Judgement("unknown", result.cause, task.course.runs)
        elif isinstance(result, Provoked):
            result = Judgement("fail", f"provoked_{result}", task.course.runs)
        elif isinstance(result, Exception):
            # The check set or the controller failed: not the candidate's doing, and no number of tries would mend it.
            result = Judgement("unknown", f"check_fault_{type(result).__name__}", task.course.runs)
        if result.verdict == "unknown" and 0 < task.course.faults == len(task.provoked):
            result = Judgement("fail", f"provoked_{result.cause}", task.course.runs)
        if result.verdict == "pending":
            due = self._now_ms() + 1000 * pause_s(self._backoff_s, task.course.faults)
            heapq.heappush(self._resting, (due, next(self._count), task))
        return task.then(result)

    def tick(self, now_ms: int) -> Effects:
        """Wake what has rested for long enough; let go of what nobody waits for."""
        effects = Effects()
        while self._resting and self._resting[0][0] <= now_ms:
            task = heapq.heappop(self._resting)[2]
            if task.wanted():
                effects += self.start(task)
        return effects
