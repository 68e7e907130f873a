"""A set of numbers that are nearly all small and consecutive, kept as half-open intervals (as in TCP's SACK)."""

from __future__ import annotations

import bisect
from collections.abc import Iterable


class Intervals:
    """Grows only. Groups are numbered from 0 and nearly all get decided, so a run's history is a handful of pairs."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(pairs):
            self._starts.append(start)
            self._ends.append(end)

    def __contains__(self, number: int) -> bool:
        at = bisect.bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def add(self, number: int) -> None:
        """Add one number; adding it again changes nothing."""
        if number in self:
            return
        at = bisect.bisect_right(self._starts, number)
        joins_left = at > 0 and self._ends[at - 1] == number
        joins_right = at < len(self._starts) and self._starts[at] == number + 1
        if joins_left and joins_right:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_left:
            self._ends[at - 1] = number + 1
        elif joins_right:
            self._starts[at] = number
        else:
            self._starts.insert(at, number)
            self._ends.insert(at, number + 1)

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The intervals [start, end) in order."""
        return tuple(zip(self._starts, self._ends, strict=True))
