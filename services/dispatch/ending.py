"""Why a run stops starting groups: updates done, time over, nothing to learn, nothing to sample, nothing to believe."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Literal

Reason = Literal["updates", "wall", "held", "barren", "alarm"]
GAP_MS = 30_000
"""A longer silence between records is not counted as training time: the stack was stopped."""
HELD_GRACE_MS = 60_000
"""How long a person has to release a held version, once nothing else can happen, before the run goes to its end."""
ALARM_GRACE_MS = 10_000
"""How long the groups under way have to be decided, after an alarm that stops the line."""
BARREN_BATCHES = 100
"""This many batches of exclusions in a row, without one update between them, end the run: it burns time for nothing."""


@dataclass
class ActiveTime:
    """Milliseconds of training so far, without the time in which the stack was stopped; rebuilt from record times."""

    _replayed: list[int] = field(default_factory=list)
    _total: int = 0
    _last: int | None = None

    def note(self, at_ms: int) -> None:
        """A record of training that was read while catching up."""
        self._replayed.append(at_ms)

    def settle(self, now_ms: int) -> None:
        """Everything was read: add up the gaps, and go on from now."""
        times = sorted(self._replayed)
        self._replayed.clear()
        for earlier, later in itertools.pairwise(times):
            self._total += min(later - earlier, GAP_MS)
        if times:
            self._last = now_ms

    def advance(self, now_ms: int) -> None:
        """Time passes while groups are being trained on; the first call starts the clock."""
        if self._last is not None:
            self._total += max(0, min(now_ms - self._last, GAP_MS))
        self._last = now_ms

    @property
    def seconds(self) -> float:
        return self._total / 1000


@dataclass
class Patience:
    """A condition that must hold without a break for `limit_ms` before it counts."""

    limit_ms: int
    _since: int | None = None

    def holds(self, condition: bool, now_ms: int) -> bool:
        """Note the condition now; True once it has held for long enough."""
        if not condition:
            self._since = None
            return False
        if self._since is None:
            self._since = now_ms
        return now_ms - self._since >= self.limit_ms
