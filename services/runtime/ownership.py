"""Which partitions this process owns: what a rebalance takes, keeps and gives, and the budget to let go cleanly."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.errors import KafkaError

from services.runtime.clock import Clock, Deadline
from services.runtime.consumer import as_commit
from services.runtime.logs import Log
from services.runtime.producer import Outbox
from services.runtime.watermark import Watermarks
from services.runtime.workers import Workers


class Change(NamedTuple):
    """One assignment: partitions that went, partitions that came. What stayed appears in neither."""

    lost: frozenset[TopicPartition]
    added: frozenset[TopicPartition]


class Lease:
    """Until when the group certainly counts this process as a member: one session after the request that it confirmed.

    A process that was stopped for longer (or cut off) may have lost its partitions without having heard of it; what it
    would still write could contradict the new owner. So nothing enters a core while the lease has lapsed.
    """

    def __init__(self, consumer: KafkaConsumer, clock: Clock, session_s: float) -> None:
        self._clock = clock
        self._session_s = session_s
        self._until = float("-inf")
        self._heartbeat = consumer._coordinator.heartbeat
        self._confirmed = self._heartbeat.received_heartbeat
        self._heartbeat.received_heartbeat = self._received

    def _received(self) -> None:
        self._confirmed()
        # From when it was sent: the answer may have lain in the socket while this process was stopped.
        self._until = max(self._until, self._heartbeat.last_send + self._session_s)

    def renew(self) -> None:
        """The group has just handed out its partitions."""
        self._until = self._clock.monotonic() + self._session_s

    @property
    def lapsed(self) -> bool:
        return self._clock.monotonic() > self._until


class Ownership(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python ships no types
    """Listens to the group. Its methods run on the client's IO loop while the poll thread waits inside `poll`.

    The eager protocol revokes everything and then assigns anew; a partition that comes straight back was never another
    member's, so its window and its core state are kept and reading goes on where it stopped.
    """

    def __init__(
        self,
        consumer: KafkaConsumer,
        watermarks: Watermarks,
        workers: Workers,
        outbox: Outbox,
        *,
        clock: Clock,
        log: Log,
        revoke_s: float,
        session_s: float,
        committed: Callable[[dict[tuple[str, int], int]], None],
    ) -> None:
        self._consumer = consumer
        self._watermarks = watermarks
        self._workers = workers
        self._outbox = outbox
        self._clock = clock
        self._log = log
        self._revoke_s = revoke_s
        self._committed = committed
        self._lease = Lease(consumer, clock, session_s)
        self._lock = threading.Lock()
        self._changes: list[Change] = []
        self.owned: frozenset[TopicPartition] = frozenset()
        self.joined = False
        self.closing = False
        self.letting_go = False
        """Between a revoke and what follows it; the client needs time in `poll` to get through."""

    @property
    def certain(self) -> bool:
        """Whether what the core believes it owns is certainly still its own."""
        return not self._changes and not self._lease.lapsed

    def changes(self) -> list[Change]:
        """Changes that the core has not been told of, in order; the poll thread asks before it handles any record."""
        if not self._changes:
            return []
        with self._lock:
            return list(self._changes)

    def told(self, count: int) -> None:
        """The core has been told of the first `count` changes."""
        with self._lock:
            del self._changes[:count]

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Stop intake, let running jobs end within one budget, and commit what is finished."""
        if self.closing or not revoked:
            return
        deadline = Deadline(self._clock, self._revoke_s)
        self.letting_go = True
        self._workers.hold()
        while (self._workers.running or self._outbox.outstanding) and not deadline.passed:
            await self._sleep(0.01)
        offsets = self._watermarks.committable()
        if offsets:
            try:
                future = self._consumer.commit_async(as_commit(offsets))
                await self._wait(future, deadline.left(0.5))
                self._committed(offsets)
            except KafkaError as e:
                self._log.warning("commit before letting partitions go failed; they are read again", error=repr(e))

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Take the new assignment; partitions that stayed go on where they were."""
        new = frozenset(self._consumer.assignment())
        del assigned  # the whole assignment under the eager protocol, only additions under others
        self._change(new)
        self._lease.renew()
        for tp in new:
            at = self._watermarks.next_offset((tp.topic, tp.partition))
            if at is not None:
                self._consumer.seek(tp, at)
        # A full service had paused everything, and kept partitions stay paused: the poll would sleep its time out.
        self._consumer.resume(*new)
        self._workers.release()
        self.letting_go = False

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """The group went on without us: nothing may be committed any more."""
        self._log.warning("membership lost; another member owns these now", partitions=len(lost))
        self._change(frozenset())
        self._workers.release()
        self.letting_go = False

    def _change(self, new: frozenset[TopicPartition]) -> None:
        old = self.owned
        change = Change(old - new, new - old)
        self._watermarks.drop((tp.topic, tp.partition) for tp in change.lost)
        self._watermarks.open((tp.topic, tp.partition) for tp in change.added)
        self._workers.revoke({tp.partition for tp in change.lost})
        with self._lock:
            self.owned = new
            self.joined = True
            self._changes.append(change)

    async def _sleep(self, seconds: float) -> None:
        # The client's own loop is no asyncio loop; its sleep is the only one that keeps heartbeats going.
        await self._consumer._net.sleep(seconds)

    async def _wait(self, future: Any, seconds: float) -> None:
        await self._consumer._manager.wait_for(future, seconds * 1000)
