"""The poll thread: takes records in, holds them back when there is no room, tells the core what a rebalance changed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from services.runtime.clock import Clock, Deadline
from services.runtime.commits import Committer
from services.runtime.consumer import LONG_POLL_MS, Source
from services.runtime.core import BaseCore
from services.runtime.driver import Driver
from services.runtime.logs import Log
from services.runtime.metrics import Metrics
from services.runtime.ownership import Ownership
from services.runtime.producer import Outbox
from services.runtime.settings import Runtime
from services.runtime.watermark import Watermarks
from services.runtime.workers import Workers

CORK_S = 0.005
"""How long outputs may wait for company while the poll thread works off a backlog."""
_LOOK_S = 5.0
_FULL_WAIT_S = 0.1
_UNCERTAIN_S = 0.02


class PollLoop:
    """Owns the consumer: nobody else polls, pauses or commits. `ownership` and `commits` are None without a group."""

    def __init__(
        self,
        source: Source,
        driver: Driver,
        workers: Workers,
        outbox: Outbox,
        watermarks: Watermarks,
        *,
        ownership: Ownership | None,
        commits: Committer | None,
        runtime: Runtime,
        clock: Clock,
        log: Log,
        metrics: Metrics,
        stop: threading.Event,
    ) -> None:
        self.source = source
        self._driver = driver
        self._workers = workers
        self._outbox = outbox
        self._watermarks = watermarks
        self.ownership = ownership
        self.commits = commits
        self._runtime = runtime
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self._stop = stop
        self._carry: deque[ConsumerRecord] = deque()
        self._caught_up = False
        self._own_settled: Callable[[], bool] = lambda: True
        self._said_stuck = 0.0
        self._ticks = getattr(type(driver.core), "tick", None) is not BaseCore.tick
        self._reading_out = False
        self.ready = False

    def run(self, beat: Callable[[], None]) -> None:
        """Until `stop` is set; `beat` is called every turn. Raises what must end the service."""
        wait_s = self._runtime.tick_s if self._ticks else LONG_POLL_MS / 1000
        next_tick = next_look = 0.0
        while not self._stop.is_set():
            beat()
            now = self._clock.monotonic()
            self._step(wait_s)
            if not self._caught_up:
                self._check_caught_up()
            elif self._ticks and now >= next_tick and self._driver.certain():
                next_tick = now + self._runtime.tick_s
                self._timed("tick", self._driver.tick)
            if self.commits:
                self._timed("commit", self.commits.maybe)
            if now >= next_look:
                next_look = now + _LOOK_S
                self._look_around(now)

    def read_out(self, deadline: Deadline) -> None:
        """After the stop: what stands in the inputs now is still handled, unless the deadline comes first."""
        if not self._caught_up or self.ownership is None:
            return  # far behind anyway: the next start goes on
        self._reading_out = True
        self.source.catch_up_with(self.ownership.owned)
        while not deadline.passed and self._driver.certain() and (self._carry or not self.source.caught_up):
            self._step(deadline.left(0.01))

    @property
    def _going(self) -> bool:
        return self._reading_out or not self._stop.is_set()

    def _timed(self, phase: str, work: Callable[[], None]) -> None:
        start = self._clock.monotonic()
        work()
        self._metrics.phase(phase, self._clock.monotonic() - start)

    @property
    def _full(self) -> bool:
        return self._workers.full or self._outbox.full

    def _step(self, wait_s: float) -> None:
        """Take in records once, or hold. While full, polling goes on with everything paused: membership is kept."""
        full = self._full
        if full or self._carry:
            self.source.pause_only(self.source.consumer.assignment())
        else:
            wide = self._watermarks.wide(self._runtime.window_records)
            self.source.pause_only({TopicPartition(*key) for key in wide})
        start = self._clock.monotonic()
        records = self.source.poll(int(1000 * self._patience(wait_s, held=full or bool(self._carry))))
        self._metrics.phase("poll", self._clock.monotonic() - start)
        self._apply_changes()
        self._take(records)
        if full:
            self._timed("wait", lambda: self._wait_for_room(min(wait_s, _FULL_WAIT_S)))
        if self._carry and not self._driver.certain():
            self._stop.wait(_UNCERTAIN_S)  # polling goes on, which is how the group says what is ours
        elif self._carry:
            self._timed("handle", self._work)
        elif not records and not full:  # a full one has paused everything: what waits for it does not show
            self._metrics.lag.set(0)

    def _take(self, records: list[ConsumerRecord]) -> None:
        """Carry records over to their turn. Where they begin is noted: a rebalance that comes before their turn drops
        what is carried, and reading must go back to there even where none of a partition was handed out yet."""
        if not records:
            return
        self._watermarks.take({(record.topic, record.partition): record.offset for record in reversed(records)})
        self._carry.extend(records)

    def _patience(self, wait_s: float, held: bool) -> float:
        """Seconds to wait in `poll`: none while there is work at hand, but a rebalance that began must be let through.

        Held workers keep the service full, and polls without time would cut every try to let go: it would never rejoin.
        """
        if self.ownership is not None and self.ownership.letting_go:
            return self._runtime.revoke_s + 1.0
        return 0.0 if held else wait_s

    def _wait_for_room(self, seconds: float) -> None:
        self._workers.room.clear()
        if self._workers.full:
            self._workers.room.wait(seconds)
        elif self._outbox.full:
            self._outbox.wait_for_room(seconds)

    def _work(self) -> None:
        """Hand records to the core until they or the room run out; what is left is carried over, never dropped."""
        record = self._carry[0]
        tracked = self.commits is not None
        if len(self._carry) > 1:
            self._outbox.cork()
        try:
            uncork_at = self._clock.monotonic() + CORK_S
            while self._carry and self._going and not self._full and self._driver.certain():
                record = self._carry.popleft()
                self._driver.handle(record, tracked=tracked)
                if (now := self._clock.monotonic()) >= uncork_at:
                    self._outbox.uncork()
                    self._outbox.cork()
                    uncork_at = now + CORK_S
        finally:
            self._outbox.uncork()
        self._metrics.lag.set(max(0.0, (self._clock.now_ms() - record.timestamp) / 1000))

    def _apply_changes(self) -> None:
        """Tell the core what a rebalance took and gave, before any record that came after it."""
        if self.ownership is None:
            return
        changes = self.ownership.changes()
        for change in changes:
            self._carry.clear()  # kept partitions were sought back to the first record not handed out
            self._metrics.rebalanced()
            self.source.forget(change.lost)
            now = self.ownership.owned
            if lost := {tp.partition for tp in change.lost} - {tp.partition for tp in now}:
                self._driver.revoked(lost)
            if change.added:
                self._driver.assigned({tp.partition for tp in change.added})
                self._caught_up = False
                self._own_settled = self._outbox.mark()
            self.source.catch_up_with(change.added & now)
            self._metrics.assigned.set(len(now))
            self._log.info(
                "assignment", partitions=sorted({tp.partition for tp in now}),
                owned=len(now), lost=len(change.lost), added=len(change.added),
            )  # fmt: skip
        self.ownership.told(len(changes))

    def _check_caught_up(self) -> None:
        """Once after each assignment, when everything that stood there has been handed to the core.

        Where the log ends is asked only when what this process sent before is in it: of a partition that was lost and
        came back, outputs may still be under way, and a core that does not see them would make them anew.
        """
        joined = self.ownership is None or self.ownership.joined
        if self._carry or not joined or not self._own_settled() or not self.source.caught_up:
            return
        self._driver.caught_up()
        self._caught_up = self.ready = True
        self._log.info("caught up")

    def _look_around(self, now: float) -> None:
        """What an operator should hear of though nothing failed."""
        stalled = [] if self._carry else self.source.stalled(now)
        if stalled:
            self._log.warning("partitions with unread records do not advance", partitions=stalled)
        self._metrics.stalled.set(len(stalled))
        if wide := self._watermarks.wide(self._runtime.window_records):
            names = sorted(f"{topic}[{partition}]" for topic, partition in wide)
            self._log.warning("held: too many records stand above one that is not finished", partitions=names)
        stuck = self._outbox.stuck_s()
        if stuck > _LOOK_S and now - self._said_stuck > 2 * _LOOK_S:
            self._said_stuck = now
            self._log.warning("the broker acknowledges nothing; holding back", seconds=round(stuck, 1))
