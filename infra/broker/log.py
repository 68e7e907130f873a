"""One partition: an ordered list of segments behind append, read, search by time, retention and recovery."""

from __future__ import annotations

import json
import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from crc32c import crc32c

from infra.broker import aside
from infra.broker import batch as batches
from infra.broker.batch import Header
from infra.broker.configs import TopicConfig
from infra.broker.errors import Code, Rejected
from infra.broker.files import replace_atomically
from infra.broker.producers import Producers
from infra.broker.segment import Segment

logger = logging.getLogger(__name__)

_NO_TIMESTAMP = -1
PRODUCER_EXPIRY_MS = 24 * 3600 * 1000  # producer.id.expiration.ms of Apache Kafka


class Appended(NamedTuple):
    """Where a batch landed; `append_time_ms` is -1 under CreateTime; `duplicate` when it was in the log already."""

    base_offset: int
    append_time_ms: int
    duplicate: bool


class Waiter(Protocol):
    """Somebody who wants to know that a log grew."""

    def grew(self, count: int) -> None: ...


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class PartitionLog:
    """Durable log of one partition. All methods run on the event loop's thread and never wait on the network."""

    def __init__(
        self,
        directory: Path,
        config: TopicConfig,
        epoch: int,
        clock_ms: Callable[[], int] = wall_ms,
        verify: bool = False,
    ) -> None:
        """`verify`: check every batch of every segment, and take a hole between two of them for damage."""
        self.directory = directory
        self.config = config
        self.epoch = epoch
        self.producers = Producers()
        self.segments: list[Segment] = []
        self.epochs: list[tuple[int, int]] = []
        self.waiters: set[Waiter] = set()
        self.unsynced: set[Segment] = set()
        self.log_start = 0
        self.clean_end = 0  # compaction has seen everything below this offset
        self._removed = False
        self._clock_ms = clock_ms
        self._verify = verify
        directory.mkdir(parents=True, exist_ok=True)
        self._recover()

    @property
    def log_end(self) -> int:
        """The offset the next record gets; also the high watermark (there is one replica)."""
        return self.segments[-1].next_offset

    @property
    def size(self) -> int:
        """Bytes in the segment files."""
        return sum(segment.size for segment in self.segments)

    def mark_removed(self) -> None:
        """The topic was deleted: background work that comes back to this log leaves it alone."""
        self._removed = True
        self.unsynced.clear()

    def is_removed(self) -> bool:
        return self._removed

    # -- append and read -----------------------------------------------------------------------------------------

    def append(self, batch: memoryview) -> Appended:
        """Check and write one produced batch; on return it is with the operating system.

        Raises Rejected (bad batch, sequence gap, ...) or OSError (full or failing disk; the log is unchanged).
        """
        header = batches.check_produced(batch, self.config.max_message_bytes)
        if header.producer_id >= 0:
            known = self.producers.check(header)
            if known is not None:
                return Appended(known, -1, True)
        if self.config.compact:
            _require_keys(batch, header)
        now = self._clock_ms()
        if not self.config.append_time:
            self._require_time(header, now)
        active = self.segments[-1]
        if active.size and (
            active.size + header.size > self.config.segment_bytes or now - active.opened_ms > self.config.segment_ms
        ):
            active = self.roll()
        base = active.next_offset
        batches.assign(batch, base, self.epoch)
        if self.config.append_time:
            batches.stamp_append_time(batch, now)
        if not active.size:
            active.opened_ms = now
        active.append(batch, batches.parse(batch))
        self.unsynced.add(active)
        if header.producer_id >= 0:
            self.producers.record(header, base, now)
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            self.epochs.append((self.epoch, base))
        if self.waiters:
            for waiter in tuple(self.waiters):
                waiter.grew(header.size)
        return Appended(base, now if self.config.append_time else -1, False)

    def _require_time(self, header: Header, now: int) -> None:
        """A producer's clock may differ from ours by what the topic allows (by default an hour ahead)."""
        if header.max_timestamp == _NO_TIMESTAMP:
            return
        ahead = header.max_timestamp - now
        if ahead > self.config.after_max_ms or now - header.first_timestamp > self.config.before_max_ms:
            raise Rejected(
                Code.INVALID_TIMESTAMP,
                f"timestamp {header.max_timestamp} is {ahead} ms from this clock: outside message.timestamp.*.max.ms",
            )

    def read(self, offset: int, max_bytes: int, at_least_one: bool) -> bytes:
        """Whole batches from the one that holds `offset` on, within `max_bytes` (or one batch when asked).

        Raises Rejected(OFFSET_OUT_OF_RANGE) outside [log_start, log_end]; b"" at the end. Reads one segment at most.
        """
        if offset < self.log_start or offset > self.log_end:
            raise Rejected(Code.OFFSET_OUT_OF_RANGE, f"offset {offset} outside {self.log_start}..{self.log_end}")
        for segment in self.segments[self._index_of(offset) :]:
            position = segment.locate(offset)
            if position < segment.size:
                end = segment.end_of(position, max_bytes, at_least_one)
                return segment.read(position, end) if end > position else b""
        return b""

    def _index_of(self, offset: int) -> int:
        if offset >= self.segments[-1].base:
            return len(self.segments) - 1
        return max(0, bisect_right(self.segments, offset, key=lambda segment: segment.base) - 1)

    def offset_for_time(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at or after `timestamp` (ms); None when there is none."""
        for segment in self.segments:
            if segment.max_timestamp < timestamp:
                continue
            position = segment.time_position(timestamp)
            while position < segment.size:
                end = segment.end_of(position, 1 << 20, True)
                data = segment.read(position, end)
                for at, header in batches.walk(data):
                    if header.max_timestamp >= timestamp and header.last_offset >= self.log_start:
                        found = self._first_at(data[at : at + header.size], header, timestamp)
                        if found:
                            return found
                position = end
        return None

    def _first_at(self, batch: bytes, header: Header, timestamp: int) -> tuple[int, int] | None:
        try:
            for record in batches.records(batch, header):
                if record.timestamp >= timestamp and record.offset >= self.log_start:
                    return record.timestamp, record.offset
        except Exception:  # the codecs raise their own kinds; an unreadable batch is answered by its header
            return header.max_timestamp, max(header.base_offset, self.log_start)
        return None

    def end_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(leader epoch, end offset) of an epoch, by Kafka's LeaderEpochFileCache.endOffsetFor; (-1, -1) unknown."""
        if epoch < 0 or epoch > self.epoch:
            return -1, -1
        if epoch == self.epoch:
            return epoch, self.log_end
        before = [known for known, _ in self.epochs if known <= epoch]
        after = [start for known, start in self.epochs if known > epoch]
        return (before[-1] if before else epoch), (after[0] if after else self.log_end)

    # -- segments ------------------------------------------------------------------------------------------------

    def roll(self) -> Segment:
        """Close the active segment and start the next; raises OSError and changes nothing when the disk is full."""
        segment = Segment(self.directory, self.log_end)
        segment.fd()
        self.segments.append(segment)
        self.producers.expire(self._clock_ms() - PRODUCER_EXPIRY_MS)
        body = json.dumps(self.producers.snapshot()).encode()
        try:
            replace_atomically(self._snapshot_path(segment.base), b"%08x" % crc32c(body) + body, sync=False)
            for path in sorted(self.directory.glob("*.producers"))[:-2]:
                path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("no producer snapshot for %s: %s; recovery will read older segments", self.directory, error)
        return segment

    def retain(self, now: int) -> int:
        """Apply retention by age and size; returns how many segments went."""
        if not self.config.delete:
            return 0
        dropped = 0
        while self.segments[0].size and self._expired(now):
            if len(self.segments) == 1:
                self.roll()
            self._drop_first()
            dropped += 1
        return dropped

    def _expired(self, now: int) -> bool:
        first, config = self.segments[0], self.config
        if config.retention_ms >= 0 and first.max_timestamp < now - config.retention_ms:
            return True
        return (
            config.retention_bytes >= 0 and len(self.segments) > 1 and self.size - first.size >= config.retention_bytes
        )

    def _drop_first(self) -> None:
        first = self.segments.pop(0)
        self.unsynced.discard(first)
        first.remove()
        self.log_start = max(self.log_start, self.segments[0].base)

    def delete_before(self, offset: int) -> int:
        """Make records below `offset` unreadable (-1 = all); returns the new log start. Raises Rejected, OSError."""
        target = self.log_end if offset == -1 else offset
        if target < 0 or target > self.log_end:
            raise Rejected(Code.OFFSET_OUT_OF_RANGE, f"offset {offset} outside 0..{self.log_end}")
        if target > self.log_start:
            replace_atomically(self.directory / "start", str(target).encode())
            self.log_start = target
            while len(self.segments) > 1 and self.segments[1].base <= target:
                self._drop_first()
        return self.log_start

    def close(self) -> None:
        """Release every file descriptor."""
        for segment in self.segments:
            segment.release()

    # -- recovery ------------------------------------------------------------------------------------------------

    def _snapshot_path(self, base: int) -> Path:
        return self.directory / f"{base:020d}.producers"

    def _load_snapshot(self, newest_base: int) -> int:
        """Restore the newest usable producer snapshot; returns the offset from which batches must be replayed."""
        for path in sorted(self.directory.glob("*.producers"), reverse=True):
            try:
                base, raw = int(path.stem), path.read_bytes()
                if base <= newest_base and int(raw[:8], 16) == crc32c(raw[8:]):
                    self.producers = Producers.restore(json.loads(raw[8:]))
                    return base
            except (ValueError, TypeError, OSError):
                logger.warning("ignoring damaged producer snapshot %s", path)
        return -1

    def _recover(self) -> None:
        for leftover in (*self.directory.glob("*.new"), *self.directory.glob("*.cleaned")):
            leftover.unlink()
        start_file = self.directory / "start"
        stored_start = int(start_file.read_text()) if start_file.exists() else 0
        bases = sorted(int(path.stem) for path in self.directory.glob("*.log")) or [stored_start]
        replay_from = self._load_snapshot(bases[-1])
        for base in bases:
            segment = Segment(self.directory, base)
            if self.segments and base < self.segments[-1].next_offset:
                segment.remove()  # a compaction merged it into the one before and was killed before removing it
                continue
            if self._contiguous and self.segments and base > self.segments[-1].next_offset:
                logger.warning("%s misses what lay before %d", self.directory, base)
                return self._recover_without(self.segments[-1].base, bases)
            cut = self._recover_segment(segment, replay_from, last=base == bases[-1])
            segment.release()
            self.segments.append(segment)
            if cut:
                logger.warning("cut %d torn bytes off %s", cut, segment.path)
                if base != bases[-1]:
                    return self._recover_without(base, bases)
        for segment in self.segments:
            for epoch, start in segment.epochs:
                if not self.epochs or epoch > self.epochs[-1][0]:
                    self.epochs.append((epoch, start))
        self.log_start = max(stored_start, self.segments[0].base)
        if self.log_start > self.log_end:  # the records went with a power cut, the start offset was synced
            self.log_start = self.log_end
        return None

    @property
    def _contiguous(self) -> bool:
        return self._verify and not self.config.compact

    def _recover_segment(self, segment: Segment, replay_from: int, last: bool) -> int:
        replay = segment.base >= replay_from
        if not last and not replay and not self._verify and segment.load_index():
            return 0
        now = self._clock_ms()

        def on_batch(header: Header) -> None:
            if replay and header.producer_id >= 0:
                self.producers.record(header, header.base_offset, now)

        return segment.scan(on_batch, self._contiguous)

    def _recover_without(self, base: int, bases: list[int]) -> None:
        """A closed segment was torn (a power cut): keep the prefix, as Apache Kafka does, and set aside what followed.

        Producer snapshots that know of later batches would call a lost batch a duplicate, so they go, too.
        """
        for later in (other for other in bases if other > base):
            logger.warning("setting segment %d of %s aside: it follows a torn one", later, self.directory)
            segment = Segment(self.directory, later)
            aside.keep_file(segment.path, later)
            segment.remove()
            self._snapshot_path(later).unlink(missing_ok=True)
        self.segments, self.epochs, self.producers = [], [], Producers()
        self._recover()


def _require_keys(batch: memoryview, header: Header) -> None:
    """A compacted topic keeps the last value per key, so every record needs one."""
    try:
        keyed = all(record.key is not None for record in batches.records(batch, header))
    except Exception as error:  # codecs raise their own kinds; whatever it is, the batch cannot be opened
        raise Rejected(Code.CORRUPT_MESSAGE, f"records do not parse: {error}") from error
    if not keyed:
        raise Rejected(Code.INVALID_RECORD, "Compacted topic cannot accept message without key in topic partition")


def remove_tree(directory: Path) -> None:
    """Delete a partition's or topic's folder; missing is fine."""
    for root, folders, names in os.walk(directory, topdown=False):
        for name in names:
            os.unlink(os.path.join(root, name))
        for name in folders:
            os.rmdir(os.path.join(root, name))
    if directory.exists():
        directory.rmdir()
