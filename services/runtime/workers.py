"""Bounded worker threads for slow work, full by count or by bytes, with results of lost partitions discarded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from services.runtime.clock import Deadline
from services.runtime.core import Job


class Workers:
    """Runs jobs on `count` daemon threads. `done(job, epoch, result)` is called on the worker's own thread.

    The queue accepts everything, because effects must not block; `full` tells the poll thread to hold its intake.
    """

    def __init__(
        self,
        count: int,
        done: Callable[[Job, int, Any], None],
        *,
        max_jobs: int,
        max_bytes: int,
        discarded: Callable[[], None] = lambda: None,
    ) -> None:
        self._done = done
        self._discarded = discarded
        self._max_jobs = max_jobs
        self._max_bytes = max_bytes
        self._condition = threading.Condition()
        self._queue: deque[tuple[Job, int]] = deque()
        self._epochs: dict[int, int] = {}
        self._running = 0
        self._bytes = 0
        self._held = False
        self._closed = False
        self.room = threading.Event()
        self._threads = [threading.Thread(target=self._work, name=f"worker-{n}", daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue jobs; dropped silently once closed, when their inputs stay unfinished and are read again."""
        with self._condition:
            if self._closed:
                return
            for job in jobs:
                if not self._threads:
                    raise RuntimeError("the core returned a job, but its ServiceSpec has workers=0")
                self._queue.append((job, self._epoch(job)))
                self._bytes += job.cost_bytes
            self._condition.notify_all()

    def _epoch(self, job: Job) -> int:
        return 0 if job.partition is None else self._epochs.get(job.partition, 0)

    def current(self, job: Job, epoch: int) -> bool:
        """Whether the partition that a job works for is still owned as it was when the job was queued."""
        return self._epoch(job) == epoch

    def revoke(self, partitions: Iterable[int]) -> None:
        """Partitions are lost: queued jobs of theirs never start, results of running ones are discarded."""
        with self._condition:
            for number in partitions:
                self._epochs[number] = self._epochs.get(number, 0) + 1
            kept = deque(item for item in self._queue if self.current(*item))
            for job, _ in self._queue:
                self._bytes -= job.cost_bytes
            for job, _ in kept:
                self._bytes += job.cost_bytes
            for _ in range(len(self._queue) - len(kept)):
                self._discarded()
            self._queue = kept
        self.room.set()

    def hold(self) -> None:
        """Start no queued job until `release` (a rebalance is on its way)."""
        with self._condition:
            self._held = True

    def release(self) -> None:
        with self._condition:
            self._held = False
            self._condition.notify_all()

    @property
    def full(self) -> bool:
        """By count or by bytes."""
        with self._condition:
            return len(self._queue) + self._running >= self._max_jobs or self._bytes >= self._max_bytes

    @property
    def running(self) -> int:
        with self._condition:
            return self._running

    @property
    def load(self) -> tuple[int, int]:
        """Jobs queued or running, and their bytes."""
        with self._condition:
            return len(self._queue) + self._running, self._bytes

    def _take(self) -> tuple[Job, int] | None:
        with self._condition:
            while not self._closed and (self._held or not self._queue):
                self._condition.wait()
            if self._closed:
                return None
            self._running += 1
            return self._queue.popleft()

    def _work(self) -> None:
        while (item := self._take()) is not None:
            job, epoch = item
            try:
                result: Any
                try:
                    result = job.run()
                except Exception as e:  # handed on: every started job ends in effects
                    result = e
                self._done(job, epoch, result)
            finally:
                with self._condition:
                    self._running -= 1
                    self._bytes -= job.cost_bytes
                    self._condition.notify_all()
                self.room.set()

    def settle(self, deadline: Deadline) -> None:
        """Wait until every job, queued or running, has ended."""
        with self._condition:
            while (self._queue or self._running) and not deadline.passed:
                self._condition.wait(min(0.2, deadline.left(0.01)))

    def drain(self, deadline: Deadline) -> bool:
        """Stop intake first, then wait for the running jobs; True when all ended in time."""
        with self._condition:
            self._closed = True
            for job, _ in self._queue:
                self._bytes -= job.cost_bytes
            self._queue.clear()
            self._condition.notify_all()
            while self._running and not deadline.passed:
                self._condition.wait(min(0.2, deadline.left(0.01)))
            return self._running == 0
