"""Time as a value that is passed in: Unix milliseconds for records, monotonic seconds for waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

_SLEW = 0.1
"""A wall clock that was set is followed by at most this many seconds per second."""


class Clock(Protocol):
    """Wall time stamps records; monotonic time measures every duration, since wall time can jump."""

    def now_ms(self) -> int:
        """Unix milliseconds."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never backwards."""


class SystemClock:
    """The machine's own clocks. Wall time that is set while a process runs is followed slowly, not at once: deadlines
    of cores are differences of `now_ms`, and a step of an hour must neither end nor stretch them by more than a tenth.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`wall` and `monotonic` give seconds."""
        self._wall, self._monotonic = wall, monotonic
        self._lock = threading.Lock()
        self._at = monotonic()
        self._time = wall()

    def now_ms(self) -> int:
        with self._lock:
            at = self._monotonic()
            passed = max(0.0, at - self._at)
            self._at = at
            ahead = self._wall() - (self._time + passed)
            self._time += passed + max(-_SLEW * passed, min(_SLEW * passed, ahead))
            return int(self._time * 1000)

    def monotonic(self) -> float:
        return self._monotonic()


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
