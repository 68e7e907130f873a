"""Judgements that rest after an infrastructure fault: no thread waits for them, the service's tick wakes them."""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, TypeVar

T = TypeVar("T")


class Rest(Generic[T]):
    """What rests until when, earliest first. Forgotten at a restart: then its inputs are read and judged anew."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._count = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, one: T, due_ms: float) -> None:
        """Rest until `due_ms` (Unix milliseconds)."""
        heapq.heappush(self._heap, (due_ms, next(self._count), one))

    def due(self, now_ms: float) -> list[T]:
        """Everything that has rested for long enough; it rests no more."""
        out = []
        while self._heap and self._heap[0][0] <= now_ms:
            out.append(heapq.heappop(self._heap)[2])
        return out
