"""Watches a storm from outside, by a clock of its own: what stands in records was stamped by clocks that chaos sets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from schemas import topics
from schemas.group import GroupClosed
from schemas.policy import TrainingUpdate
from schemas.rollout import RolloutCompleted, RolloutRequested
from schemas.verification import VerificationVerdict
from services.runtime.cluster import Cluster
from services.runtime.core import Message
from services.runtime.tap import Tap, Undecodable

WATCHED = (
    topics.ROLLOUT_REQUESTED, topics.ROLLOUT_INVOCATION, topics.SANDBOX_RESULT, topics.ROLLOUT_COMPLETED,
    topics.VERIFICATION_VERDICT, topics.GROUP_CLOSED, topics.TRAINING_UPDATE,
)  # fmt: skip
"""What is counted, and the tokens and tool results that show a busy machine at work between two ends of trials."""


class Observer:
    """All times are seconds on `now`, when a record was first seen here; a cut link makes that later, never earlier."""

    def __init__(self, cluster: Cluster, now: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._now = now
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._offsets: dict[tuple[str, int], int] = {}
        self.asked: dict[str, float] = {}
        self.closed: dict[str, float] = {}
        self.ended: dict[tuple[str, int], float] = {}
        self.judged: dict[str, float] = {}
        self.updates: dict[int, float] = {}
        self.moved = self.stirred = now()
        """When a group was last closed or an update last made, and when any record of a trial last came."""
        self.interruptions = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with Tap(self._cluster, WATCHED, offsets=self._offsets, patient=True) as tap:
                    for message in tap.follow(self._stop.is_set):
                        if message is not None:
                            self._note(message)
            except Exception:  # a broker that is down: the storm goes on, and so does its observer
                self.interruptions += 1
                self._stop.wait(0.5)

    def _note(self, message: Message | Undecodable) -> None:
        position, now = message.position, self._now()
        self._offsets[position.topic, position.partition] = position.offset + 1
        if isinstance(message, Undecodable):
            return
        record = message.record
        self.stirred = now
        if isinstance(record, RolloutRequested):
            self.asked.setdefault(record.group_id, now)
        elif isinstance(record, RolloutCompleted):
            self.ended.setdefault((record.trial_id, record.attempt), now)
        elif isinstance(record, VerificationVerdict) and record.verdict != "pending":
            self.judged.setdefault(record.trial_id, now)
        elif isinstance(record, GroupClosed) and record.group_id not in self.closed:
            self.closed[record.group_id] = self.moved = now
        elif isinstance(record, TrainingUpdate) and record.policy_version not in self.updates:
            self.updates[record.policy_version] = self.moved = now

    @property
    def waiting(self) -> list[str]:
        """Groups that were asked for and are not closed."""
        return [group for group in list(self.asked) if group not in self.closed]
