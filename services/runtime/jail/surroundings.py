"""The memory wall around this whole service (a pod's, a container's, the machine's): how high, and whom it killed.

Where jails have no control groups of their own, its count of kills is the only witness of a death by memory that was
nobody's doing inside one jail; it can be read in an unprivileged container and no jail can write it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from services.runtime.jail.cgroup import ROOT, own_groups
from services.runtime.jail.limits import host_oom_kills

_NO_LIMIT = 1 << 60


class Surroundings:
    """The memory group that this process runs in, as far as it shows here."""

    def __init__(self, root: Path = ROOT, proc: Path = Path("/proc/self/cgroup")) -> None:
        self._at, self._version = _own_memory_group(root, proc)
        self._root = root

    def memory_limit(self) -> int | None:
        """Bytes that everything here may use together: the lowest limit that shows, or the machine's memory."""
        found = [value for value in (*self._limits(), _machine_memory()) if 0 < value < _NO_LIMIT]
        return min(found, default=None)

    @property
    def walled(self) -> bool:
        """Whether a limit below the machine's memory was set."""
        limit, machine = self.memory_limit(), _machine_memory()
        return limit is not None and 0 < limit < machine

    def _limits(self) -> Iterator[int]:
        if self._at is None:
            return
        if self._version == 1:
            yield _number(self._at / "memory.limit_in_bytes")
            yield _keyed(self._at / "memory.stat", "hierarchical_memory_limit") or 0
            return
        at = self._at
        while at.is_relative_to(self._root):
            yield _number(at / "memory.max")
            at = at.parent

    def kills(self) -> int | None:
        """How many processes here the kernel has killed for memory; None where nothing counts them.

        Of the whole machine where this process is in no group of its own. A rise that belongs to others costs a
        repeat, never a verdict.
        """
        if self._at is not None:
            name = "memory.oom_control" if self._version == 1 else "memory.events"
            found = _keyed(self._at / name, "oom_kill")
            if found is not None and not self._is_root:
                return found
        return host_oom_kills()

    @property
    def _is_root(self) -> bool:
        """The root of a version 1 hierarchy counts nothing of its own; that of version 2 has no such files at all."""
        return self._at is not None and (self._at / "cgroup.sane_behavior").exists()


def _own_memory_group(root: Path, proc: Path) -> tuple[Path | None, int]:
    """(folder, version). A container shows its own group at the top, and /proc may name it by the node's path."""
    try:
        own = own_groups(proc.read_text())
    except (OSError, ValueError):
        return None, 0
    for version, base, key, file in (
        (1, root / "memory", "memory", "memory.limit_in_bytes"),
        (2, root, "unified", "memory.max"),
    ):
        if key in own:
            for at in (base / own[key].lstrip("/"), base):
                if (at / file).is_file():
                    return at, version
    return None, 0


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _number(path: Path) -> int:
    """0: none, or not to be read."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _keyed(path: Path, key: str) -> int | None:
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    except (OSError, ValueError):
        pass
    return None
