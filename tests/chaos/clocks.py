"""Wall clocks of live processes that can be set, each by a file of its own, through a small preloaded library."""

from __future__ import annotations

import dataclasses
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from infra.local.supervisor import Process, ProcessSpec, RestartPolicy, Supervisor

HOUR_S = 3600
SOURCE = Path(__file__).with_name("clock.c")


class Clocks:
    """`there` is False where no C compiler is: clocks are left alone then, and `why` says so."""

    why = "clocks were left alone: there is no C compiler (cc) to make the library that sets them"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.there = shutil.which("cc") is not None
        self._library = folder / "clock.so"
        if self.there:
            command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(SOURCE), "-ldl"]
            subprocess.run(command, check=True, capture_output=True, timeout=60)

    def environment(self, name: str) -> dict[str, str]:
        """What a process must be started with so that its clock can be set."""
        if not self.there:
            return {}
        self._write(name, None)
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._folder / name)}

    def set(self, names: Iterable[str], seconds: int) -> None:
        """So many seconds from the machine's clock, at once and over restarts."""
        for name in names:
            self._write(name, seconds)

    def _write(self, name: str, seconds: int | None) -> None:
        """In place, since processes have mapped it; None: only make it when it is not there."""
        fd = os.open(self._folder / name, os.O_RDWR | os.O_CREAT)
        try:
            if seconds is not None or os.fstat(fd).st_size < 8:
                os.pwrite(fd, struct.pack("=q", seconds or 0), 0)
        finally:
            os.close(fd)


class ClockedSupervisor(Supervisor):
    """Starts every process with a clock that can be set, and again however it ended: SIGTERM is a fault here."""

    def __init__(self, policy: RestartPolicy, environment: Callable[[str], dict[str, str]]) -> None:
        super().__init__(policy)
        self._environment = environment

    def start(self, spec: ProcessSpec) -> Process:
        clocked = {**spec.environment, **self._environment(spec.name)}
        return super().start(dataclasses.replace(spec, environment=clocked, restart="always"))
