"""Remembers which groups of one partition are closed, for as long as one of their records could be read again."""

from __future__ import annotations

import heapq
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.runtime.core import Position

SETTLE_MS = 2_000
"""How long after its closure was read back a group's own records count as committed at the earliest: the consumer may
see a record before the producer hears that it was written."""
REMEMBERED = 65_536
"""Closed groups that are remembered after all their records are committed, against late duplicates."""


class Offsets:
    """The unfinished offsets of one topic partition, as far as this core holds them."""

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._gone: set[int] = set()

    def add(self, offset: int) -> None:
        heapq.heappush(self._heap, offset)

    def discard(self, offset: int) -> None:
        self._gone.add(offset)

    def lowest(self) -> int | None:
        """The lowest offset still held; None when there is none."""
        while self._heap and self._heap[0] in self._gone:
            self._gone.discard(heapq.heappop(self._heap))
        return self._heap[0] if self._heap else None


@dataclass
class _Closed:
    """One closed group: its closure records, its highest offset by topic, and the offsets that it still holds."""

    closures: list[Position] = field(default_factory=list)
    read_ms: int | None = None
    last: dict[str, int] = field(default_factory=dict)
    held: list[Position] = field(default_factory=list)

    def note(self, position: Position) -> None:
        self.last[position.topic] = max(position.offset, self.last.get(position.topic, -1))


class ClosedGroups:
    """Which groups are closed, and which of their closure records may be committed.

    A closure record must be read again as long as one record of its group may be: else a restart would close the group
    twice. Records of a group are committed when the lowest offset that any open group holds lies above them, so a
    closure record is let go exactly then.
    """

    def __init__(self) -> None:
        self._offsets: dict[str, Offsets] = defaultdict(Offsets)
        self._waiting: dict[str, _Closed] = {}
        self._settled: OrderedDict[str, None] = OrderedDict()
        self._unsettled: deque[tuple[str, int]] = deque()
        self._blocked: dict[str, None] = {}
        self._lowest: dict[str, int | None] = {}

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._waiting or group_id in self._settled

    @property
    def waiting(self) -> int:
        """Closed groups whose closure record is not let go yet."""
        return len(self._waiting)

    def hold(self, position: Position) -> None:
        """A record of an open group: unfinished until its group is closed."""
        self._offsets[position.topic].add(position.offset)

    def drop(self, positions: Iterable[Position]) -> None:
        """These records are finished without a closure of ours."""
        for position in positions:
            self._offsets[position.topic].discard(position.offset)

    def closing(self, group_id: str, positions: Iterable[Position]) -> None:
        """We close this group now; its records stay held until the closure was read back and has settled."""
        entry = self._waiting.setdefault(group_id, _Closed())
        for position in positions:
            entry.note(position)
            entry.held.append(position)

    def late(self, group_id: str, position: Position) -> None:
        """A record of a group that is closed already."""
        if group_id in self._waiting:
            self._waiting[group_id].note(position)

    def closed(self, group_id: str, closure: Position, now_ms: int) -> None:
        """A closure record was read. A second one for a forgotten group waits like the first."""
        entry = self._waiting.setdefault(group_id, _Closed())
        entry.closures.append(closure)
        entry.read_ms = now_ms
        self._unsettled.append((group_id, now_ms))
        self._blocked.pop(group_id, None)

    def release(self, now_ms: int) -> list[Position]:
        """Closure records that may be finished now. Call it only when caught up.

        One group that stays open blocks all closures after it; they are looked at again only when the lowest held
        offset has moved, so that waiting for it costs nothing.
        """
        fresh = self._settle(now_ms - SETTLE_MS)
        lowest = {topic: offsets.lowest() for topic, offsets in self._offsets.items()}
        candidates = fresh if lowest == self._lowest else [*self._blocked, *fresh]
        self._lowest = lowest
        self._blocked.update(dict.fromkeys(fresh))
        out: list[Position] = []
        for group_id in candidates:
            entry = self._waiting[group_id]
            if any((low := lowest.get(topic)) is not None and low <= last for topic, last in entry.last.items()):
                continue
            out += entry.closures
            del self._waiting[group_id], self._blocked[group_id]
            self._settled[group_id] = None
        while len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)
        return out

    def _settle(self, before_ms: int) -> list[str]:
        """Groups whose closure was read back by then: what they held counts as committed from here on."""
        out = []
        while self._unsettled and self._unsettled[0][1] <= before_ms:
            group_id, read_ms = self._unsettled.popleft()
            entry = self._waiting.get(group_id)
            if entry is not None and entry.read_ms == read_ms and group_id not in self._blocked:
                self.drop(entry.held)
                entry.held.clear()
                out.append(group_id)
        return list(dict.fromkeys(out))
