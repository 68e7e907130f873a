"""The contiguous low watermark: how far a partition may be committed while records finish in any order."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from services.runtime.core import Position

PartitionKey = tuple[str, int]


class Window:
    """Delivered records of one partition that are not finished, lowest first.

    Only offsets that were delivered count: numbers that compaction or markers left out are no gaps. Memory is one entry
    per unfinished record, however many finished records stand above it.
    """

    __slots__ = ("_delivered", "_next", "_taken", "_unfinished", "committed", "start")

    def __init__(self) -> None:
        self._unfinished: OrderedDict[int, tuple[int, bytes | None]] = OrderedDict()  # offset -> delivered before, key
        self._delivered = 0
        self._next: int | None = None
        self._taken: int | None = None
        self.start: int | None = None
        self.committed: int | None = None

    def deliver(self, position: Position, key: bytes | None = None) -> bool:
        """Note a record as handed out; False for one at or below the last (a repeat), which changes nothing."""
        if self._next is not None and position.offset < self._next:
            return False
        if self.start is None:
            self.start = position.offset
        self._unfinished[position.offset] = self._delivered, key
        self._delivered += 1
        self._next = position.next_offset
        return True

    def take(self, offset: int) -> None:
        """Note a record that was read and waits to be handed out; the first of a window is where delivery begins."""
        if self._taken is None:
            self._taken = offset

    def finish(self, offset: int) -> None:
        """Note a record as finished; unknown and repeated offsets change nothing."""
        self._unfinished.pop(offset, None)

    @property
    def next_offset(self) -> int | None:
        """Where delivery goes on, or begins; None before the first record was read."""
        return self._next if self._next is not None else self._taken

    @property
    def watermark(self) -> int | None:
        """The offset that may be committed: every delivered record below it is finished. None before the first."""
        return next(iter(self._unfinished)) if self._unfinished else self._next

    @property
    def unfinished(self) -> int:
        return len(self._unfinished)

    def answer(self, offset: int) -> None:
        """Note that a record waits for nothing but acknowledgements: it causes no more outputs."""
        if offset in self._unfinished:
            self._unfinished[offset] = self._unfinished[offset][0], None

    def unfinished_of(self, key: bytes) -> list[int]:
        """Offsets of the records with this key that are not answered."""
        return [offset for offset, (_, own) in self._unfinished.items() if own == key]

    @property
    def width(self) -> int:
        """Records delivered since the lowest unfinished one: what would be read again after a crash."""
        return self._delivered - next(iter(self._unfinished.values()))[0] if self._unfinished else 0


class Watermarks:
    """The windows of all owned partitions. Thread-safe: records finish on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[PartitionKey, Window] = {}

    def open(self, partitions: Iterable[PartitionKey]) -> None:
        """Start fresh windows for newly owned partitions."""
        with self._lock:
            for key in partitions:
                self._windows[key] = Window()

    def drop(self, partitions: Iterable[PartitionKey]) -> None:
        """Forget lost partitions: what finishes for them later changes nothing."""
        with self._lock:
            for key in partitions:
                self._windows.pop(key, None)

    def deliver(self, position: Position, key: bytes | None = None) -> bool:
        """Note a record as handed out; False when its partition is not owned or the record is a repeat."""
        with self._lock:
            window = self._windows.get(position[:2])
            return window is not None and window.deliver(position, key)

    def unfinished_of(self, key: bytes) -> list[Position]:
        """Where the records with this key stand that are not answered."""
        with self._lock:
            found = [(place, window.unfinished_of(key)) for place, window in self._windows.items()]
        return [Position(*place, offset) for place, offsets in found for offset in offsets]

    def take(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Note the first record of each partition that was read just now."""
        with self._lock:
            for key, offset in offsets.items():
                window = self._windows.get(key)
                if window is not None:
                    window.take(offset)

    def begins_at(self, position: Position) -> bool:
        """Whether a delivered record was the first of its window."""
        with self._lock:
            window = self._windows.get(position[:2])
            return window is not None and window.start == position.offset

    def resolve(self, positions: Iterable[Position]) -> list[tuple[Window, int]]:
        """The windows that own these positions now, so that a later ownership is not finished by an old result.

        From here on the records wait for acknowledgements only.
        """
        with self._lock:
            found = ((self._windows.get(p[:2]), p.offset) for p in positions)
            owned = [(window, offset) for window, offset in found if window is not None]
            for window, offset in owned:
                window.answer(offset)
            return owned

    def finish(self, resolved: Iterable[tuple[Window, int]]) -> None:
        """Note records as finished."""
        with self._lock:
            for window, offset in resolved:
                window.finish(offset)

    def finish_now(self, positions: Iterable[Position]) -> None:
        """Resolve and finish in one step, for records that caused nothing to wait for."""
        with self._lock:
            for p in positions:
                window = self._windows.get(p[:2])
                if window is not None:
                    window.finish(p.offset)

    def committable(self) -> dict[PartitionKey, int]:
        """Watermarks above what was committed last."""
        with self._lock:
            out = {}
            for key, window in self._windows.items():
                mark = window.watermark
                # Until the first record finished there is nothing new: the mark equals where the window started.
                base = window.committed if window.committed is not None else window.start
                if mark is not None and base is not None and mark > base:
                    out[key] = mark
            return out

    def committed(self, offsets: dict[PartitionKey, int]) -> None:
        """Note that the broker stored these offsets."""
        with self._lock:
            for key, offset in offsets.items():
                window = self._windows.get(key)
                if window is not None:
                    window.committed = max(offset, window.committed or 0)

    def next_offset(self, key: PartitionKey) -> int | None:
        """Where delivery of a partition goes on."""
        with self._lock:
            window = self._windows.get(key)
            return window.next_offset if window is not None else None

    def wide(self, limit: int) -> set[PartitionKey]:
        """Partitions whose window is at the limit: they are paused until the stuck record finishes."""
        with self._lock:
            return {key for key, window in self._windows.items() if window.unfinished and window.width >= limit}

    def unfinished(self) -> int:
        """Delivered records that are not finished, over all partitions."""
        with self._lock:
            return sum(window.unfinished for window in self._windows.values())
