"""A lock that dies with its holder: an flock on a file that says who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from pathlib import Path

_TRIES, _PAUSE_S = 5, 0.02
"""Who only asks (`is_held`) holds the lock for a moment too."""


class Held(Exception):
    """Somebody else holds the lock; the text is what the holder wrote into it."""


class Lock:
    """An exclusive flock, released by the kernel however the process ends. What started processes inherit is not it."""

    def __init__(self, path: Path) -> None:
        """Take the lock on a file, made where it is missing. Raises Held, and OSError when it cannot be opened."""
        self.path = path
        tries = _TRIES
        while True:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._stands():
                    return
            except BlockingIOError:
                text = os.pread(self._fd, 4096, 0).decode(errors="replace").strip()
                os.close(self._fd)
                tries -= 1
                if not tries:
                    raise Held(text) from None
                time.sleep(_PAUSE_S)
                continue
            except OSError:
                os.close(self._fd)
                raise
            os.close(self._fd)  # its holder removed it between our two calls

    def _stands(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._fd), os.stat(self.path))
        return False

    @property
    def links(self) -> int:
        """Names that the file has: more than one where somebody copied a folder as hard links."""
        return os.fstat(self._fd).st_nlink

    def say(self, text: str) -> None:
        """Write what others read, whoever holds the lock."""
        os.ftruncate(self._fd, os.pwrite(self._fd, text.encode(), 0))

    def release(self) -> None:
        """Give it back. Nothing when that was done."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def me() -> str:
    """This process as a person finds it. Never an identity: numbers come again, and containers have their own."""
    return f"pid {os.getpid()} on {socket.gethostname()}"


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock on a file now; False where there is none, or none that may be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False
