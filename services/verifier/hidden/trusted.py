"""Starts, hears and ends the trusted process that runs hidden tests, in a private folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from services.runtime.scratch import Scratch
from services.verifier.hidden import pytest_arguments

_SPARE_CPU_S = 30


class Gone(Exception):
    """The process ended without having said so."""


class Late(Exception):
    """The process said nothing until the deadline."""


@contextlib.contextmanager
def private_folder(files: Mapping[str, str]) -> Iterator[Path]:
    """A folder with `files` (relative path -> text) below `tests` and an empty `tmp`; gone afterwards."""
    with Scratch("hidden") as folder:
        (folder / "tmp").mkdir()
        for path, text in {**files, pytest_arguments.INI: pytest_arguments.INI_TEXT}.items():
            place = folder / "tests" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        yield folder


class TestProcess:
    """One trusted process. Used by the thread that made it; it dies with that thread."""

    __test__ = False  # its name is no test's

    def __init__(self, folder: Path) -> None:
        """Start it on a `private_folder`. Raises OSError."""
        self._tests = str(folder / "tests")
        ours, theirs = socket.socketpair()
        self._socket = ours
        script = Path(__file__).with_name("pytest_process.py")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-B", str(script)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder / "tmp",
                env={**pytest_arguments.ENVIRONMENT, "TMPDIR": str(folder / "tmp"), "HOME": str(folder / "tmp"),
                     "LC_ALL": "C.UTF-8", "TZ": "UTC"},
                start_new_session=True,
            )  # fmt: skip
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()

    def begin(self, job: Mapping[str, Any], wall_s: float) -> None:
        """Say what to run ("module", "api", "seed"); it answers when it is ready. Raises Gone."""
        bound = {"parent": os.getpid(), "cpu_s": int(wall_s) + _SPARE_CPU_S}
        self.say({**job, **bound, "arguments": pytest_arguments.arguments(self._tests, [self._tests])})

    def say(self, message: Mapping[str, Any]) -> None:
        """Send one frame. Raises Gone."""
        raw = json.dumps(message, separators=(",", ":")).encode()
        try:
            self._socket.settimeout(None)
            self._socket.sendall(len(raw).to_bytes(4, "little") + raw)
        except OSError:
            raise Gone from None

    def hear(self, deadline: float) -> dict[str, Any]:
        """The next frame; `deadline` is a monotonic time. Raises Late or Gone."""
        size = int.from_bytes(self._exactly(4, deadline), "little")
        found: dict[str, Any] = json.loads(self._exactly(size, deadline))
        return found

    def _exactly(self, count: int, deadline: float) -> bytes:
        parts = []
        while count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Late
            self._socket.settimeout(left)
            try:
                part = self._socket.recv(min(count, 1 << 20))
            except TimeoutError:
                raise Late from None
            except OSError:
                part = b""
            if not part:
                raise Gone
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def times(self) -> tuple[float, float] | None:
        """(seconds on a CPU, seconds runnable without one) of its main thread; None where that is not told."""
        try:
            ran, waited, _ = Path(f"/proc/{self._process.pid}/schedstat").read_text().split()
        except (OSError, ValueError):
            return None
        return int(ran) / 1e9, int(waited) / 1e9

    def killed_from_outside(self) -> bool:
        """After `Gone`: whether somebody else ended it (the host's memory killer, an operator)."""
        return self._process.wait() in (-signal.SIGKILL, -signal.SIGTERM)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()
