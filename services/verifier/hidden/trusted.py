"""Starts, hears and ends the trusted process that runs hidden tests, in a private folder of its own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from services.runtime.errors import UserError
from services.verifier.hidden import pytest_arguments

_SPARE_CPU_S = 30


class Gone(Exception):
    """The process ended without having said so."""


class Late(Exception):
    """The process said nothing until the deadline."""


def _home() -> Path:
    """Where private folders lie: ours alone. Raises UserError."""
    home = Path(tempfile.gettempdir()) / f"rollstream-hidden-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        home.mkdir(mode=0o700)
    stat = home.lstat()
    if stat.st_uid != os.geteuid() or stat.st_mode & 0o077:
        raise UserError("the folder of hidden tests can be entered by others", str(home), "remove it")
    return home


def _locked_folder() -> tuple[Path, int]:
    """A new folder and the open lock on it, which says until this process ends that it is in use."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=_home()))
        with contextlib.suppress(FileNotFoundError):  # a sweep was faster than the lock
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


@contextlib.contextmanager
def private_folder(files: Mapping[str, str]) -> Iterator[Path]:
    """A folder with `files` (relative path -> text) below `tests` and an empty `tmp`; gone afterwards."""
    folder, lock = _locked_folder()
    try:
        (folder / "tmp").mkdir()
        for path, text in {**files, pytest_arguments.INI: pytest_arguments.INI_TEXT}.items():
            place = folder / "tests" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep() -> int:
    """Remove the folders of verifiers that were killed; how many there were. Raises UserError."""
    swept = 0
    for folder in _home().iterdir():
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                swept += 1
            finally:
                os.close(lock)
    return swept


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
