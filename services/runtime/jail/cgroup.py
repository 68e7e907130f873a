"""Control groups of jail slots: version 1, version 2, or none, behind one small interface.

Counters are read as differences over one jail's life, because a slot's group is used again after it was found empty
(making and removing a memory group for every jail would leave thousands of dying groups in the kernel). Heap, tmpfs,
page cache and the kernel's own memory for a jail (inodes, mounts, pipes) all count as its memory in both versions.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from services.runtime.jail.limits import JailFault, Limits

ROOT = Path("/sys/fs/cgroup")
PREFIX = "rollstream-jail-"
SERVICES = "rollstream-services"
"""Leaf for the processes of a version 2 group that is to have groups below it: it may hold one of the two kinds."""
_V1 = ("memory", "pids", "cpuacct")
_NEEDED = frozenset({"memory", "pids"})


@dataclass(frozen=True)
class Layout:
    """Where groups can be made. `version` 0: nowhere. `parents`: controller -> folder (v2 uses the key "unified")."""

    version: int
    parents: dict[str, Path]


def own_groups(text: str) -> dict[str, str]:
    """`/proc/self/cgroup` as controller -> path; the v2 line has the key "unified"."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(",") if controllers else ["unified"]:
            found[name.removeprefix("name=")] = path
    return found


def detect(root: Path = ROOT, proc: Path = Path("/proc/self/cgroup")) -> Layout:
    """The layout that this process can write to, tried by making a group; version 0 when there is none."""
    try:
        own = own_groups(proc.read_text())
    except (OSError, ValueError):
        return Layout(0, {})
    v1 = {name: _writable(root / name, own.get(name, "/")) for name in _V1}
    if all(v1.values()):
        return Layout(1, {name: path for name, path in v1.items() if path is not None})
    base = _unified(root, own.get("unified", "/"))
    return Layout(0, {}) if base is None else Layout(2, {"unified": base})


def _unified(root: Path, own: str) -> Path | None:
    """Folder below which groups with memory and process bounds can be made, under version 2; None: there is none.

    Tried in this order: our own group, the root of the hierarchy (which alone may hold processes beside groups), and
    our own group once its processes have moved to a leaf of their own: what a container, or a delegated user, needs.
    """
    mine = root / own.lstrip("/")
    if mine.name == SERVICES:  # a service before us has moved us
        mine = mine.parent
    for base, move in ((mine, False), (root, False), (mine, True)):
        with contextlib.suppress(OSError):
            if not set((base / "cgroup.controllers").read_text().split()) >= _NEEDED:
                continue
            if move:
                _empty(base)
            if not _enabled(base):
                (base / "cgroup.subtree_control").write_text("+memory +pids")
            if _enabled(base) and _writable(base, "/") is not None:
                return base
    return None


def _enabled(base: Path) -> bool:
    found = (base / "cgroup.subtree_control").read_text().split()
    return {name.lstrip("+") for name in found} >= _NEEDED


def _empty(base: Path, rounds: int = 10) -> None:
    """Move every process of the group into its leaf. Raises OSError when the leaf cannot be made."""
    leaf = base / SERVICES
    leaf.mkdir(exist_ok=True)
    for _ in range(rounds):  # one may have been forked since it was read
        members = (base / "cgroup.procs").read_text().split()
        if not members:
            return
        for pid in members:
            with contextlib.suppress(OSError):  # ended, or not ours to move: the write to subtree_control will tell
                (leaf / "cgroup.procs").write_text(pid)


def _writable(mount: Path, own: str) -> Path | None:
    for base in (mount / own.lstrip("/"), mount):
        probe = base / f"{PREFIX}probe-{os.getpid()}"
        try:
            probe.mkdir()
            probe.rmdir()
        except OSError:
            continue
        return base
    return None


@dataclass(frozen=True)
class Counters:
    """Cumulative counters of a group: CPU in seconds, kills by its own memory limit, forks denied by its own limit."""

    cpu_s: float
    oom_kills: int
    pids_denied: int


