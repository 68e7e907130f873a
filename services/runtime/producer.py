"""The outbox: encodes and sends outputs, and reports a set of inputs finished when all its outputs are acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from schemas import codec
from schemas.topics import Topic
from services.runtime.clock import Clock
from services.runtime.core import Output
from services.runtime.metrics import Metrics
from services.runtime.settings import RunSettings

_FOREVER_MS = 2**31 - 1
"""Delivery timeout: a broker that is down is waited for (backpressure), it does not fail the records."""


class BrokenOutput(RuntimeError):
    """The core made an output that breaks the contract: a bug of the service, never of its input."""


def make_producer(settings: RunSettings, name: str) -> KafkaProducer:
    """An idempotent producer; topics are never created by sending to them."""
    compression = settings.kafka.compression
    return KafkaProducer(
        bootstrap_servers=settings.kafka.bootstrap.split(","),
        client_id=name,
        enable_idempotence=True,
        acks="all",
        compression_type=None if compression == "none" else compression,
        linger_ms=settings.runtime.linger_ms,
        batch_size=64 * 1024,
        max_request_size=codec.MAX_BYTES + 1024 * 1024,
        delivery_timeout_ms=_FOREVER_MS,
        max_block_ms=10_000,
        allow_auto_create_topics=False,
        metrics_enabled=False,
    )


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
        self._progress = clock.monotonic()

    def send(self, outputs: Sequence[Output], acknowledged: Callable[[], None]) -> None:
        """Encode all outputs, then send all; `acknowledged` runs once the broker has every one of them.

        Raises BrokenOutput before anything was sent when one of them breaks its contract.
        """
        self._send([self._encode(output) for output in outputs], acknowledged)

    def _encode(self, output: Output) -> tuple[str, bytes, bytes, list[tuple[str, bytes]]]:
        topic: Topic = output.topic
        record = output.record
        if type(record) is not topic.record:
            raise BrokenOutput(f"{type(record).__name__} does not belong on {topic.name} ({topic.record.__name__})")
        try:
            value = codec.encode(record, topic.max_bytes)
        except codec.ContractViolation as e:
            raise BrokenOutput(f"an output for {topic.name} breaks the contract: {e}") from e
        return topic.name, getattr(record, topic.key).encode(), value, codec.headers(record, self._extra)

    def send_raw(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes]],
        acknowledged: Callable[[], None],
    ) -> None:
        """Send bytes as they are (dead letters)."""
        self._send([(topic, key, value, headers)], acknowledged)

    def _send(
        self,
        encoded: Sequence[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes]]]],
        acknowledged: Callable[[], None],
    ) -> None:
        left = len(encoded)
        sizes = [len(value or b"") + len(key or b"") for _, key, value, _ in encoded]
        with self._condition:
            if self._records == 0:
                self._progress = self._clock.monotonic()
            self._records += left
            self._bytes += sum(sizes)

        def acked(size: int) -> Callable[[Any], None]:
            def on_ack(_: Any) -> None:
                nonlocal left
                with self._condition:
                    self._records -= 1
                    self._bytes -= size
                    self._progress = self._clock.monotonic()
                    left -= 1
                    last = left == 0
                    self._condition.notify_all()
                if last:
                    acknowledged()

            return on_ack

        for (topic, key, value, headers), size in zip(encoded, sizes, strict=True):
            future = self._producer.send(topic, value=value, key=key, headers=headers)
            future.add_callback(acked(size))
            future.add_errback(self._failed)
            self._metrics.produced(topic)

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
