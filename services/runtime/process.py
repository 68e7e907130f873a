"""What a service's process has from its first second to its last: a log, health over HTTP, signals, a sense of life."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from services.runtime import lifecycle
from services.runtime.address import joined
from services.runtime.clock import Clock, SystemClock
from services.runtime.health import LOOPBACK, HealthServer
from services.runtime.logs import Log
from services.runtime.metrics import Metrics
from services.runtime.settings import RunSettings

MAIN = "main"
"""The name of the thread that polls, among those that beat."""
SAY_EVERY_S = 5.0
"""How often a wait says what it waits for."""


class Stopped(BaseException):
    """The process was asked to end while it waited or started.

    No Exception, as KeyboardInterrupt is none: what tries something else after a failure must not try it now.
    """


def _version() -> str:
    """Of the installed package; code that lies somewhere without being installed has none."""
    try:
        return importlib.metadata.version("rollstream")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class ServiceProcess:
    """One service's process. `stop` ends the service; `asked` says that whoever runs the process wants it to end.

    Liveness says that every thread that owes a turn has taken one: within `runtime.stuck_s`, or within
    `runtime.start_s` while it does `unturned` work. It never asks broker or store, since a restart mends neither.
    With `stay`, a service whose work is over goes on answering health until it is asked to end.
    """

    def __init__(
        self,
        service: str,
        settings: RunSettings,
        *,
        ready_file: Path | None = None,
        health_host: str = LOOPBACK,
        health_port: int = 0,
        stay: bool = False,
        clock: Clock | None = None,
        log: Log | None = None,
    ) -> None:
        self.service = service
        self.settings = settings
        self.crash_file = ready_file.with_suffix(".crash.json") if ready_file else None
        """Where crashes on one record are counted, so that the count outlives them."""
        self._ready_file = ready_file
        self.clock = clock or SystemClock()
        self.log = log or Log(service, settings.run_id)
        self.metrics = Metrics(service)
        self.stop = threading.Event()
        self.asked = threading.Event()
        self.health: HealthServer | None = None
        self.is_ready: Callable[[], bool] = lambda: False
        self.before_scrape: Callable[[], None] = lambda: None
        self._address = (health_host, health_port)
        self._stay = stay
        self._over = False
        self._beats: dict[str, tuple[float, float]] = {}
        self._interruptible = False
        self._signalled = False
        self.starting()

    # --- life and readiness ----------------------------------------------------------------------------------------

    def beat(self, thread: str = MAIN) -> None:
        """A thread has taken its turn, and owes the next within `runtime.stuck_s`."""
        self._beats[thread] = (self.clock.monotonic(), self.settings.runtime.stuck_s)

    def turn(self) -> None:
        """A turn of a wait: a beat, and Stopped when the process was asked to end."""
        self.beat()
        if self.stop.is_set():
            raise Stopped

    def starting(self) -> None:
        """From here to `started` the main thread takes no turns: it has `runtime.start_s`, and a signal interrupts it
        with Stopped."""
        self._beats[MAIN] = (self.clock.monotonic(), self.settings.runtime.start_s)
        self._interruptible = self._signalled
        if self.stop.is_set():
            raise Stopped

    def started(self) -> None:
        self._interruptible = False
        self.beat()

    @contextlib.contextmanager
    def unturned(self) -> Iterator[None]:
        """Work of the main thread that takes no turns, such as reading a checkpoint; see `starting`."""
        self.starting()
        try:
            yield
        finally:
            self.started()
        self.turn()

    def ending(self) -> None:
        """From here on only the main thread owes anything, and that only to its own watchdog."""
        self._beats = {MAIN: (self.clock.monotonic(), self.settings.runtime.grace_s + self.settings.runtime.stuck_s)}

    @property
    def live(self) -> bool:
        now = self.clock.monotonic()
        return all(now - at < allowed for at, allowed in list(self._beats.values()))

    @property
    def ready(self) -> bool:
        """Whether the service does its work; one whose work is over has done it."""
        return self._over or self.is_ready()

    # --- begin and end ---------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Answer health from now on; nothing when it does already. Raises UserError for a port that is taken."""
        if self.health is not None:
            return
        host, port = self._address
        self.health = HealthServer(lambda: self.live, lambda: self.ready, self._scrape, port, host)
        self.health.start()
        if self._ready_file:
            lifecycle.write_ready_file(self._ready_file, self.health.port)
        self.log.info(
            "starting", version=_version(), pid=os.getpid(),
            python=sys.version.split()[0], health=joined(host, self.health.port),
        )  # fmt: skip

    def _scrape(self) -> bytes:
        self.before_scrape()
        self.metrics.ready.set(1 if self.ready else 0)
        self.metrics.finished.set(1 if self._over else 0)
        return self.metrics.text()

    def rest(self) -> None:
        """The work is over, unless the process was asked to end. With `stay`, wait here until it is asked: whoever
        restarts what exits would start it again and again."""
        if self.asked.is_set():
            return
        if self._ready_file and self.health is not None:
            lifecycle.write_ready_file(self._ready_file, self.health.port, over=True)
        if not self._stay:
            return
        self._over = True
        self.log.info("the work is over; staying until SIGTERM, since a restart would find nothing to do")
        while not self.asked.wait(self.settings.runtime.stuck_s / 4):
            self.beat()

    def close(self) -> None:
        """Stop answering health."""
        if self.health is not None:
            self.health.close()
            self.health = None

    # --- signals ---------------------------------------------------------------------------------------------------

    def watch_signals(self) -> None:
        """SIGTERM and SIGINT ask for a drain, a second one ends the process at once; so does a drain that takes longer
        than `runtime.grace_s`. Main thread only.

        A thread reads the signals from the interpreter's wake-up socket: events are not safe to set in a handler, and a
        main thread inside a library's C code runs no handler at all.
        """
        if self._signalled:
            return
        self._signalled = True
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        self._wakeup = writer  # closed, it would leave the interpreter a number that is somebody else's file
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._interrupt)
        threading.Thread(target=self._oversee, args=(reader,), name="signals", daemon=True).start()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """The handler proper, on the main thread; all else about a signal happens on the thread that reads it."""
        del number, frame
        if self._interruptible:
            self._interruptible = False
            raise Stopped

    def _oversee(self, reader: socket.socket) -> None:
        wanted = {int(signal.SIGTERM), int(signal.SIGINT)}
        while reader.recv(1)[0] not in wanted:
            continue
        self.asked.set()
        self.stop.set()
        reader.settimeout(self.settings.runtime.grace_s)
        try:
            while (number := reader.recv(1)[0]) not in wanted:
                continue
            os._exit(128 + number)
        except TimeoutError:
            seconds = self.settings.runtime.grace_s
            self.log.error("the shutdown did not end within its deadlines; leaving hard", seconds=seconds)
            os._exit(lifecycle.EXIT_CRASH)
