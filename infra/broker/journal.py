"""A small append-only file of JSON entries with checksums: the durable memory of group offsets and memberships."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from crc32c import crc32c

from infra.broker.files import replace_atomically, write_at

logger = logging.getLogger(__name__)

REWRITE_FROM = 1 << 20  # bytes; below this the file is never rewritten


def _line(entry: Any) -> bytes:
    body = json.dumps(entry, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32c(body), body)


class Journal:
    """One line per entry: eight hex digits of CRC-32C, a space, JSON. A torn tail is cut when the file is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._size = 0
        self._compact_size = 0
        self._torn = False
        self.unsynced = False

    def replay(self) -> Iterator[Any]:
        """Yield every intact entry in order, then cut the file behind the last one."""
        with self._path.open("rb") as file:
            for line in file:
                body = line[9:-1]
                try:
                    if not line.endswith(b"\n") or int(line[:8], 16) != crc32c(body):
                        break
                    entry = json.loads(body)
                except ValueError:
                    break
                self._size += len(line)
                yield entry
        total = os.fstat(self._fd).st_size
        if total > self._size:
            logger.warning("cut %d torn bytes off %s", total - self._size, self._path)
            os.ftruncate(self._fd, self._size)

    def append(self, entry: Any) -> None:
        """Write one entry; raises OSError and leaves the journal as it was when the disk is full."""
        line = _line(entry)
        try:
            if self._torn:
                os.ftruncate(self._fd, self._size)
                self._torn = False
            write_at(self._fd, line, self._size)
        except OSError:
            self._torn = True
            raise
        self._size += len(line)
        self.unsynced = True

    def worth_rewriting(self) -> bool:
        """True when most of the file is history."""
        return self._size > REWRITE_FROM and self._size > 4 * self._compact_size

    def rewrite(self, entries: Iterable[Any]) -> None:
        """Replace the file by `entries` (the live state), atomically and synced; on OSError nothing changed."""
        data = b"".join(_line(entry) for entry in entries)
        replace_atomically(self._path, data)
        os.close(self._fd)
        self._fd = os.open(self._path, os.O_RDWR)
        self._size = self._compact_size = len(data)
        self._torn = self.unsynced = False

    def duplicate_fd(self) -> int:
        """A descriptor of the same file for a syncing thread; the caller closes it."""
        return os.dup(self._fd)

    def close(self) -> None:
        os.close(self._fd)
