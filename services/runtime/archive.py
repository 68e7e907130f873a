"""A run's records as they lie on the topics, copied into an object store and put back at the same offsets.

Offsets matter: checkpoint manifests and consumer groups say how far they have read. So the copy keeps every record's
offset, and putting back makes the same ones: what a log no longer holds at its beginning is filled up and deleted
again, and a number that compaction removed is filled by a copy of the record after it, since repeats are harmless.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from schemas import codec
from services.runtime.cluster import Cluster, check_trust, connection, login_doubt, said
from services.runtime.errors import UserError
from services.runtime.segments import Raw, pack
from services.runtime.store import ObjectStore

SEGMENT_BYTES = 8 * 1024 * 1024
SILENT_MS = 30_000
HOUR_MS = 3600 * 1000
MAX_FILLED = 20_000_000
"""Offsets of one partition that are filled up because no record is kept for them: an hour's work, not for ever."""


@dataclass(frozen=True)
class Span:
    """What one partition's log holds: offsets first..end (end not included)."""

    first: int
    end: int


def spans(cluster: Cluster, names: Sequence[str], service: str = "recorder") -> dict[tuple[str, int], Span]:
    """The present span of every partition of the topics that exist, asked for in the given order of topics, with the
    login of `service`, which reads them all.

    Asked effects first and causes last, no effect is in a span whose cause is not. Raises UserError.
    """
    consumer = _consumer(cluster, service)
    found: dict[tuple[str, int], Span] = {}
    try:
        present = consumer.topics()
        for name in names:
            if name not in present:
                continue
            partitions = [TopicPartition(name, n) for n in sorted(consumer.partitions_for_topic(name) or ())]
            ends = consumer.end_offsets(partitions, timeout_ms=SILENT_MS)
            firsts = consumer.beginning_offsets(partitions, timeout_ms=SILENT_MS)
            found |= {(p.topic, p.partition): Span(firsts[p], ends[p]) for p in partitions}
    except KafkaError as e:
        raise UserError(f"the broker does not answer: {e}", said(cluster), "see the broker's log") from e
    finally:
        consumer.close(timeout_ms=1000)
    return found


def read_raw(cluster: Cluster, topic: str, partition: int, span: Span) -> Iterator[Raw]:
    """The records of a span in order. Raises UserError when the broker withholds them."""
    consumer = _consumer(cluster)
    place = TopicPartition(topic, partition)
    try:
        consumer.assign([place])
        consumer.seek(place, span.first)
        while consumer.position(place) < span.end:
            batches = consumer.poll(timeout_ms=SILENT_MS)
            if not batches and consumer.position(place) < span.end:
                raise UserError(f"{topic}[{partition}] gives no records", said(cluster), "see the broker's log")
            for record in batches.get(place, ()):
                if record.offset >= span.end:
                    return
                yield Raw(record.offset, record.timestamp, record.key, record.value, tuple(record.headers or ()))
    except KafkaError as e:
        raise UserError(f"the broker does not answer: {e}", said(cluster), "see the broker's log") from e
    finally:
        consumer.close(timeout_ms=1000)


def _consumer(cluster: Cluster, service: str = "recorder") -> KafkaConsumer:
    check_trust(cluster, service)
    try:
        return KafkaConsumer(
            **connection(cluster, service),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            max_partition_fetch_bytes=8 * 1024 * 1024,
            bootstrap_timeout_ms=15_000,
            metrics_enabled=False,
        )
    except KafkaError as e:
        doubt = login_doubt(cluster, service)
        raise UserError(f"no broker answers{doubt}: {e}", said(cluster), "start it, or correct the address") from e


def store_partition(
    store: ObjectStore, records: Iterator[Raw], done: Callable[[int], None] = lambda count: None
) -> list[dict[str, Any]]:
    """Copy records into content-addressed segments; their keys with first and last offset and count, in order."""
    segments: list[dict[str, Any]] = []
    held: list[Raw] = []
    size = 0

    def flush() -> None:
        key = store.put_content(pack(held))
        segments.append({"key": key, "first": held[0].offset, "last": held[-1].offset, "count": len(held)})
        done(len(held))

    for record in records:
        held.append(record)
        size += record.size
        if size >= SEGMENT_BYTES:
            flush()
            held, size = [], 0
    if held:
        flush()
    return segments


