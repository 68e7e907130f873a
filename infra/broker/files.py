"""File primitives the broker's durability rests on: whole writes, atomic replacement, an exclusive lock."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from infra.broker.batch import Buffer
from infra.broker.errors import BrokerError


def write_at(fd: int, data: Buffer, position: int) -> None:
    """Write all of `data` at `position`; raises OSError (ENOSPC, EDQUOT, EIO) and may leave a part behind."""
    written = os.pwrite(fd, data, position)
    while written < len(data):
        done = os.pwrite(fd, memoryview(data)[written:], position + written)
        if done == 0:
            raise OSError(28, "no space left: write made no progress")
        written += done


def sync_directory(path: Path) -> None:
    """Make a rename or a new name in `path` survive power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_atomically(path: Path, data: bytes, sync: bool = True) -> None:
    """Write a file so that readers and crashes see the old content or the new one, never a mix."""
    temporary = path.with_name(path.name + ".new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_at(fd, data, 0)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)
    if sync:
        sync_directory(path.parent)


class DirectoryLock:
    """An flock on the data directory: released by the kernel however the process ends."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise BrokerError(
                f"another broker (pid {holder}) is using this data directory",
                str(directory),
                "stop it first, or give --data another directory",
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        os.close(self._fd)
