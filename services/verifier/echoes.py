"""When verdicts read back are finished with: late enough that no crash finds a completion without its verdict."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field

from services.runtime.core import Position

SETTLE_MS = 2_000
"""A verdict can be read back before its completion counts as finished, which is when the producer hears of it."""
REMEMBERED = 200_000
"""Completions of one partition whose place is remembered."""

Attempt = tuple[str, int]


@dataclass
class _Partition:
    """Completions that are not finished, where each one stood, and verdicts read back, in order."""

    unfinished: set[int] = field(default_factory=set)
    firsts: dict[Attempt, int] = field(default_factory=dict)
    places: OrderedDict[Attempt, int] = field(default_factory=OrderedDict)
    verdicts: deque[tuple[Position, Attempt, int]] = field(default_factory=deque)


class Echoes:
    """Both topics are committed together: a verdict may go once the watermark of its completion's partition, which
    stops at the lowest unfinished one, has passed that completion."""

    def __init__(self) -> None:
        self._partitions: dict[int, _Partition] = defaultdict(_Partition)

    def delivered(self, position: Position, attempt: Attempt) -> bool:
        """A completion was handed out; False for another one of an attempt that has its first: that one counts."""
        state = self._partitions[position.partition]
        state.unfinished.add(position.offset)
        state.places[attempt] = position.offset
        while len(state.places) > REMEMBERED:
            state.firsts.pop(state.places.popitem(last=False)[0], None)
        return state.firsts.setdefault(attempt, position.offset) == position.offset

    def finished(self, position: Position) -> None:
        """A completion is finished with."""
        self._partitions[position.partition].unfinished.discard(position.offset)

    def read_back(self, position: Position, attempt: Attempt, now_ms: int) -> None:
        """A final verdict was read from its topic."""
        self._partitions[position.partition].verdicts.append((position, attempt, now_ms))

    def revoked(self, partitions: frozenset[int]) -> None:
        """These partitions are somebody else's now."""
        for number in partitions:
            self._partitions.pop(number, None)

    def due(self, now_ms: int) -> list[Position]:
        """Verdicts that may be finished now. Not to be asked while catching up: completions may still come."""
        out: list[Position] = []
        for state in self._partitions.values():
            lowest = min(state.unfinished, default=math.inf)
            while state.verdicts:
                position, attempt, read_ms = state.verdicts[0]
                place = state.places.get(attempt, -1)  # not seen here: it was finished and committed before our start
                if read_ms > now_ms - SETTLE_MS or place >= lowest:
                    break
                out.append(position)
                state.verdicts.popleft()
        return out
