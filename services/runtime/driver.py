"""Drives the core: decodes records, applies effects, dead-letters poison; the part of the loop without a consumer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError

from schemas import codec, ids
from schemas.record import Record
from schemas.topics import BY_NAME, dead_letter
from services.runtime import dlq
from services.runtime.clock import Clock, Deadline
from services.runtime.context import CoreLock
from services.runtime.core import SURROUNDINGS, Blamed, Core, Effects, Job, Message, Position, RawCore, RawMessage
from services.runtime.crashes import CrashMemory
from services.runtime.logs import Log
from services.runtime.metrics import Metrics
from services.runtime.producer import BrokenOutput, Encoded, Outbox
from services.runtime.segments import Raw
from services.runtime.watermark import Watermarks
from services.runtime.workers import Workers

_UNCERTAIN_S = 0.02
CRASH = "crash"


class FailStop(RuntimeError):
    """Going on would drop or reorder records: the service stops and a person must look."""


class CrashedOn(RuntimeError):
    """The core raised an unexpected exception on account of some records: a bug, or a record made to show one."""

    def __init__(self, positions: Sequence[Position], times: int) -> None:
        first = positions[0]
        more = f" and {len(positions) - 1} more of its group" if len(positions) > 1 else ""
        super().__init__(f"{first.topic}[{first.partition}]@{first.offset}{more}, crash {times} on this record")
        self.positions = tuple(positions)


def decode_message(record: ConsumerRecord) -> Message:
    """A consumed record as a Message. Raises codec.ContractViolation for everything that is not a legal record."""
    topic = BY_NAME[record.topic]
    key = _key(record.key)
    decoded: Record = codec.decode(topic.record, record.value, record.headers, topic.max_bytes)
    own = getattr(decoded, topic.key)
    if own != key:
        raise codec.ContractViolation("key", f"the key is {key!r}, the record says {topic.key}={own!r}")
    if (why := ids.contradiction(decoded)) is not None:
        raise codec.ContractViolation("id", why)
    return Message(
        position=Position(record.topic, record.partition, record.offset),
        timestamp_ms=record.timestamp,
        key=key,
        headers=dict(record.headers),
        record=decoded,
        size=len(record.value) + len(record.key),
    )


def _key(raw: bytes | None) -> str:
    if raw is None:
        raise codec.ContractViolation("key", "the message has no key")
    try:
        return raw.decode()
    except UnicodeDecodeError as e:
        raise codec.ContractViolation("key", f"the key is no UTF-8: {e}") from e


class Driver:
    """Owns the core's lock. Every method may be called from any thread; failures go to `fail` or are raised."""

    def __init__(
        self,
        *,
        service: str,
        raw: bool,
        outbox: Outbox,
        watermarks: Watermarks,
        crashes: CrashMemory,
        limit: dlq.DeadLetterLimit,
        clock: Clock,
        log: Log,
        metrics: Metrics,
        stop: threading.Event,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._service = service
        self._raw = raw
        self._outbox = outbox
        self._watermarks = watermarks
        self._crashes = crashes
        self._limit = limit
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self._stop = stop
        self._fail = fail
        self._lock = CoreLock()
        self._closed = False
        self.core: Core | RawCore
        self.workers: Workers
        self.certain: Callable[[], bool] = lambda: True
        """Whether this process certainly owns what its core believes; set once there is a group."""

    def handle(self, record: ConsumerRecord, *, tracked: bool) -> None:
        """Give one record to the core. `tracked` records belong to the group and enter the watermark.

        Raises FailStop, CrashedOn for a bug that shows on this record (an unexpected exception of the core, an output
        that breaks its contract), and as they are what a down dependency or a full machine raises.
        """
        position = Position(record.topic, record.partition, record.offset)
        if tracked and not self._watermarks.deliver(position, record.key):
            return
        self._metrics.consumed(record.topic)
        if not self._raw and self._crashes.quarantined(position):
            self._poison(record, position, CRASH, "the service crashed on account of this record", tracked)
            return
        try:
            with self._counted([position]):
                self._give(record, position)
        except codec.ContractViolation as e:
            self._poison(record, position, e.reason, str(e), tracked)
        else:
            self._limit.good()
            self._crashes.in_a_row = 0
        self._lock.yield_if_wanted()

    @contextlib.contextmanager
    def _counted(self, at_hand: Sequence[Position] = ()) -> Iterator[None]:
        """Around every call of the core: an unexpected exception is counted against the records that the core names,
        those of the group whose output could not be written, or the one `at_hand`."""
        try:
            yield
        except (codec.ContractViolation, FailStop, KafkaError, *SURROUNDINGS):
            raise  # never this record's fault: it is not counted against the record
        except Exception as e:
            blamed: Sequence[Position] = at_hand
            if isinstance(e, Blamed):
                blamed = e.positions
            elif isinstance(e, BrokenOutput):
                blamed = self._watermarks.unfinished_of(e.key) or at_hand
            if not blamed:
                raise
            cause = (e.__cause__ or e) if isinstance(e, Blamed) else e
            crash = CrashedOn(blamed, self._crashes.crashed(blamed, cause))
            if (why := self._limit.crashes(self._crashes.in_a_row)) is not None:
                raise FailStop(f"stopped instead of dead-lettering a flood: {why}; the last one: {crash}") from cause
            raise crash from cause

    def _give(self, record: ConsumerRecord, position: Position) -> None:
        if self._raw:
            raw = Raw(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
            given = RawMessage(position, raw, fresh=self._watermarks.begins_at(position))
            with self._lock:
                self._apply(cast(RawCore, self.core).handle_raw(given, self._clock.now_ms()))
            return
        message = decode_message(record)
        with self._lock:
            self._apply(cast(Core, self.core).handle(message, self._clock.now_ms()))

    def _poison(self, record: ConsumerRecord, position: Position, reason: str, error: str, tracked: bool) -> None:
        self._metrics.invalid(reason)
        target = dead_letter(BY_NAME[record.topic])
        where = f"{position.topic}[{position.partition}]@{position.offset}"
        if target is None:
            raise FailStop(
                f"bad record on the ordered control topic {where}: {error}; it was not skipped, since what follows "
                f"depends on it. Inspect it with `rollstream tap {position.topic} --full`."
            )
        if not tracked:
            # The group that owns this topic dead-letters it; a reader of copies would only add a second letter.
            self._log.error("bad record skipped by a reader that does not own it", where=where, error=error)
            return
        # A record that stopped the service once is rare enough: the limit is against a flood.
        if reason != CRASH and (why := self._limit.bad()) is not None:
            raise FailStop(f"stopped instead of dead-lettering a flood: {why}; the last one is {where}: {error}")
        self._log.error("dead letter", where=where, to=target, reason=reason, error=error)
        headers = dlq.headers(
            record.headers, position, record.timestamp, reason=reason, error=error, service=self._service
        )
        done = self._watermarks.resolve([position])
        letter = dlq.fitting(Encoded(target, record.key, record.value, headers))
        self._outbox.send([letter], lambda: self._watermarks.finish(done))

    def _apply(self, effects: Effects) -> None:
        """Under the lock: outputs keep the order in which the core made them."""
        if effects.outputs:
            encoded = self._outbox.encode(effects.outputs)
            done = self._watermarks.resolve(effects.done)
            self._outbox.send(encoded, lambda: self._watermarks.finish(done))
        elif effects.done:
            self._watermarks.finish_now(effects.done)
        if effects.jobs:
            self.workers.submit(effects.jobs)

    def _when_certain(self, make: Callable[[], Effects], wanted: Callable[[], bool] = lambda: True) -> bool:
        """Run `make` and apply its effects as soon as ownership is certain; False when the service ends before that, or
        when it is no longer wanted then."""
        while True:
            with self._lock:
                if self._closed or not wanted():
                    return False
                if self.certain():
                    with self._counted():
                        self._apply(make())
                    return True
            if self._stop.wait(_UNCERTAIN_S):
                return False

    def hold(self, beat: Callable[[], None]) -> None:
        """Wait until ownership is certain, or the service ends; `beat` is called all the while."""
        while not self.certain() and not self._stop.wait(_UNCERTAIN_S):
            beat()

    def job_done(self, job: Job, epoch: int, result: Any) -> None:
        """On a worker's thread: turn a job's result into effects, unless its partition was lost meanwhile."""
        try:
            if not self._when_certain(lambda: job.then(result), lambda: self.workers.current(job, epoch)):
                self._metrics.discarded()
        except Exception as e:
            self._fail(e)

    def emit(self, make: Callable[[], Effects]) -> bool:
        """See ServiceContext.emit."""
        while not self._outbox.wait_for_room(0.5):
            if self._stop.is_set():
                return False
        try:
            return self._when_certain(make)
        except Exception as e:
            self._fail(e)
            return False

    def tick(self) -> None:
        with self._lock, self._counted():
            self._apply(self.core.tick(self._clock.now_ms()))

    def caught_up(self) -> None:
        with self._lock, self._counted():
            self._apply(self.core.caught_up(self._clock.now_ms()))

    def rewound(self, topic: str, partition: int, at: int, start: int) -> None:
        """The log begins at `start`, and reading was to go on at `at`: told before the first record after the jump."""
        with self._lock, self._counted():
            if start > at:
                self._apply(self.core.lost(topic, partition, at, start))
            self._watermarks.open([(topic, partition)])

    def drain(self, deadline: Deadline) -> None:
        """Let the core have its last words, and wait for the jobs that they are."""
        with self._lock, self._counted():
            effects = self.core.drain(self._clock.now_ms())
            self._apply(effects)
        if effects.jobs:
            self.workers.settle(deadline)

    def revoked(self, numbers: Iterable[int]) -> None:
        with self._lock:
            self.core.revoked(frozenset(numbers))

    def assigned(self, numbers: Iterable[int]) -> None:
        with self._lock:
            self.core.assigned(frozenset(numbers))

    def close(self) -> None:
        """From here on nothing enters the outbox."""
        with self._lock:
            self._closed = True