class Restorer:
    """Puts records back. A context manager; every record is acknowledged when it ends without an error."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        options = connection(cluster, "operator")
        try:
            self._producer = KafkaProducer(
                **options, enable_idempotence=True, acks="all", compression_type="zstd", linger_ms=20,
                max_request_size=codec.MAX_BYTES + 1024 * 1024, allow_auto_create_topics=False, metrics_enabled=False,
                bootstrap_timeout_ms=15_000,
            )  # fmt: skip
            self._admin = KafkaAdminClient(**options, bootstrap_timeout_ms=15_000)
        except KafkaError as e:
            raise UserError(f"no broker answers: {e}", said(cluster), "start it, or correct the address") from e
        self._failures: list[BaseException] = []
        self._retention: dict[str, int] = {}
        self._ages: dict[str, int] = {}

    def partition(self, topic: str, number: int, span: Span, records: Iterator[Raw], before: Raw | None = None) -> int:
        """Fill one empty partition so that every record has its old offset; returns how many were written.

        With `before`, the record before the span, the partition is not empty: it ends at `span.first` and goes on
        there. Numbers that no record has are filled by a repeat of a neighbour. Raises codec.ContractViolation for a
        record outside of the span, or below one before it.
        """
        blank = Raw(-1, 0, None, b"", ())  # stands only where it is deleted again
        last = before or blank
        at = span.first if before else 0
        written = 0
        for record in records:
            if not at <= record.offset < span.end or record.offset < span.first:
                raise codec.ContractViolation("segment", f"{topic}[{number}]: a record at {record.offset}, not {span}")
            self._keep(topic, record.timestamp_ms)
            while at < record.offset:
                self._send(topic, number, record if at >= span.first else blank)
                at += 1
            self._send(topic, number, record)
            last = record
            at += 1
            written += 1
        while at < span.end:
            self._send(topic, number, last)
            at += 1
        self.settle()
        gone = span.end if written == 0 else span.first
        if gone and before is None:
            self._admin.delete_records({TopicPartition(topic, number): gone}, timeout_ms=SILENT_MS)
        return written

    def _keep(self, topic: str, timestamp_ms: int) -> None:
        """Raise the topic's retention by the age of a record, which keeps its own time.

        Else what is put back after its time would be gone again within minutes. Raises UserError.
        """
        age_ms = time.time_ns() // 1_000_000 - timestamp_ms
        if timestamp_ms <= 0 or age_ms <= self._ages.get(topic, HOUR_MS):
            return
        # An hour more, so that records after it which are a little older need no change of their own.
        self._ages[topic] = age_ms + HOUR_MS
        try:
            if topic not in self._retention:
                asked = ConfigResource(ConfigResourceType.TOPIC, topic)
                found = self._admin.describe_configs([asked], config_filter="all")["topic"][topic]
                deletes = "delete" in found["cleanup.policy"]["value"]
                self._retention[topic] = int(found["retention.ms"]["value"]) if deletes else -1
            if self._retention[topic] < 0:
                return
            longer = {"retention.ms": str(self._retention[topic] + self._ages[topic])}
            answer = self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, longer)])
        except KafkaError as e:
            raise UserError(f"the broker does not answer: {e}", said(self._cluster), "see the broker's log") from e
        if (refusal := answer["topic"][topic]) != "OK":
            raise UserError(f"{topic} cannot keep its old records: {refusal}", said(self._cluster), "see its log")

    def _send(self, topic: str, number: int, record: Raw) -> None:
        future = self._producer.send(
            topic, value=record.value if record.key is not None else record.value or b"", key=record.key,
            partition=number,
            headers=[(name, value or b"") for name, value in record.headers],  # null values cannot be sent
            timestamp_ms=record.timestamp_ms or None,
        )  # fmt: skip
        future.add_errback(self._failures.append)

    def settle(self) -> None:
        """Wait for every acknowledgement. Raises UserError when one was refused."""
        self._producer.flush(timeout=120)
        if self._failures:
            raise UserError(f"the broker refused a record: {self._failures[0]}", said(self._cluster), "see its log")

    def group(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Set what a consumer group has committed."""
        wanted = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        self._admin.alter_group_offsets(name, wanted)

    def __enter__(self) -> Restorer:
        return self

    def __exit__(self, *exc: object) -> None:
        self._producer.close(timeout=10)
        self._admin.close()


def committed(cluster: Cluster, groups: Sequence[str]) -> dict[str, dict[tuple[str, int], int]]:
    """What the groups that exist have committed. Raises UserError when the cluster does not say within `SILENT_MS`."""
    admin = KafkaAdminClient(**connection(cluster, "operator"), bootstrap_timeout_ms=15_000)
    deadline = time.monotonic() + SILENT_MS / 1000
    try:
        found: dict[str, dict[tuple[str, int], int]] = {}
        for group in groups:
            offsets = _patiently(partial(admin.list_group_offsets, {group: None}), deadline).get(group, {})
            found[group] = {(p.topic, p.partition): o.offset for p, o in offsets.items() if o.offset >= 0}
        return {group: offsets for group, offsets in found.items() if offsets}
    except KafkaError as e:
        raise UserError(f"the broker does not answer: {e}", said(cluster), "see the broker's log") from e
    finally:
        admin.close()


def _patiently(ask: Callable[[], Any], deadline: float) -> Any:
    """A new cluster's coordinator is made when it is first asked for, and until then answers that it is not there."""
    while True:
        try:
            return ask()
        except KafkaError as e:
            if not e.retriable or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def members(cluster: Cluster, groups: Sequence[str]) -> set[str]:
    """Those of the groups that have members now. Raises UserError."""
    admin = KafkaAdminClient(**connection(cluster, "operator"), bootstrap_timeout_ms=15_000)
    try:
        found = _patiently(lambda: admin.describe_groups(list(groups)), time.monotonic() + SILENT_MS / 1000)
        return {name for name, group in found.items() if group.get("members")}
    except KafkaError as e:
        raise UserError(f"the broker does not answer: {e}", said(cluster), "see the broker's log") from e
    finally:
        admin.close()
