"""Compaction of a compacted topic: of each key, only the last value in the closed segments stays.

`plan` and `install` run on the event loop, `clean` on a thread: it only reads closed segments and writes new files.
Offsets never change; a killed compaction leaves the old segments or the new ones, never a loss.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.broker import batch as batches
from infra.broker.batch import Header, Record
from infra.broker.log import PartitionLog
from infra.broker.segment import SCAN_CHUNK, Segment

logger = logging.getLogger(__name__)

MAX_KEYS = 1_000_000  # per pass, about 150 bytes each; what is beyond waits for the next pass


@dataclass(frozen=True)
class Source:
    """A closed segment as the cleaning thread sees it."""

    segment: Segment
    path: Path
    size: int


@dataclass(frozen=True)
class Plan:
    """What one pass works on. Everything below `clean_end` was cleaned before."""

    directory: Path
    sources: list[Source]
    clean_end: int
    segment_bytes: int
    tombstones_before_ms: int
    last_offset: int  # stays whatever it is: a reader that recovers up to the log's end must be able to arrive


@dataclass(frozen=True)
class Cleaned:
    """New segments, each with the sources it replaces, and the offset up to which keys are now unique."""

    outputs: list[tuple[Segment, list[Segment]]]
    clean_end: int


def _eligible(log: PartitionLog, now: int) -> list[Segment]:
    out = []
    for segment in log.segments[:-1]:
        if segment.max_timestamp > now - log.config.compaction_lag_ms:
            break
        out.append(segment)
    return out


def due(log: PartitionLog, now: int) -> bool:
    """Is enough of the closed log dirty (min.cleanable.dirty.ratio), or some of it dirty for too long?"""
    segments = _eligible(log, now)
    dirty = [segment for segment in segments if segment.next_offset > log.clean_end and segment.size]
    if not dirty:
        return False
    if dirty[0].max_timestamp < now - log.config.max_compaction_lag_ms:
        return True
    total = sum(segment.size for segment in segments)
    return sum(segment.size for segment in dirty) >= log.config.dirty_ratio * total


def plan(log: PartitionLog, now: int) -> Plan:
    """Freeze what the thread needs to know."""
    sources = [Source(segment, segment.path, segment.size) for segment in _eligible(log, now)]
    return Plan(
        log.directory,
        sources,
        log.clean_end,
        log.config.segment_bytes,
        now - log.config.delete_retention_ms,
        log.log_end - 1,
    )


def _batches(source: Source) -> Iterator[tuple[memoryview, Header]]:
    with source.path.open("rb", buffering=SCAN_CHUNK) as file:
        left = source.size
        while left >= batches.HEADER_SIZE:
            head = file.read(batches.HEADER_SIZE)
            header = batches.parse(head)
            yield memoryview(head + file.read(header.size - batches.HEADER_SIZE)), header
            left -= header.size


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=12).digest()


def _open(data: memoryview, header: Header) -> list[Record] | None:
    """The records of a batch, None when it cannot be opened; such a batch (older than the policy) stays as it is."""
    try:
        return list(batches.records(data, header))
    except Exception:  # the codecs raise their own kinds
        logger.warning("a batch at offset %d cannot be opened and is kept", header.base_offset)
        return None


def _last_offsets(work: Plan) -> tuple[dict[bytes, int], int]:
    """Last offset of each key in the dirty part, and the offset up to which that is known."""
    last: dict[bytes, int] = {}
    end = work.clean_end
    for source in work.sources:
        if source.segment.next_offset <= work.clean_end:
            continue
        for data, header in _batches(source):
            if header.base_offset < work.clean_end:
                continue
            for record in _open(data, header) or ():
                if record.key is not None:
                    last[_digest(record.key)] = record.offset
            end = header.last_offset + 1
            if len(last) >= MAX_KEYS:
                return last, end
    return last, end


def _filter(data: memoryview, header: Header, last: dict[bytes, int], work: Plan) -> bytes | memoryview | None:
    """The batch without overwritten records, keyless ones and old tombstones; None when nothing is left."""
    found = _open(data, header)
    if found is None:
        return data
    kept = []
    for record in found:
        if record.offset == work.last_offset:
            kept.append(record)
            continue
        if record.key is None or record.offset < last.get(_digest(record.key), -1):
            continue
        if record.tombstone and record.offset < work.clean_end and record.timestamp < work.tombstones_before_ms:
            continue
        kept.append(record)
    if len(kept) == len(found):
        return data
    return batches.rebuild(data, header, kept) if kept else None


def clean(work: Plan, stopping: threading.Event) -> Cleaned | None:
    """Write the cleaned segments beside the old ones, synced; None when told to stop.

    Raises OSError; unfinished files go at the next start.
    """
    last, end = _last_offsets(work)
    outputs: list[tuple[Segment, list[Segment]]] = []
    for source in work.sources:
        if source.segment.base >= end:
            break
        current = outputs[-1] if outputs else None
        if current is None or current[0].size + source.size > work.segment_bytes:
            current = (Segment(work.directory, source.segment.base, ".cleaned"), [])
            outputs.append(current)
        current[1].append(source.segment)
        for data, header in _batches(source):
            if stopping.is_set():
                return None
            kept = _filter(data, header, last, work)
            if kept is not None:
                current[0].append(kept, batches.parse(kept))
    for output, _ in outputs:
        os.fsync(output.fd())
        output.release()
    return Cleaned(outputs, end)


def install(log: PartitionLog, work: Plan, cleaned: Cleaned) -> None:
    """Swap the new segments in; an output whose sources changed meanwhile is thrown away."""
    before = log.size
    for output, sources in cleaned.outputs:
        try:
            at = log.segments.index(sources[0])
        except ValueError:
            at = -1
        if at < 0 or log.segments[at : at + len(sources)] != sources:
            output.remove()
            continue
        for source in sources:
            source.release()
            log.unsynced.discard(source)
        if output.size:
            output.adopt()
            output.store_index()
        else:
            output.remove()
        for source in sources if not output.size else sources[1:]:
            source.remove()
        log.segments[at : at + len(sources)] = [output] if output.size else []
    log.clean_end = max(log.clean_end, cleaned.clean_end)
    logger.info("compacted %s: %d to %d bytes", work.directory, before, log.size)
