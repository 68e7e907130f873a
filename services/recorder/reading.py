"""Reads what was recorded: what is there and what is missing from the names alone, and the records themselves."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from schemas.codec import ContractViolation
from services.recorder.names import Lost, Place, Segment, parse, prefix
from services.runtime.segments import MAX_UNPACKED, Raw, unpack
from services.runtime.store import CorruptObject, ObjectStore, get_bounded


class Contradiction(RuntimeError):
    """Two segments hold different records under one offset: the topic was made anew under the same run."""

    def __init__(self, place: Place, offset: int) -> None:
        super().__init__(f"{place}@{offset} was recorded twice, and differently")
        self.place = place
        self.offset = offset


@dataclass(frozen=True)
class Gap:
    """Offsets first..last that no segment holds, and why."""

    first: int
    last: int
    why: str

    def __str__(self) -> str:
        return f"{self.first}..{self.last} ({self.why})"


@dataclass(frozen=True)
class Recorded:
    """What there is of one partition, segments in the order of their first offsets; `keyed`: of a compacted topic."""

    place: Place
    segments: tuple[Segment, ...]
    lost: tuple[Lost, ...]
    keyed: bool

    @property
    def first(self) -> int | None:
        return self.segments[0].first if self.segments else None

    @property
    def last(self) -> int | None:
        return max((segment.last for segment in self.segments), default=None)

    @property
    def size(self) -> int:
        """Bytes of the objects."""
        return sum(segment.size for segment in self.segments)

    def gaps(self) -> list[Gap]:
        """What is missing. In a compacted topic numbers may be absent by right: only named losses are gaps there."""
        known = [(segment.first, segment.last) for segment in self.segments]
        named = sorted((gone.first, gone.last) for gone in self.lost)
        if self.keyed:
            wanted = named
        else:
            ends = [last for _, last in (*known, *named)]
            wanted = [(0, max(ends))] if ends else []
        return [self._gap(*span, named) for span in _without(wanted, known)]

    def _gap(self, first: int, last: int, named: Sequence[tuple[int, int]]) -> Gap:
        if not _without([(first, last)], named):
            return Gap(first, last, "the log dropped them before they were read")
        if self.first is None or last < self.first:
            return Gap(first, last, "before the first recorded one")
        return Gap(first, last, "no segment holds them")


def look(store: ObjectStore, run_id: str, keyed: Callable[[str], bool]) -> dict[Place, Recorded]:
    """Everything that is recorded of a run, by partition in order, from the names alone."""
    segments: dict[Place, list[Segment]] = {}
    lost: dict[Place, list[Lost]] = {}
    for key in store.list(prefix(run_id)):
        found = parse(key)
        if isinstance(found, Segment):
            segments.setdefault(found.place, []).append(found)
        elif found is not None:
            lost.setdefault(found.place, []).append(found)
    return {
        place: Recorded(
            place, tuple(sorted(segments.get(place, ()))), tuple(sorted(lost.get(place, ()))), keyed(place.topic)
        )
        for place in sorted({*segments, *lost})
    }


def records(store: ObjectStore, run_id: str, recorded: Recorded) -> Iterator[Raw]:
    """The records of a partition in order, each once, with few segments in memory.

    Raises Contradiction, CorruptObject for an object that does not hold what its name says, MissingObject.
    """
    return merge(recorded.place, recorded.segments, lambda segment: load(store, run_id, segment))


def load(store: ObjectStore, run_id: str, segment: Segment) -> list[Raw]:
    """The records of one segment. Raises CorruptObject, MissingObject."""
    key = segment.key(run_id)
    try:
        data = get_bounded(store, key, MAX_UNPACKED, segment.sha256)
        found = list(unpack(data))
        if (len(found), found[0].offset, found[-1].offset) != (segment.records, segment.first, segment.last):
            raise ContractViolation("segment", "it does not hold the records of its name")
    except ContractViolation as e:
        raise CorruptObject(f"object {key} in {store} is damaged: {e}") from e
    return found


def merge(place: Place, segments: Iterable[Segment], load: Callable[[Segment], Iterable[Raw]]) -> Iterator[Raw]:
    """Records of segments that may overlap, by offset, each once; a segment is loaded when its turn comes.

    Raises Contradiction when two segments disagree.
    """
    waiting = deque(sorted(segments))
    heads: list[tuple[int, int, Raw, Iterator[Raw]]] = []
    number = 0

    def push(rest: Iterator[Raw]) -> None:
        nonlocal number
        if (raw := next(rest, None)) is not None:
            number += 1
            heapq.heappush(heads, (raw.offset, number, raw, rest))

    previous: Raw | None = None
    while heads or waiting:
        while waiting and (not heads or waiting[0].first <= heads[0][0]):
            push(iter(load(waiting.popleft())))
        if not heads:  # the last segments gave nothing
            continue
        _, _, raw, rest = heapq.heappop(heads)
        push(rest)
        if previous is None or raw.offset != previous.offset:
            yield raw
        elif raw != previous:
            raise Contradiction(place, raw.offset)
        previous = raw


def _without(spans: Iterable[tuple[int, int]], covered: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of sorted spans (both ends included, merged where they touch) that nothing covers."""
    out: list[tuple[int, int]] = []
    holes = sorted(covered)
    for first, last in _joined(spans):
        at = first
        for low, high in holes:
            if high < at or low > last:
                continue
            if low > at:
                out.append((at, low - 1))
            at = high + 1
        if at <= last:
            out.append((at, last))
    return out


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out
