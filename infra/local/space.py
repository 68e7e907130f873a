"""Whether the run's disks take anything: a full one stops the services' work, and a person has to hear of it."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PROBE_BYTES = 64 * 1024
EVERY_S = 2.0
FULL = (errno.ENOSPC, errno.EDQUOT)


class SpaceWatch:
    """Tries every two seconds whether a little can be written into each folder: quotas count, and not only free blocks.

    `clock` gives monotonic seconds.
    """

    def __init__(self, folders: Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._folders = folders
        self._clock = clock
        self._next = 0.0
        self._trouble = ""

    def trouble(self) -> str:
        """What is full and what to do, in one line; empty while there is room."""
        if self._clock() >= self._next:
            self._trouble = next((said for folder in self._folders if (said := self._try(folder))), "")
            self._next = self._clock() + EVERY_S
        return self._trouble

    def _try(self, folder: Path) -> str:
        try:
            with tempfile.TemporaryFile(dir=folder) as probe:
                probe.write(bytes(PROBE_BYTES))
                probe.flush()
                os.fsync(probe.fileno())
        except OSError as e:
            return full(folder, e) if e.errno in FULL else ""
        return ""


def full(folder: Path, error: OSError) -> str:
    """One line about a folder that takes nothing more."""
    try:
        left = f"{shutil.disk_usage(folder).free / 2**20:.1f} MB free"
    except OSError:
        left = "how much is free is unknown"
    return f"DISK FULL: {folder} ({error.strerror}, {left}); free some space and the run goes on by itself"
