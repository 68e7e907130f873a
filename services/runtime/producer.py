"""The outbox: encodes and sends outputs, and reports a set of inputs finished when all its outputs are acknowledged."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kafka import KafkaProducer
from kafka.errors import KafkaError

from schemas import codec
from schemas.access import group_of
from schemas.topics import Topic
from services.runtime.clock import Clock
from services.runtime.cluster import connection
from services.runtime.core import Output
from services.runtime.metrics import Metrics
from services.runtime.settings import RunSettings

_FOREVER_MS = 2**31 - 1
"""Delivery timeout: a broker that is down is waited for (backpressure), it does not fail the records."""


_CORK_RECORDS = 64


_ENVELOPE_BYTES = 64 * 1024
"""What key, headers and the batch around a record may take of its topic's largest message."""


class BrokenOutput(RuntimeError):
    """The core made an output that breaks the contract. `key`: of the record, which its causes have too."""

    def __init__(self, what: str, key: bytes) -> None:
        super().__init__(what)
        self.key = key


def make_producer(
    settings: RunSettings, service: str, answer_ms: int = 30_000, idempotent: bool = True
) -> KafkaProducer:
    """A producer of one service, idempotent unless it may write nowhere (a cluster refuses such a one its id); topics
    are never created by sending to them.

    Raises KafkaError when no broker answers within `answer_ms`.
    """
    compression = settings.kafka.compression
    return KafkaProducer(
        **connection(settings.kafka, service),
        client_id=group_of(settings.run_id, service),
        enable_idempotence=idempotent,
        acks="all",
        compression_type=None if compression == "none" else compression,
        linger_ms=settings.runtime.linger_ms,
        batch_size=64 * 1024,
        max_request_size=codec.MAX_BYTES + 1024 * 1024,
        delivery_timeout_ms=_FOREVER_MS,
        max_block_ms=5_000,
        bootstrap_timeout_ms=answer_ms,
        allow_auto_create_topics=False,
        reconnect_backoff_max_ms=1_000,
        metrics_enabled=False,
    )


class Encoded(NamedTuple):
    """A record as it goes to the producer."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]

    @property
    def size(self) -> int:
        return len(self.value or b"") + len(self.key or b"")


class _Receipt:
    """Counts the acknowledgements that one set of outputs still waits for."""

    __slots__ = ("acknowledged", "era", "left")

    def __init__(self, left: int, era: int, acknowledged: Callable[[], None]) -> None:
        self.left = left
        self.era = era
        self.acknowledged = acknowledged


class Outbox:
    """Sends on any thread; acknowledgements arrive on the producer's. Bounded by the loop, which watches `full`."""

    def __init__(
        self,
        producer: KafkaProducer,
        clock: Clock,
        metrics: Metrics,
        *,
        service: str,
        max_records: int,
        max_bytes: int,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._producer = producer
        self._clock = clock
        self._metrics = metrics
        self._extra = {"ce_source": service}
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._failed = failed
        self._condition = threading.Condition()
        self._records = 0
        self._bytes = 0
        self._era = 0
        self._of_era: Counter[int] = Counter()
        self._progress = clock.monotonic()
        self._order = threading.Lock()
        self._waiting: list[tuple[Encoded, _Receipt]] = []
        self._corked = 0

    def encode(self, outputs: Sequence[Output]) -> list[Encoded]:
        """All outputs as they go out. Raises BrokenOutput when one of them breaks its contract."""
        return [self._encode(output) for output in outputs]

    def _encode(self, output: Output) -> Encoded:
        topic: Topic = output.topic
        record = output.record
        key = str(getattr(record, topic.key, "")).encode(errors="replace")
        if type(record) is not topic.record:
            raise BrokenOutput(f"{type(record).__name__} does not belong on {topic.name}", key)
        try:
            value = codec.encode(record, topic.max_bytes - _ENVELOPE_BYTES)
        except codec.ContractViolation as e:
            raise BrokenOutput(f"an output for {topic.name} breaks the contract: {e}", key) from e
        return Encoded(topic.name, key, value, codec.headers(record, self._extra))

    def send(self, encoded: Sequence[Encoded], acknowledged: Callable[[], None]) -> None:
        """Send all; `acknowledged` runs once the broker has every one of them."""
        with self._condition:
            receipt = _Receipt(len(encoded), self._era, acknowledged)
            self._of_era[self._era] += len(encoded)
            if self._records == 0:
                self._progress = self._clock.monotonic()
            self._records += len(encoded)
            self._bytes += sum(item.size for item in encoded)
        with self._order:
            self._waiting += [(item, receipt) for item in encoded]
            if self._corked != threading.get_ident() or len(self._waiting) >= _CORK_RECORDS:
                self._hand_over()

    def cork(self) -> None:
        """On the poll thread, while it works off a backlog: give the producer records by the dozen.

        One by one, each would become a batch of its own, and the two threads would spend their time waking each other.
        Whoever else sends meanwhile takes along what waits, so the order is kept.
        """
        self._corked = threading.get_ident()

    def uncork(self) -> None:
        """Hand over what waits and go back to sending at once."""
        self._corked = 0
        with self._order:
            self._hand_over()

    def _hand_over(self) -> None:
        """With `_order` held: the producer gets records in the order in which the core made them."""
        waiting, self._waiting = self._waiting, []
        for item, receipt in waiting:
            future = self._producer.send(item.topic, value=item.value, key=item.key, headers=item.headers)
            future.add_callback(self._acknowledged, item.size, receipt)
            future.add_errback(self._failed)
            self._metrics.produced(item.topic)

    def _acknowledged(self, size: int, receipt: _Receipt, _: Any) -> None:
        with self._condition:
            self._records -= 1
            self._bytes -= size
            self._progress = self._clock.monotonic()
            receipt.left -= 1
            last = receipt.left == 0
            self._of_era[receipt.era] -= 1
            self._condition.notify_all()
        if last:
            receipt.acknowledged()

    @property
    def full(self) -> bool:
        with self._condition:
            return self._records >= self._max_records or self._bytes >= self._max_bytes

    @property
    def outstanding(self) -> int:
        with self._condition:
            return self._records

    def stuck_s(self) -> float:
        """Seconds since the broker last acknowledged something while records are outstanding; 0 when none is."""
        with self._condition:
            return self._clock.monotonic() - self._progress if self._records else 0.0

    def mark(self) -> Callable[[], bool]:
        """Ask what this returns, at any time, whether all that was sent before now is acknowledged."""
        with self._condition:
            era, self._era = self._era, self._era + 1
            self._of_era = +self._of_era  # eras that are over leave nothing behind

        def settled() -> bool:
            with self._condition:
                return not any(count for sent_in, count in self._of_era.items() if sent_in <= era)

        return settled

    def wait_for_room(self, timeout_s: float) -> bool:
        """Wait until outputs are below the bound; False when it took longer."""
        with self._condition:
            return self._condition.wait_for(
                lambda: self._records < self._max_records and self._bytes < self._max_bytes, timeout_s
            )

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything sent is acknowledged; False when it took longer."""
        with self._condition:
            return self._condition.wait_for(lambda: self._records == 0, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Close the producer; what is not acknowledged by then was never reported finished."""
        try:
            self._producer.close(timeout=timeout_s)
        except KafkaError:
            return  # the timeout of its own flush: the inputs stay unfinished and are read again
