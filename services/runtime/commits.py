"""When and what is committed: watermarks only, at most every so often, one request at a time, never blocking."""

from __future__ import annotations

from collections.abc import Mapping

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from services.runtime.clock import Clock
from services.runtime.consumer import as_commit
from services.runtime.crashes import CrashMemory
from services.runtime.logs import Log
from services.runtime.metrics import Metrics
from services.runtime.watermark import PartitionKey, Watermarks


class Committer:
    """Commits on the poll thread, which also runs the answers' callbacks inside `poll`."""

    def __init__(
        self,
        consumer: KafkaConsumer,
        watermarks: Watermarks,
        crashes: CrashMemory,
        *,
        every_s: float,
        clock: Clock,
        log: Log,
        metrics: Metrics,
    ) -> None:
        self._consumer = consumer
        self._watermarks = watermarks
        self._crashes = crashes
        self._every_s = every_s
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self._next = 0.0
        self._asked: dict[PartitionKey, int] | None = None
        self._dirty_since: float | None = None

    def maybe(self) -> None:
        """Ask for a commit when one is due and something new is finished."""
        now = self._clock.monotonic()
        if now < self._next or self._asked is not None:
            return
        offsets = self._watermarks.committable()
        self._dirty_since = (self._dirty_since or now) if offsets else None
        self._metrics.commit_age.set(now - self._dirty_since if self._dirty_since is not None else 0.0)
        if not offsets:
            return
        self._next = now + self._every_s
        self._asked = offsets
        self._consumer.commit_async(as_commit(offsets), callback=self._answered)

    def _answered(self, _: object, answer: object) -> None:
        asked, self._asked = self._asked, None
        if isinstance(answer, BaseException):
            self._log.warning("commit failed; it is tried again", error=repr(answer))
        elif asked is not None:
            self.note(asked)

    def now(self, timeout_s: float) -> None:
        """Commit what is finished and wait for the answer; a failure costs a few records handled again."""
        offsets = self._watermarks.committable()
        if not offsets:
            return
        try:
            self._consumer.commit(as_commit(offsets), timeout_ms=int(timeout_s * 1000))
            self.note(offsets)
        except KafkaError as e:
            self._log.warning("the last commit failed; a few finished records are handled again", error=repr(e))

    def note(self, offsets: Mapping[PartitionKey, int]) -> None:
        """The broker has stored these offsets."""
        self._watermarks.committed(dict(offsets))
        self._dirty_since = None
        for (topic, partition), offset in offsets.items():
            self._crashes.committed(topic, partition, offset)
