"""Collects records into segments and says when one is to be stored; offsets are done once their segment is there.

A partition that goes to another instance takes nothing along: its open segment is dropped, and its next owner reads
the same records again from what was committed. So segments may overlap (an upload that ended after its partition was
lost), and what overlaps is the same.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from services.recorder.names import Lost, Place
from services.runtime.core import BaseCore, Effects, Job, Position, RawMessage
from services.runtime.segments import Raw
from services.runtime.store import StoreFull, StoreUnavailable

SEGMENT_RECORDS = 10_000
"""Small records: closed at this many, since the loop remembers each until its segment is stored."""


@dataclass(frozen=True)
class Limits:
    """When a segment is closed; `open_bytes` bounds what all open ones together hold."""

    segment_bytes: int
    segment_ms: int
    open_bytes: int
    segment_records: int = SEGMENT_RECORDS


@dataclass
class Open:
    """A segment that still grows. `size` is what its records count for, `cost` what they take in memory."""

    since_ms: int
    records: list[Raw] = field(default_factory=list)
    size: int = 0
    cost: int = 0


Store = Callable[[Place, list[Raw]], int]
"""Stores a segment and returns its bytes; waits while the store is down. Called on a worker's thread."""
Name = Callable[[Lost], None]
"""Stores that records were lost. Called on a worker's thread, and more than once for the same loss."""


def cost_of(raw: Raw) -> int:
    """Bytes that a record takes in memory, objects included."""
    inner = len(raw.value or b"") + len(raw.key or b"") + sum(len(value or b"") for _, value in raw.headers)
    return inner + 110 * len(raw.headers) + 400


class RecorderCore(BaseCore):
    """One instance's share of all topics. `keyed` says whether a topic is compacted: its offsets have holes."""

    def __init__(
        self,
        limits: Limits,
        store: Store,
        name: Name,
        keyed: Callable[[str], bool],
        on_lost: Callable[[Lost], None] = lambda lost: None,
    ) -> None:
        self._limits = limits
        self._store = store
        self._name = name
        self._keyed = keyed
        self._on_lost = on_lost
        self._open: dict[Place, Open] = {}
        self._unnamed: dict[Place, list[Lost]] = {}
        self.counts: Counter[str] = Counter()
        """records, segments and bytes stored, records lost; since start."""
        self.open_bytes = 0

    def handle_raw(self, message: RawMessage, now_ms: int) -> Effects:
        """Add a record to its partition's segment."""
        place, raw = Place(*message.position[:2]), message.raw
        out = Effects()
        if message.fresh:
            self._drop([place])
        held = self._open.get(place)
        if held is not None and raw.offset != held.records[-1].offset + 1 and not self._keyed(place.topic):
            out += self.lost(*place, held.records[-1].offset + 1, raw.offset)
            held = None
        if held is None:
            held = self._open[place] = Open(now_ms)
        cost = cost_of(raw)
        held.records.append(_lean(raw))
        held.size += raw.size
        held.cost += cost
        self.open_bytes += cost
        if held.size >= self._limits.segment_bytes or len(held.records) >= self._limits.segment_records:
            out += self._close([place])
        elif self.open_bytes >= self._limits.open_bytes:
            out += self._close([max(self._open, key=lambda each: self._open[each].cost)])
        return out

    def revoked(self, partitions: frozenset[int]) -> None:
        """Forget what was not stored: the next owner reads it again."""
        self._drop([place for place in self._open if place.partition in partitions])

    def tick(self, now_ms: int) -> Effects:
        """Close what has been open for long."""
        age = self._limits.segment_ms
        return self._close([place for place, held in self._open.items() if now_ms - held.since_ms >= age])

    def drain(self, now_ms: int) -> Effects:
        """Close everything: the service ends."""
        del now_ms
        return self._close(list(self._open))

    def lost(self, topic: str, partition: int, first: int, end: int) -> Effects:
        """Store what was read before the jump, and the jump itself under its own name."""
        place = Place(topic, partition)
        out = self._close([place] if place in self._open else [])
        gone = Lost(place, first, end - 1)
        self.counts["lost"] += end - first
        self._on_lost(gone)
        self._unnamed.setdefault(place, []).append(gone)

        def then(result: Any) -> Effects:
            if self._stored(result) and gone in self._unnamed.get(place, ()):
                self._unnamed[place].remove(gone)
            return Effects()

        out.jobs.append(Job(lambda: self._name(gone), then))
        return out

    def oldest_ms(self, now_ms: int) -> int:
        """For how long the oldest record of an open segment has waited."""
        return max((now_ms - held.since_ms for held in self._open.values()), default=0)

    def _drop(self, places: Iterable[Place]) -> None:
        for place in places:
            if (held := self._open.pop(place, None)) is not None:
                self.open_bytes -= held.cost

    def _close(self, places: Iterable[Place]) -> Effects:
        out = Effects()
        for place in places:
            held = self._open[place]
            self._drop([place])
            out.jobs.append(self._job(place, held))
        return out

    def _job(self, place: Place, held: Open) -> Job:
        unnamed = tuple(self._unnamed.get(place, ()))  # before anything that came after them can be committed

        def run() -> int:
            for gone in unnamed:
                self._name(gone)
            return self._store(place, held.records)

        def then(result: Any) -> Effects:
            if not self._stored(result):
                return Effects()
            self.counts["segments"] += 1
            self.counts["records"] += len(held.records)
            self.counts["bytes"] += result
            return Effects(done=[Position(*place, raw.offset) for raw in held.records])

        # For no partition: what was stored is stored, whoever owns the partition by then.
        return Job(run, then, None, held.cost)

    def _stored(self, result: Any) -> bool:
        """False when the service ended before the store answered: the records are read again at the next start."""
        if isinstance(result, StoreUnavailable | StoreFull):
            self.counts["postponed"] += 1
            return False
        if isinstance(result, Exception):
            raise result
        return True


def _lean(raw: Raw) -> Raw:
    """The record with its header names shared among all records: they are few."""
    headers = tuple((sys.intern(name), value) for name, value in raw.headers)
    return Raw(raw.offset, raw.timestamp_ms, raw.key, raw.value, headers)
