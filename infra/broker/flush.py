"""When written bytes are forced to the disk: never, at an interval, or before each acknowledgement.

Acknowledged always means "written to the operating system", which survives the death of the broker's process. Syncing
adds survival of a power cut. The waiting is done on one thread, so the event loop goes on serving.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from infra.broker.errors import BrokerError
from infra.broker.files import sync_directory
from infra.broker.journal import Journal
from infra.broker.log import PartitionLog

logger = logging.getLogger(__name__)


class FsyncMode(Enum):
    """The three policies of `--fsync`."""

    NEVER = "never"
    INTERVAL = "interval"
    ALWAYS = "always"


@dataclass(frozen=True)
class FsyncPolicy:
    """A mode, and for `interval` the seconds between two syncs."""

    mode: FsyncMode = FsyncMode.NEVER
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str) -> FsyncPolicy:
        """`never`, `always` or `interval:MS`; raises BrokerError."""
        if text in ("never", "always"):
            return cls(FsyncMode(text))
        match = re.fullmatch(r"interval:(\d+)", text)
        if match and int(match[1]) > 0:
            return cls(FsyncMode.INTERVAL, int(match[1]) / 1000)
        raise BrokerError(f"unknown fsync policy {text!r}", "--fsync", "use never, interval:MS or always")

    def describe(self) -> str:
        """The text that `parse` takes."""
        return f"interval:{round(self.seconds * 1000)}" if self.mode is FsyncMode.INTERVAL else self.mode.value


@dataclass(frozen=True)
class _Job:
    fd: int
    folder: Path | None


def _run(jobs: list[_Job]) -> None:
    """Sync and close duplicated descriptors; the first error is raised after all were tried."""
    problem: OSError | None = None
    for job in jobs:
        try:
            os.fsync(job.fd)
            if job.folder is not None:
                sync_directory(job.folder)
        except OSError as error:
            problem = problem or error
        finally:
            os.close(job.fd)
    if problem:
        raise problem


class Flusher:
    """Collects what was written since the last sync and syncs it together (group commit)."""

    def __init__(self, policy: FsyncPolicy, journal: Journal) -> None:
        self.policy = policy
        self._journal = journal
        self._logs: set[PartitionLog] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def before_ack(self) -> bool:
        """True when an acknowledgement must wait for `synced`."""
        return self.policy.mode is FsyncMode.ALWAYS

    def wrote(self, log: PartitionLog | None) -> None:
        """Note a write to a log (or to the journal, None); under `interval` this arms the timer."""
        if self.policy.mode is FsyncMode.NEVER:
            return
        if log is not None:
            self._logs.add(log)
        if self.policy.mode is FsyncMode.INTERVAL and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.policy.seconds, self._interval)

    def _interval(self) -> None:
        self._timer = None
        if self._task is not None and not self._task.done():
            self.wrote(None)  # the last sync still runs: come again
        else:
            self._start()

    def synced(self) -> asyncio.Future[None]:
        """A future that is done once everything written so far is on the disk; it fails with the OSError otherwise."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._start()
        return future

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while self._logs or self._waiting:
            logs, self._logs = self._logs, set()
            waiting, self._waiting = self._waiting, []
            segments = [(log, segment) for log in logs for segment in log.unsynced]
            for log in logs:
                log.unsynced.clear()
            error: OSError | None = None
            try:
                jobs = [_Job(os.dup(s.fd()), None if s.name_synced else log.directory) for log, s in segments]
                if self._journal.unsynced:
                    jobs.append(_Job(self._journal.duplicate_fd(), None))
                    self._journal.unsynced = False
                await asyncio.get_running_loop().run_in_executor(None, _run, jobs)
                for _, segment in segments:
                    segment.name_synced = True
            except OSError as problem:
                error = problem
                for log, segment in segments:
                    log.unsynced.add(segment)
                logger.error("sync failed: %s; what was written may not survive a power cut", problem)
            for future in waiting:
                if not future.done():
                    if error:
                        future.set_exception(error)
                    else:
                        future.set_result(None)
            if self.policy.mode is FsyncMode.INTERVAL:
                return

    async def close(self, logs: list[PartitionLog]) -> None:
        """Sync everything that was ever written and not yet synced."""
        if self._timer:
            self._timer.cancel()
        if self._task:
            await self._task
        jobs = [_Job(os.dup(s.fd()), log.directory) for log in logs for s in log.unsynced]
        jobs.append(_Job(self._journal.duplicate_fd(), None))
        try:
            await asyncio.get_running_loop().run_in_executor(None, _run, jobs)
        except OSError as error:
            logger.error("final sync failed: %s", error)
