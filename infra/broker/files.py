"""File primitives the broker's durability rests on: whole writes, atomic replacement, an exclusive lock."""

from __future__ import annotations

import os
from pathlib import Path

from infra.broker.batch import Buffer
from infra.broker.errors import BrokerError
from infra.lock import Held, Lock, me


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
    """The lock on the data directory: released by the kernel however the process ends."""

    def __init__(self, directory: Path) -> None:
        try:
            self._lock = Lock(directory / "lock")
        except Held as held:
            raise BrokerError(
                f"another broker ({held}) is using this data directory",
                str(directory),
                "stop it first, or give --data another directory",
            ) from None
        self._lock.say(me())

    def release(self) -> None:
        self._lock.release()
