"""What the broker does now and then: retention, closing segments, compaction, trimming memory."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import TYPE_CHECKING

from infra.broker import compaction
from infra.broker.awake import Awake
from infra.broker.log import PartitionLog, wall_ms
from infra.broker.members import GroupState
from infra.broker.segment import Segment

if TYPE_CHECKING:
    from infra.broker.broker import Broker

logger = logging.getLogger(__name__)


class Housekeeping:
    """One task that wakes at a coarse interval; disk-heavy parts run on a thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._awake = Awake(broker.settings.data, wall_ms())
        self._task: asyncio.Task[None] | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        self._mark()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End the task; a compaction under way is abandoned, its unfinished file is removed at the next start."""
        self._stopping.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._mark()

    def _mark(self) -> None:
        try:
            self._awake.mark(wall_ms())
        except OSError as error:
            self._broker.storage_trouble("marking the time", error)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._broker.settings.housekeeping_seconds)
            self._mark()
            for connection in tuple(self._broker.connections):
                connection.trim()
            self._drop_empty_groups()
            for log in self._broker.topics.logs():
                try:
                    await self._tend(log)
                except OSError as error:
                    self._broker.storage_trouble(f"housekeeping of {log.directory.parent.name}", error)
                except Exception:  # one partition's trouble must not end retention for all
                    logger.exception("housekeeping of %s failed", log.directory)

    async def _tend(self, log: PartitionLog) -> None:
        if log.is_removed():
            return
        now = wall_ms()
        active = log.segments[-1]
        if active.size and now - active.opened_ms > log.config.segment_ms:
            log.roll()
        log.retain(now - self._awake.slept_ms)
        for segment in log.segments[:-1]:
            if log.is_removed():
                return
            if not segment.indexed and segment in log.segments:
                await self._finish(log, segment)
        for segment in log.segments:
            if not segment.used:
                segment.release()
            segment.used = False
        if log.config.compact and not log.is_removed() and compaction.due(log, now):
            await self._compact(log, now)

    async def _finish(self, log: PartitionLog, segment: Segment) -> None:
        """Sync a closed segment, then store its index, which says that the file is whole."""
        fd = os.dup(segment.fd())
        try:
            await asyncio.get_running_loop().run_in_executor(None, os.fsync, fd)
        finally:
            os.close(fd)
        if not log.is_removed() and segment in log.segments:
            segment.store_index()
            log.unsynced.discard(segment)

    async def _compact(self, log: PartitionLog, now: int) -> None:
        plan = compaction.plan(log, now)
        cleaned = await asyncio.get_running_loop().run_in_executor(None, compaction.clean, plan, self._stopping)
        if cleaned is None or log.is_removed():
            return
        compaction.install(log, plan, cleaned)

    def _drop_empty_groups(self) -> None:
        """A group without members and without offsets is nothing; forget it."""
        coordinator = self._broker.coordinator
        for name, group in list(coordinator.groups.items()):
            if group.state is GroupState.EMPTY and not group.pending and name not in self._broker.offsets.by_group:
                del coordinator.groups[name]
