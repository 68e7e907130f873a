"""Which input positions of a partition are finished with, so that no crash makes a finished trial run again."""

from __future__ import annotations

import heapq
from collections import deque

from schemas.ids import parse_trial
from services.runtime.core import Position

SETTLE_S = 60.0
"""Seconds by which the end of a trial is kept longer than its request: the commit of the one must be stored first, and
a request that a crashed dispatch sends a second time must find, even after a crash of ours, that it was served."""


class Ledger:
    """Book-keeping of one partition.

    A trial's request, calls and results are finished with once its last `rollout.completed` stands in the log. The
    `rollout.completed` itself is kept unfinished while any request at or below the trial's own is open: until then a
    crash would hand out the request again, and only that record says that nothing is to be done for it.
    """

    def __init__(self) -> None:
        self._open: dict[str, int] = {}  # trial id -> highest offset of its requests
        self._offsets: list[tuple[int, str]] = []  # heap over lowest offsets; entries of closed trials are skipped
        self._held: list[tuple[int, int, list[Position]]] = []  # heap: (request offset, tie break, ends)
        self._settling: deque[tuple[float, list[Position]]] = deque()
        self._finished: dict[tuple[str, int], int] = {}  # (run, group number) -> bit mask of members
        self._count = 0

    def open(self, trial_id: str, offset: int) -> None:
        """A request of an unfinished trial."""
        if trial_id not in self._open:
            heapq.heappush(self._offsets, (offset, trial_id))
        self._open[trial_id] = max(offset, self._open.get(trial_id, -1))

    def close(self, trial_id: str, ends: list[Position]) -> None:
        """The trial is finished; `ends` are the positions of its `rollout.completed` records."""
        ref = parse_trial(trial_id)
        key = (ref.run_id, ref.group)
        self._finished[key] = self._finished.get(key, 0) | 1 << ref.member
        offset = self._open.pop(trial_id, -1)
        if ends:
            self._count += 1
            heapq.heappush(self._held, (offset, self._count, ends))

    def is_finished(self, trial_id: str) -> bool:
        """Whether this trial was closed since the partition was assigned."""
        ref = parse_trial(trial_id)
        return bool(self._finished.get((ref.run_id, ref.group), 0) >> ref.member & 1)

    def release(self, now_s: float) -> list[Position]:
        """Ends that are finished with by now (`now_s`: monotonic seconds)."""
        while self._offsets and self._open.get(self._offsets[0][1]) is None:
            heapq.heappop(self._offsets)
        lowest = self._offsets[0][0] if self._offsets else None
        while self._held and (lowest is None or self._held[0][0] < lowest):
            self._settling.append((now_s + SETTLE_S, heapq.heappop(self._held)[2]))
        out: list[Position] = []
        while self._settling and self._settling[0][0] <= now_s:
            out += self._settling.popleft()[1]
        return out
