"""The broker: its parts wired together, a loopback listener, a clean start and a clean end."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.broker import apis, wire
from infra.broker.connection import Connection
from infra.broker.errors import BrokerError
from infra.broker.files import DirectoryLock
from infra.broker.flush import Flusher, FsyncPolicy
from infra.broker.groups import GroupCoordinator, GroupTimeouts
from infra.broker.housekeeping import Housekeeping
from infra.broker.members import Group
from infra.broker.offsets import OffsetStore
from infra.broker.reply import Call, Reply
from infra.broker.topics import Topics, raise_file_limit

logger = logging.getLogger(__name__)

STORAGE_LOG_SECONDS = 5.0
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)]|([^\s:\[\]]+)):(\d{1,5})")
_TRIES = 20
"""To find a port that is free at every address of a name."""


@dataclass(frozen=True)
class Settings:
    """What a broker is started with. Sizes in bytes, times in seconds."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""
    """HOST:PORT that clients are told instead of where it listens."""
    fsync: FsyncPolicy = field(default_factory=FsyncPolicy)
    max_request_bytes: int = 100 * 1024 * 1024
    max_fetch_bytes: int = 16 * 1024 * 1024
    housekeeping_seconds: float = 5.0
    timeouts: GroupTimeouts = field(default_factory=GroupTimeouts)
    verify: bool = False
    """Check every batch of the log at the start, not only those after the last clean point."""


class Broker:
    """One node that leads every partition and coordinates every group of its data directory."""

    def __init__(self, settings: Settings) -> None:
        _check_loopback(settings.host)
        if settings.advertise and not _ADDRESS.fullmatch(settings.advertise):
            raise BrokerError(f"{settings.advertise!r} is no HOST:PORT", "--advertise", "for example 127.0.0.1:19092")
        self.settings = settings
        self.host, self.port = settings.host, settings.port
        raise_file_limit()
        try:
            settings.data.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(settings.data)
            self.topics = Topics(settings.data, settings.verify)
            self.offsets = OffsetStore(settings.data / "groups.journal")
        except OSError as error:
            raise BrokerError(
                f"cannot use the data directory: {error.strerror}",
                str(error.filename or settings.data),
                "free space, fix its permissions, or give --data another directory",
            ) from error
        self.coordinator = GroupCoordinator(time.monotonic, settings.timeouts, self._remember)
        for group in self.offsets.restored.values():
            self.coordinator.restore(group)
        self.flusher = Flusher(settings.fsync, self.offsets.journal)
        self.connections: set[Connection] = set()
        self._housekeeping = Housekeeping(self)
        self._server: asyncio.Server | None = None
        self._group_timer: asyncio.TimerHandle | None = None
        self._complained: dict[str, float] = {}

    async def start(self) -> None:
        """Bind and serve; raises BrokerError when the port is taken."""
        try:
            self._server = await self._listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise BrokerError(
                    f"port {self.port} is in use",
                    f"{self.host}:{self.port}",
                    "stop what listens there, or use --port 0 for any free port",
                ) from error
            raise BrokerError(f"cannot listen: {error.strerror}", f"{self.host}:{self.port}") from error
        self.port = self._server.sockets[0].getsockname()[1]
        self._housekeeping.start()
        self.arm_groups()

    async def _listen(self) -> asyncio.Server:
        """The same port at every address of the host: clients are told one number."""
        loop, port = asyncio.get_running_loop(), self.port
        for _ in range(_TRIES):
            try:
                server = await loop.create_server(
                    lambda: Connection(self._serve, self.settings.max_request_bytes, self.connections),
                    self.host,
                    port,
                    backlog=512,
                )
            except OSError as error:
                if error.errno != errno.EADDRINUSE or self.port:
                    raise
                port = 0  # what was free at one address is not at another
                continue
            found = [sock.getsockname()[1] for sock in server.sockets]
            if len(set(found)) == 1:
                return server
            server.close()
            port = found[0]
        raise OSError(errno.EADDRINUSE, "no port is free at every address")

    @property
    def advertised(self) -> tuple[str, int]:
        """Host and port under which clients are told to reach this node."""
        told = _ADDRESS.fullmatch(self.settings.advertise)
        return (told[1] or told[2], int(told[3])) if told else (self.host, self.port)

    @property
    def bootstrap(self) -> str:
        """The address clients are given."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def _serve(self, head: wire.RequestHead, call: Call, frame: memoryview) -> Reply:
        return apis.serve(self, head, call, frame)

    def encode(self, call: Call, response: Any) -> bytes:
        """A framed response, for handlers that answer later."""
        return apis.encode(call, response)

    # -- groups ------------------------------------------------------------------------------------------------------

    def arm_groups(self) -> None:
        """Set the one timer to when the coordinator next has something to do."""
        if self._group_timer is not None:
            self._group_timer.cancel()
            self._group_timer = None
        due = self.coordinator.next_due()
        if due is not None:
            delay = max(0.01, due - time.monotonic())
            self._group_timer = asyncio.get_running_loop().call_later(delay, self._group_tick)

    def _group_tick(self) -> None:
        self._group_timer = None
        self.coordinator.tick()
        self.arm_groups()

    def _remember(self, group: Group) -> None:
        try:
            self.offsets.remember(group)
        except OSError as error:  # the group works on; only a restart would make its members join again
            self.storage_trouble("group membership", error)
        self.flusher.wrote(None)

    # -- trouble -----------------------------------------------------------------------------------------------------

    def storage_trouble(self, what: str, error: OSError) -> None:
        """Log a failing disk, at most every few seconds per subject."""
        now = time.monotonic()
        if now - self._complained.get(what, -STORAGE_LOG_SECONDS) >= STORAGE_LOG_SECONDS:
            self._complained[what] = now
            logger.error("%s failed: %s; free space under %s", what, error, self.settings.data)

    def described_settings(self) -> dict[str, str]:
        """Settings under the names that Apache Kafka's broker configuration uses."""
        timeouts = self.settings.timeouts
        return {
            "auto.create.topics.enable": "false",
            "broker.id": "1",
            "default.replication.factor": "1",
            "group.initial.rebalance.delay.ms": str(int(timeouts.initial_delay * 1000)),
            "group.max.session.timeout.ms": str(int(timeouts.max_session * 1000)),
            "group.min.session.timeout.ms": str(int(timeouts.min_session * 1000)),
            "log.dirs": str(self.settings.data),
            "num.partitions": "1",
            "socket.request.max.bytes": str(self.settings.max_request_bytes),
        }

    async def stop(self) -> None:
        """Stop serving, sync everything, release the directory."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()
        await self._housekeeping.stop()
        if self._group_timer is not None:
            self._group_timer.cancel()
        await self.flusher.close(self.topics.logs())
        self.topics.close()
        self.offsets.journal.close()
        self._lock.release()


def _check_loopback(host: str) -> None:
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise BrokerError(
            f"{host!r} is not a loopback address",
            "--host",
            "use 127.0.0.1: this broker has no authentication; serve other machines with Apache Kafka",
        )
