"""The consumers: a group member with a rebalance listener, or plain assignment; offsets are never reset silently."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata

from schemas.access import group_of
from services.runtime.cluster import connection
from services.runtime.errors import UserError
from services.runtime.logs import Log
from services.runtime.metrics import Metrics
from services.runtime.settings import RunSettings

LONG_POLL_MS = 1000
"""How long the broker holds an empty fetch: an idle consumer costs one request a second."""


def make_consumer(settings: RunSettings, service: str, group: str | None, fetch_bytes: int = 1) -> KafkaConsumer:
    """A consumer of one service with manual commits. Where to start without an offset is `Source`'s decision."""
    return KafkaConsumer(
        **connection(settings.kafka, service),
        client_id=group_of(settings.run_id, service),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="none",
        allow_auto_create_topics=False,
        bootstrap_timeout_ms=10_000,
        reconnect_backoff_max_ms=1_000,
        # Range gives one member the same partition numbers of every topic with the same count: co-partitioning.
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=settings.kafka.session_timeout_ms,
        heartbeat_interval_ms=max(300, settings.kafka.session_timeout_ms // 4),
        fetch_min_bytes=fetch_bytes,
        fetch_max_wait_ms=LONG_POLL_MS,
        max_partition_fetch_bytes=4 * 1024 * 1024,
        fetch_max_bytes=32 * 1024 * 1024,
        metrics_enabled=False,
    )


def partitions_of(consumer: KafkaConsumer, topic: str, timeout_s: float) -> set[int] | None:
    """Partition numbers of a topic, empty when there is no such topic; None when the broker did not say in time.

    The client waits for metadata without a deadline of its own; a daemon thread gives it ours.
    """
    found: list[set[int]] = []
    thread = threading.Thread(target=lambda: found.append(consumer.partitions_for_topic(topic)), daemon=True)
    thread.start()
    thread.join(timeout_s)
    return found[0] if found else None


class Source:
    """One consumer and what it is owed: pauses, the ends to catch up with, named losses."""

    def __init__(
        self,
        consumer: KafkaConsumer,
        log: Log,
        metrics: Metrics,
        *,
        strict: bool = False,
        rewound: Callable[[TopicPartition, int, int], None] = lambda tp, at, start: None,
    ) -> None:
        """`strict`: an offset outside the log ends the service; otherwise `rewound` hears of the jump from where to
        where."""
        self.consumer = consumer
        self._rewound = rewound
        self._log = log
        self._metrics = metrics
        self._strict = strict
        self._ends: dict[TopicPartition, int] = {}
        self._unknown_ends: set[TopicPartition] = set()
        self._progress: dict[TopicPartition, tuple[int, float]] = {}

    def start_at(self, partitions: Iterable[TopicPartition], offsets: Mapping[tuple[str, int], int]) -> None:
        """Assign partitions by hand: from the given offsets, from the beginning where there is none."""
        wanted = list(partitions)
        self.consumer.assign(wanted)
        for tp in wanted:
            at = offsets.get((tp.topic, tp.partition))
            if at is None:
                self.consumer.seek_to_beginning(tp)
            else:
                self.consumer.seek(tp, at)
        self.catch_up_with(wanted)

    def poll(self, timeout_ms: int, max_records: int = 500) -> list[ConsumerRecord]:
        """Records in delivery order. Raises KafkaError for what waiting will not mend."""
        try:
            batches = self.consumer.poll(timeout_ms=timeout_ms, max_records=max_records)
        except NoOffsetForPartitionError as e:
            self.consumer.seek_to_beginning(*e.args[0])
            return []
        except OffsetOutOfRangeError as e:
            self._out_of_range(e)
            return []
        except KafkaError as e:
            if not e.retriable:
                raise
            self._log.warning("the broker did not answer a poll; trying again", error=repr(e))
            return []
        return [record for records in batches.values() for record in records]

    def _out_of_range(self, error: OffsetOutOfRangeError) -> None:
        """A committed offset that the log no longer (or not yet) has: said aloud, counted, then the log's beginning.

        A log that ends before it was damaged: what it lost is named, since `rollstream repair` can put it back.
        """
        offsets: Mapping[TopicPartition, int] = error.args[0]
        starts = self.consumer.beginning_offsets(list(offsets), timeout_ms=10_000)
        ends = self.consumer.end_offsets(list(offsets), timeout_ms=10_000)
        for tp, at in offsets.items():
            lost = max(starts[tp] - at, at - ends[tp], 0)
            where = f"{tp.topic}[{tp.partition}]"
            if self._strict:
                raise UserError(
                    f"this service's own state says offset {at}, outside of the log ({starts[tp]}..{ends[tp]})",
                    where,
                    "stop the run and put back what is missing with `rollstream repair`, or restore a backup",
                )
            self._metrics.expired(tp.topic, lost)
            if at > ends[tp]:
                missing = f"{ends[tp]}..{at - 1}"
                self._log.error(
                    "the log ends before what was read", where=where, missing=missing, do="rollstream repair"
                )
            self._log.error("offset outside the log; reading from its beginning", where=where, at=at, lost=lost)
            self._rewound(tp, at, starts[tp])
            self.consumer.seek_to_beginning(tp)

    def pause_only(self, wanted: set[TopicPartition]) -> None:
        """Make the paused partitions exactly these of the assigned; derived anew each time, since a rebalance
        silently resumes everything."""
        assigned = self.consumer.assignment()
        paused = self.consumer.paused()
        if to_pause := (wanted & assigned) - paused:
            self.consumer.pause(*to_pause)
        if to_resume := (paused & assigned) - wanted:
            self.consumer.resume(*to_resume)

    def catch_up_with(self, partitions: Iterable[TopicPartition]) -> None:
        """What stands in these partitions now must be handled before `caught_up`."""
        self._unknown_ends.update(partitions)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._unknown_ends.discard(tp)
            self._ends.pop(tp, None)
            self._progress.pop(tp, None)

    @property
    def caught_up(self) -> bool:
        """Whether every record up to the ends seen at assignment was returned by `poll`.

        Compares positions, not the last record's offset: markers and compaction leave numbers without records.
        """
        if self._unknown_ends:
            try:
                ends = self.consumer.end_offsets(list(self._unknown_ends), timeout_ms=5_000)
            except KafkaError as e:
                self._log.warning("the ends of the inputs are not known yet; trying again", error=repr(e))
                return False
            self._unknown_ends.clear()
            self._ends.update(ends)
            self._log.info(
                "reading to the ends", ends={f"{tp.topic}[{tp.partition}]": end for tp, end in sorted(ends.items())}
            )
        for tp, end in list(self._ends.items()):
            if end == 0 or (self._position(tp) or 0) >= end:
                del self._ends[tp]
        return not self._ends

    def _position(self, tp: TopicPartition) -> int | None:
        try:
            position: int | None = self.consumer.position(tp, timeout_ms=1_000)
        except KafkaError:
            return None  # no offset yet: the next poll decides where to start
        return position

    def stalled(self, now: float, after_s: float = 60.0) -> list[str]:
        """Partitions with unread records whose position has not moved for `after_s` though they are not paused."""
        out = []
        paused = self.consumer.paused()
        for tp in self.consumer.assignment() - paused:
            high = self.consumer.highwater(tp)
            state: Any = self._progress.get(tp)
            at = self._position(tp)
            if high is None or at is None or at >= high or state is None or state[0] != at:
                self._progress[tp] = (at if at is not None else -1, now)
            elif now - state[1] >= after_s:
                out.append(f"{tp.topic}[{tp.partition}]")
        return out

    def close(self, timeout_s: float = 2.0) -> None:
        """Leave the group. A failure is only said: leaving is a courtesy, the session expires by itself."""
        try:
            self.consumer.close(timeout_ms=timeout_s * 1000)
        except Exception as e:
            self._log.warning("leaving the group failed", error=repr(e))


def as_commit(offsets: Mapping[tuple[str, int], int]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Watermarks in the client's form; they already are next offsets, nothing is added."""
    return {TopicPartition(*key): OffsetAndMetadata(offset, "", -1) for key, offset in offsets.items()}
