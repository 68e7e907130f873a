"""Follows the run's facts while it happens: feeds the live display and keeps the records for report and audit."""

from __future__ import annotations

import threading
from collections.abc import Callable

from schemas import topics
from schemas.record import Record
from services.runtime.cluster import Cluster
from services.runtime.core import Message

WATCHED = (
    topics.ROLLOUT_REQUESTED,
    topics.ROLLOUT_COMPLETED,
    topics.VERIFICATION_VERDICT,
    topics.VERIFICATION_CANARY,
    topics.VERIFICATION_ALARM,
    topics.GROUP_CLOSED,
    topics.GROUP_ADMISSION,
    topics.POLICY_PUBLISHED,
    topics.POLICY_GATE,
    topics.TRAINING_UPDATE,
    topics.EVALUATION_RESULT,
)
"""What progress, report and audit need: a record or two per trial, none of the token or tool traffic."""


class Watcher:
    """A background reader of the watched topics; `records` grows in the order of arrival."""

    def __init__(self, cluster: Cluster, feed: Callable[[Message], None] = lambda message: None) -> None:
        self._cluster = cluster
        self._feed = feed
        self._stop = threading.Event()
        self._caught_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self.records: list[Record] = []
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        from services.runtime.tap import Tap

        try:
            with Tap(self._cluster, WATCHED, patient=True) as tap:
                for message in tap.follow(self._stop.is_set):
                    if message is None:  # nothing new at this moment
                        self._caught_up.set()
                    elif isinstance(message, Message):
                        self._caught_up.clear()
                        self.records.append(message.record)
                        self._feed(message)
        except Exception as e:  # the run goes on without its display; the report reads the topics again
            self.failure = e
            self._caught_up.set()

    def settle(self, timeout_s: float = 10.0) -> None:
        """Wait until everything written so far was read."""
        self._caught_up.clear()
        self._caught_up.wait(timeout_s)

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10)


def read_everything(cluster: Cluster) -> list[Record]:
    """All watched records that stand on the topics now.

    Effects are read before their causes, so that on a live run nothing is seen whose cause is not.
    """
    from services.runtime.tap import read_all

    return [message.record for topic in reversed(WATCHED) for message in read_all(cluster, topic)]
