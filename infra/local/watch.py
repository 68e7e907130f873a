"""Follows the run's facts while it happens: feeds the live display and keeps the records for report and audit."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from schemas import topics
from schemas.record import Record
from services.runtime.cluster import Cluster
from services.runtime.core import Message

if TYPE_CHECKING:
    from services.runtime.ledger import AuditReport

SAY_AFTER_S = 2.0
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


def audit_topics(cluster: Cluster, say: Callable[[str], None], over: bool = False) -> AuditReport:
    """The audit of all that stands on the topics, every kind of record, offset by offset.

    Effects are read before their causes, as in `read_everything`. Kinds whose topics have lost their beginning (to
    retention, say) are not asked for; a note says so. What breaks the contract is counted in a note, too.
    """
    from services.runtime.archive import spans
    from services.runtime.ledger import Ledger
    from services.runtime.tap import Tap, Undecodable

    found = spans(cluster, [topic.name for topic in reversed(topics.ALL)], "monitor")
    late = sorted({name for (name, _), span in found.items() if span.first})
    ledger = Ledger([topic.record.TYPE.name for topic in topics.ALL if topic.name not in late])
    holes: list[str] = []
    broken: Counter[str] = Counter()
    began = time.monotonic()
    for topic in reversed(topics.ALL):
        if time.monotonic() - began > SAY_AFTER_S:
            say(f"reading {topic.name}")
        following = {place: span.first for place, span in found.items() if place[0] == topic.name}
        with Tap(cluster, [topic]) as tap:
            for message in tap.to_end():
                position = message.position
                place = position.topic, position.partition
                expected = following.get(place, 0)
                if position.offset > expected and not topic.compacted:
                    holes.append(f"{topic.name}[{position.partition}] lacks offsets {expected}..{position.offset - 1}")
                following[place] = position.offset + 1
                if isinstance(message, Undecodable):
                    broken[topic.name] += 1
                else:
                    ledger.add(message.record)
    report = ledger.balance(over)
    notes = [f"{name} no longer holds its first records: it is not asked for them" for name in late]
    notes += [f"{count} records on {name} break the contract" for name, count in sorted(broken.items())]
    return replace(report, problems=[*report.problems, *holes], notes=[*report.notes, *notes])


def read_everything(cluster: Cluster) -> list[Record]:
    """All watched records that stand on the topics now.

    Effects are read before their causes, so that on a live run nothing is seen whose cause is not.
    """
    from services.runtime.tap import read_all

    return [message.record for topic in reversed(WATCHED) for message in read_all(cluster, topic)]