class Group:
    """One slot's group under every controller of the layout."""

    def __init__(self, layout: Layout, name: str) -> None:
        self.version = layout.version
        self._peak_fd = -1  # version 2: a reset holds for the file description that asked for it
        self._at = {key: parent / name for key, parent in layout.parents.items()}

    @property
    def join_paths(self) -> list[str]:
        """Files into which a process writes "0" to join."""
        return [str(path / "cgroup.procs") for path in self._at.values()]

    def create(self) -> None:
        """Make the group. Raises JailFault."""
        try:
            for path in self._at.values():
                path.mkdir(exist_ok=True)
        except OSError as error:
            raise JailFault(f"control group cannot be made: {error}") from error

    def limit(self, limits: Limits) -> None:
        """Apply memory and process bounds (the process count includes bubblewrap's own two). Raises JailFault."""
        pids = str(limits.processes + 2)
        memory = str(limits.memory_bytes)
        try:
            if self.version == 1:
                self._write("pids", "pids.max", pids)
                _set_v1_memory(self._at["memory"], memory)
            elif self.version == 2:
                self._write("unified", "pids.max", pids)
                self._write("unified", "memory.max", memory)
                with contextlib.suppress(OSError):  # absent without swap accounting
                    self._write("unified", "memory.swap.max", "0")
                # memory.oom.group stays 0, as under version 1: one greedy run does not end the fork server with it.
        except OSError as error:
            raise JailFault(f"control group limit: {error}") from error

    def counters(self) -> Counters | None:
        """Counters now; None without a control group. Raises JailFault."""
        try:
            if self.version == 1:
                oom = _keyed(self._at["memory"] / "memory.oom_control", "oom_kill")
                denied = _keyed(self._at["pids"] / "pids.events", "max")
                nanos = int((self._at["cpuacct"] / "cpuacct.usage").read_text())
                return Counters(nanos / 1e9, oom, denied)
            if self.version == 2:
                base = self._at["unified"]
                micros = _keyed(base / "cpu.stat", "usage_usec")
                oom = _keyed(base / "memory.events", "oom_kill")
                return Counters(micros / 1e6, oom, _keyed(base / "pids.events", "max"))
        except (OSError, ValueError) as error:
            raise JailFault(f"control group counters: {error}") from error
        return None

    def peak(self, reset: bool = False) -> int | None:
        """Largest memory use in bytes since the last reset; None where the kernel does not tell.

        Version 2 can reset since Linux 6.12; before that the peak of all jails of the slot would be told, so none is.
        """
        try:
            if self.version == 1 and reset:
                self._write("memory", "memory.max_usage_in_bytes", "0")
            elif self.version == 1:
                return int((self._at["memory"] / "memory.max_usage_in_bytes").read_text())
            elif self.version == 2 and reset:
                self._reset_peak(self._at["unified"] / "memory.peak")
            elif self._peak_fd >= 0:
                return int(os.pread(self._peak_fd, 32, 0))
        except (OSError, ValueError):
            pass
        return None

    def _reset_peak(self, path: Path) -> None:
        self.forget()
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.write(fd, b"reset")
        except OSError:
            os.close(fd)
            raise
        self._peak_fd = fd

    def forget(self) -> None:
        """Close what is held open of the group."""
        if self._peak_fd >= 0:
            os.close(self._peak_fd)
            self._peak_fd = -1

    def members(self) -> set[int]:
        """Process ids (in this process' namespace) now in the group."""
        found: set[int] = set()
        for path in self._at.values():
            with contextlib.suppress(OSError):
                found.update(int(line) for line in (path / "cgroup.procs").read_text().split())
        return found - {0}

    def kill(self, deadline_s: float = 2.0) -> bool:
        """Kill every member until the group is empty; False when it is not within the deadline."""
        end = time.monotonic() + deadline_s
        pause = 0.0005
        if self.version == 2 and self.members():
            with contextlib.suppress(OSError):  # since Linux 5.14: all at once, also those that are just forking
                self._write("unified", "cgroup.kill", "1")
        while True:
            members = self.members()
            if not members:
                return True
            for pid in members:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > end:
                return False
            time.sleep(pause)
            pause = min(pause * 2, 0.02)

    def remove(self, deadline_s: float = 2.0) -> bool:
        """Kill what is inside and remove the group; False when something is left."""
        self.forget()
        if not self.kill(deadline_s):
            return False
        end = time.monotonic() + deadline_s
        for path in self._at.values():
            while True:
                try:
                    path.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > end:
                        return False
                    time.sleep(0.005)
        return True

    def _write(self, key: str, file: str, text: str) -> None:
        (self._at[key] / file).write_text(text)


def _set_v1_memory(base: Path, memory: str) -> None:
    # memsw must never be below memory: when lowering, memory first; when raising, memsw first. One of the orders works.
    swap = base / "memory.memsw.limit_in_bytes"
    both = [base / "memory.limit_in_bytes", *([swap] if swap.exists() else [])]
    for order in (both, both[::-1]):
        try:
            for path in order:
                path.write_text(memory)
            return
        except OSError as error:
            last = error
    raise last


def _keyed(path: Path, key: str) -> int:
    for line in path.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def leftovers(layout: Layout, prefix: str) -> Iterator[Group]:
    """Groups of earlier instances whose name starts with `prefix`."""
    names: set[str] = set()
    for parent in layout.parents.values():
        with contextlib.suppress(OSError):
            names.update(path.name for path in parent.iterdir() if path.name.startswith(prefix))
    for name in sorted(names):
        yield Group(layout, name)
