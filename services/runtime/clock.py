"""Time as a value that is passed in: Unix milliseconds for records, monotonic seconds for waits."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time stamps records; monotonic time measures every duration, since wall time can jump."""

    def now_ms(self) -> int:
        """Unix milliseconds."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never backwards."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class Deadline:
    """One budget shared by the steps of something that must end, such as a revoke or a shutdown."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds

    def left(self, floor: float = 0.0) -> float:
        """Seconds left, never less than `floor` (a step that must at least be tried)."""
        return max(floor, self._end - self._clock.monotonic())

    @property
    def passed(self) -> bool:
        return self._clock.monotonic() >= self._end
