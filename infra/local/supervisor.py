"""Starts processes, restarts the ones that die, and stops them all in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from infra.child import PARENT
from services.runtime.errors import UserError
from services.runtime.lifecycle import EXIT_FAIL_STOP, EXIT_USER
from services.runtime.settings import without_settings


@dataclass(frozen=True)
class ProcessSpec:
    """One process to keep alive. `ready_file` is written by the process once it serves.

    With `restart` "until_over" one that leaves with 0 is done where it says so there, and started again where it was
    merely asked to end by somebody else.
    """

    name: str
    module: str
    arguments: Sequence[str]
    ready_file: Path
    log_file: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    restart: Literal["always", "until_over"] = "always"
    stop_s: float = 20.0


@dataclass(frozen=True)
class RestartPolicy:
    """Backoff doubles from `first_s` to `longest_s`; more than `limit` ends within `window_s` stop the stack."""

    first_s: float = 0.2
    longest_s: float = 5.0
    limit: int = 6
    window_s: float = 60.0


class StackFailed(UserError):
    """A process keeps dying; the message carries the end of its log."""


class Process:
    """One supervised process and the times at which it ended."""

    def __init__(self, spec: ProcessSpec, policy: RestartPolicy, clock: Callable[[], float]) -> None:
        self.spec = spec
        self.restarts = 0
        self.finished = False
        self._policy = policy
        self._clock = clock
        self._ends: deque[float] = deque()
        self._child: subprocess.Popen[bytes] | None = None
        self._start_at: float | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def start(self) -> None:
        """Spawn it; its output goes to the log file."""
        self.spec.ready_file.unlink(missing_ok=True)
        self.spec.log_file.parent.mkdir(parents=True, exist_ok=True)
        environment = {**without_settings(os.environ), **self.spec.environment, PARENT: str(os.getpid())}
        command = [sys.executable, "-m", "infra.child", self.spec.module, *self.spec.arguments]
        with self.spec.log_file.open("ab") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._start_at = None

    def ready(self) -> dict[str, Any] | None:
        """What the process wrote when it began to serve; None before."""
        return None if self.pid is None else self._said()

    def _said(self) -> dict[str, Any] | None:
        if not self.spec.ready_file.exists():
            return None
        text = self.spec.ready_file.read_text().strip()
        try:
            loaded: dict[str, Any] = json.loads(text)
        except json.JSONDecodeError:
            loaded = {"address": text}
        return loaded

    def check(self) -> None:
        """Notice an end, and start again when the backoff is over. Raises StackFailed at the limit."""
        now = self._clock()
        if self._child is None or self.finished:
            return
        if self._start_at is not None:
            if now >= self._start_at:
                self.restarts += 1
                self.start()
            return
        code = self._child.poll()
        if code is None:
            return
        if code == 0 and self.spec.restart == "until_over" and (self._said() or {}).get("over"):
            self.finished = True
            return
        if code in (EXIT_USER, EXIT_FAIL_STOP):
            raise StackFailed(f"{self.spec.name} refuses to go on:\n{self.log_tail()}", str(self.spec.log_file))
        self._ends.append(now)
        while self._ends and now - self._ends[0] > self._policy.window_s:
            self._ends.popleft()
        if len(self._ends) > self._policy.limit:
            raise StackFailed(
                f"{self.spec.name} ended {len(self._ends)} times within {self._policy.window_s:g} s "
                f"(last exit code {code}); the end of its log:\n{self.log_tail()}",
                str(self.spec.log_file),
                "mend the cause and run the same command again: it goes on where it stopped",
            )
        wait = min(self._policy.first_s * 2 ** (len(self._ends) - 1), self._policy.longest_s)
        self._start_at = now + wait

    def log_tail(self, lines: int = 12) -> str:
        """The last lines of its log, for messages."""
        if not self.spec.log_file.exists():
            return "(no log)"
        return "\n".join(self.spec.log_file.read_text(errors="replace").splitlines()[-lines:])

    def signal(self, number: int) -> None:
        """Send a signal if it runs."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def wait(self, deadline: float) -> bool:
        """Wait for its end until `deadline` (this clock), then kill it; True when it ended by itself."""
        if self._child is None:
            return True
        self.finished = True
        try:
            self._child.wait(max(0.0, deadline - self._clock()))
            return True
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            return False


class Supervisor:
    """Keeps a set of processes alive; drive it by calling `check` a few times a second from the main thread."""

    def __init__(self, policy: RestartPolicy | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy or RestartPolicy()
        self._clock = clock
        self.processes: dict[str, Process] = {}

    def start(self, spec: ProcessSpec) -> Process:
        """Start one process under supervision."""
        process = Process(spec, self._policy, self._clock)
        self.processes[spec.name] = process
        process.start()
        return process

    def check(self) -> None:
        """Restart what died. Raises StackFailed when something keeps dying."""
        for process in self.processes.values():
            process.check()

    def wait_ready(
        self, names: Sequence[str], timeout_s: float, tick: Callable[[list[str]], None] = lambda waiting: None
    ) -> None:
        """Until all of `names` serve; `tick` is told who is still awaited. Raises StackFailed at the deadline."""
        deadline = self._clock() + timeout_s
        while True:
            self.check()
            waiting = [n for n in names if not self.processes[n].finished and self.processes[n].ready() is None]
            if not waiting:
                return
            tick(waiting)
            if self._clock() > deadline:
                tails = "\n".join(f"--- {n}\n{self.processes[n].log_tail(5)}" for n in waiting)
                raise StackFailed(f"not ready within {timeout_s:g} s: {', '.join(waiting)}\n{tails}")
            time.sleep(0.05)

    def stop(self, order: Sequence[Sequence[str]]) -> list[str]:
        """SIGTERM the groups of `order` one after the other; returns the names that had to be killed."""
        killed: list[str] = []
        for names in order:
            group = [self.processes[n] for n in names if n in self.processes]
            for process in group:
                process.signal(signal.SIGTERM)
            for process in group:
                deadline = self._clock() + process.spec.stop_s
                if not process.wait(deadline):
                    killed.append(process.spec.name)
        return killed

    def kill_all(self) -> None:
        """SIGKILL everything that still runs, and reap it."""
        for process in self.processes.values():
            process.signal(signal.SIGKILL)
        for process in self.processes.values():
            process.wait(self._clock() + 5)
