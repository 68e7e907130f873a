"""Reads topics without a group: nothing is committed and no service notices; for tap, audit, replay and tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError

from schemas import codec
from schemas.topics import Topic
from services.runtime.cluster import Cluster, check_trust, connection, login_doubt, said
from services.runtime.consumer import partitions_of
from services.runtime.core import Message, Position
from services.runtime.driver import decode_message
from services.runtime.errors import UserError
from services.runtime.lifecycle import reachable

Start = Literal["earliest", "latest"]


@dataclass(frozen=True)
class Undecodable:
    """A record that breaks the contract, as it lies in the log. Time is Unix milliseconds."""

    position: Position
    timestamp_ms: int
    key: bytes | None
    headers: Sequence[tuple[str, bytes]]
    value: bytes | None
    reason: str
    error: str


PATIENT_BYTES = 1024 * 1024
"""Bytes that a patient reader waits for, half a second at most."""


class Tap:
    """Reads topics from a start to their current end, or on and on. Use as a context manager.

    `offsets` ((topic, partition) -> offset) overrides `start` for single partitions. `patient` lets up to half a second
    of records come together, for a reader that watches a busy stack without taking its CPU. Every wait is bounded by
    `timeout_s`. Raises UserError when no broker answers or a topic does not exist.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[Topic],
        *,
        start: Start = "earliest",
        offsets: Mapping[tuple[str, int], int] | None = None,
        timeout_s: float = 30.0,
        patient: bool = False,
    ) -> None:
        self._timeout_s = timeout_s
        self._consumer = _connect(cluster, timeout_s, PATIENT_BYTES if patient else 1)
        self._ends: dict[TopicPartition, int] = {}
        try:
            self._assign(topics, start, offsets or {}, said(cluster))
        except BaseException:
            self.close()
            raise

    def _assign(
        self, topics: Sequence[Topic], start: Start, offsets: Mapping[tuple[str, int], int], where: str
    ) -> None:
        wanted = []
        for topic in topics:
            numbers = partitions_of(self._consumer, topic.name, self._timeout_s)
            if numbers is None:
                raise UserError(f"the broker did not describe {topic.name} in time", where, "see the broker's log")
            if not numbers:
                raise UserError(f"there is no topic {topic.name}", where, "start a run there first")
            wanted += [TopicPartition(topic.name, n) for n in sorted(numbers)]
        self._consumer.assign(wanted)
        try:
            self._ends = self._consumer.end_offsets(wanted, timeout_ms=self._timeout_s * 1000)
        except KafkaError as e:
            raise UserError(f"the broker does not answer: {e}", where, "see the broker's log") from e
        for tp in wanted:
            at = offsets.get((tp.topic, tp.partition))
            if at is not None:
                self._consumer.seek(tp, at)
            elif start == "latest":
                self._consumer.seek(tp, self._ends[tp])
            else:
                self._consumer.seek_to_beginning(tp)

    def to_end(self) -> Iterator[Message | Undecodable]:
        """Everything up to the ends as they were at the start. Raises UserError when nothing moves for `timeout_s`."""
        left = {tp for tp, end in self._ends.items() if end > 0}
        moved = time.monotonic()
        while True:
            left = {tp for tp in left if not self._reached(tp)}
            if not left:
                return
            batches = self._consumer.poll(timeout_ms=200)
            for tp, records in batches.items():
                moved = time.monotonic()
                yield from (_decode(r) for r in records if r.offset < self._ends[tp])
            if time.monotonic() - moved > self._timeout_s:
                names = ", ".join(sorted(f"{tp.topic}[{tp.partition}]" for tp in left))
                raise UserError(f"no record came for {self._timeout_s:g} s from {names}", None, "see the broker's log")

    def _reached(self, tp: TopicPartition) -> bool:
        # Positions, not the last record: compaction may have removed it.
        at = self._consumer.position(tp, timeout_ms=self._timeout_s * 1000)
        return at is not None and at >= self._ends[tp]

    def follow(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Message | Undecodable | None]:
        """Records as they come; None about twice a second when there is none, so that a caller can do other things."""
        while not stop():
            batches = self._consumer.poll(timeout_ms=500)
            for records in batches.values():
                yield from map(_decode, records)
            if not batches:
                yield None

    def close(self) -> None:
        self._consumer.close(timeout_ms=1000)

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_all(
    cluster: Cluster,
    topic: Topic,
    *,
    timeout_s: float = 30.0,
    undecodable: Callable[[Undecodable], None] | None = None,
) -> Iterator[Message]:
    """Every legal record of one topic up to its current end, partition by partition in order.

    A record that breaks the contract goes to `undecodable`; without it, it raises codec.ContractViolation.
    """
    with Tap(cluster, [topic], timeout_s=timeout_s) as tap:
        for message in tap.to_end():
            if isinstance(message, Message):
                yield message
            elif undecodable is not None:
                undecodable(message)
            else:
                p = message.position
                raise codec.ContractViolation(message.reason, f"{p.topic}[{p.partition}]@{p.offset}: {message.error}")


def _connect(cluster: Cluster, timeout_s: float, min_bytes: int) -> KafkaConsumer:
    error: Exception | None = None
    if reachable(said(cluster), min(timeout_s, 5.0)):
        check_trust(cluster)
        try:
            return KafkaConsumer(
                **connection(cluster),
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
                max_partition_fetch_bytes=4 * 1024 * 1024,
                fetch_min_bytes=min_bytes,
                fetch_max_wait_ms=500,
                bootstrap_timeout_ms=int(timeout_s * 1000),
                metrics_enabled=False,
            )
        except KafkaError as e:
            error = e
    doubt = login_doubt(cluster) if error else ""
    raise UserError(f"no broker answers{doubt}", said(cluster), "start the run, or correct the settings") from error


def _decode(record: ConsumerRecord) -> Message | Undecodable:
    try:
        return decode_message(record)
    except codec.ContractViolation as e:
        return Undecodable(
            Position(record.topic, record.partition, record.offset),
            record.timestamp, record.key, record.headers, record.value, e.reason, str(e),
        )  # fmt: skip
