"""The verifier's core as it lives in its process, without a bus: worker threads, a tick, real jails."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from schemas.verification import VerificationVerdict
from services.runtime.core import Effects, Job
from services.runtime.jail.backend import Backend
from services.runtime.settings import Verifier
from services.tasks.fixture import CheckSet, Fixture
from services.tasks.taskset import TaskSet
from services.verifier import main
from services.verifier.core import VerifierCore
from tests.services.jails import Deliver, completed


class Catalogue:
    """The task source of the core, over the catalogue."""

    def __init__(self, tasks: TaskSet) -> None:
        self._tasks = tasks

    def fixture(self, task_id: str) -> Fixture:
        return self._tasks.get(task_id)

    def check(self, task_id: str) -> CheckSet:
        return self._tasks.checks.get(task_id)


class Live:
    """The verifier's core with its worker threads and its tick, on real jails, without a bus around it."""

    def __init__(self, host: Backend, tasks: TaskSet, workers: int = 2, **changes: object) -> None:
        settings = Verifier(**{"reuse": False, "canary_share": 0.1, "retry_backoff_s": 0.01, **changes})
        self.core = VerifierCore(
            settings, Catalogue(tasks), main.check_runner(host, settings), str, "v", lambda: int(time.time() * 1000)
        )
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(workers)
        self._jobs: list[Job] = []
        self._running = 0
        self.deliver = Deliver(self.core, "rollout.completed.v1")

    def give(self, fixture: Fixture, member: int, diff: str) -> None:
        with self._lock:
            self._apply(self.core.handle(self.deliver.message(completed(fixture, member, diff=diff)), 0))

    def _apply(self, effects: Effects) -> None:
        self.deliver.apply(Effects(effects.outputs, effects.done), run=False)
        for job in effects.jobs:
            self._running += 1
            self._pool.submit(self._work, job)

    def _work(self, job: Job) -> None:
        try:
            result = job.run()
        except Exception as error:
            result = error
        with self._lock:
            self._running -= 1
            self._apply(job.then(result))

    def settle(self) -> Counter[str]:
        """Tick until nothing runs or rests; verdicts by word."""
        while True:
            with self._lock:
                self._apply(self.core.tick(int(time.time() * 1000)))
                if not self._running and not self.core.resting:
                    break
            time.sleep(0.01)
        self._pool.shutdown()
        return Counter(one.verdict for one in self.deliver.outputs if isinstance(one, VerificationVerdict))


def references(tasks: TaskSet, count: int) -> Iterator[tuple[Fixture, str]]:
    """Honest repairs of one task per problem, over and over."""
    from services.patch.render import render

    chosen = list({fixture.problem: fixture for fixture in tasks.split("train")}.values())
    for number in range(count):
        fixture = chosen[number % len(chosen)]
        yield fixture, render(fixture.base_tree, dict(tasks.checks.get(fixture.task_id).reference))
