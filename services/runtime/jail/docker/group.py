"""What the kernel counts of a container: a control group of ours above it, which outlives it, and its own one.

An engine removes a container's group as soon as its first process ends, and what was counted goes with it (its own
`OOMKilled` missed one of 80 kills on a loaded machine). So each container gets a parent group that is ours, where we
can write the root of the hierarchies of the engine's machine; elsewhere its own group is read while it lives.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from services.runtime.jail import cgroup
from services.runtime.jail.limits import MIB, JailFault, Limits, Usage

PREFIX = "rollstream-docker-"
SLACK = 4 * MIB
"""How much more memory the engine allows than the group above: the upper limit must be the one that is met."""
OWN_PROCESSES = 2
"""docker-init, and one more so that as many processes fit as under bubblewrap."""
_NOTHING = cgroup.Layout(0, {})


def detect(info: Mapping[str, Any], local: bool, root: Path = cgroup.ROOT) -> cgroup.Layout:
    """Where groups above containers can be made, from the engine's `/info`; version 0: nowhere.

    The engine takes one path for all hierarchies, from their roots on; under its systemd driver a parent must be a
    slice that systemd owns, so there is none.
    """
    if not local or info.get("CgroupDriver") != "cgroupfs" or os.geteuid() != 0:
        return _NOTHING
    try:
        own = cgroup.own_groups(Path("/proc/self/cgroup").read_text())
    except (OSError, ValueError):
        return _NOTHING
    if str(info.get("CgroupVersion")) == "2":
        with contextlib.suppress(OSError):
            (root / "cgroup.subtree_control").write_text("+memory +pids +cpu")
            return cgroup.Layout(2, {"unified": root})
        return _NOTHING
    parents = {name: root / name for name in own if (root / name).is_dir()}
    if not {"memory", "pids", "cpuacct"} <= set(parents) or not all(os.access(p, os.W_OK) for p in parents.values()):
        return _NOTHING
    return cgroup.Layout(1, parents)


@dataclass(frozen=True)
class Ended:
    """What the engine says about a container: still running when asked, killed for memory."""

    running: bool
    oom_killed: bool


class Evidence:
    """Counters of one container. `parent` is the engine's `cgroup_parent`; None: the engine's own choice."""

    def __init__(self, layout: cgroup.Layout, name: str, limits: Limits, helpers: int = 0) -> None:
        """Make the group above. `helpers`: threads of the runtime itself that count as processes. Raises JailFault."""
        self._layout, self._limits, self._helpers = layout, limits, helpers
        self._group = cgroup.Group(layout, name)
        self._own = cgroup.Group(_NOTHING, "")
        self._pid = 0
        self._events = -1
        self._full = limits.processes + OWN_PROCESSES + 1
        self._full_at_start = False
        self.parent = f"/{name}" if layout.version else None
        if layout.version:
            self._at = {key: at / name for key, at in layout.parents.items()}
            remove(layout, name)
            self._group.create()
            self._group.limit(replace(limits, processes=self._full - 2))
            if layout.version == 1:
                self._events = self._listen(self._at["memory"])

    @property
    def memory_limit(self) -> int:
        """Bytes to ask the engine for."""
        return self._limits.memory_bytes + (SLACK if self.parent else 0)

    @property
    def process_limit(self) -> int:
        """Processes to ask the engine for: one above what is allowed, because reaching it is what can be seen later."""
        return self._full + self._helpers

    def _listen(self, at: Path) -> int:
        """An event counter that the kernel raises whenever this group meets its memory limit and kills."""
        events = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            control = os.open(at / "memory.oom_control", os.O_RDONLY)
            try:
                (at / "cgroup.event_control").write_text(f"{events} {control}")
            finally:
                os.close(control)
        except OSError as error:
            os.close(events)
            raise JailFault(f"control group events: {error}") from error
        return events

    def started(self, pid: int, container: str) -> None:
        """`pid`: the container's first process as the engine numbers it. Finds its own group, if it is visible here."""
        self._pid = pid
        self._full_at_start = (self._peak_processes() or self._full) >= self._full
        with contextlib.suppress(OSError, ValueError, KeyError):
            paths = cgroup.own_groups(Path(f"/proc/{pid}/cgroup").read_text())
            keys = ["memory", "pids", "cpuacct"] if paths.get("memory", "/") != "/" else ["unified"]
            at = {key: cgroup.ROOT / key / paths[key].lstrip("/") for key in keys}
            if keys == ["unified"]:
                at = {"unified": cgroup.ROOT / paths["unified"].lstrip("/")}
            names = {path.name for path in at.values()}
            # A remote engine's process number belongs to somebody else here.
            if len(names) == 1 and container in (name := names.pop()) and all(path.is_dir() for path in at.values()):
                version = 2 if keys == ["unified"] else 1
                self._own = cgroup.Group(cgroup.Layout(version, {k: p.parent for k, p in at.items()}), name)

    def cpu_s(self) -> float | None:
        """CPU seconds so far, the start of the container included; None where nothing measures it."""
        for group in (self._group, self._own):
            with contextlib.suppress(JailFault):
                counters = group.counters()
                if counters is not None:
                    return counters.cpu_s
        return None

    def members(self) -> set[int]:
        """Process ids inside, as this machine numbers them (empty where its group is not visible)."""
        return self._own.members()

    def host_wait_s(self) -> float | None:
        """Seconds for which the worker was runnable without a CPU: the first child of the container's first process."""
        if self._pid not in self._own.members():
            return None
        with contextlib.suppress(OSError, ValueError, IndexError):
            child = int(Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()[0])
            return int(Path(f"/proc/{child}/schedstat").read_text().split()[1]) / 1e9
        return None

    def alive(self) -> cgroup.Counters | None:
        """The container's own counters while its group is there. To be read before it is removed."""
        with contextlib.suppress(JailFault):
            return self._own.counters()
        return None

    def usage(self, alive: cgroup.Counters | None, wait_s: float | None, ended: Ended) -> Usage:
        """All that was measured, once the container is gone; None where nothing on this machine measured it."""
        above = None
        with contextlib.suppress(JailFault):
            above = self._group.counters()
        seen = [counters for counters in (above, alive) if counters is not None]
        kills = [counters.oom_kills for counters in seen] + ([1] if ended.oom_killed else [])
        if self._events >= 0:
            with contextlib.suppress(BlockingIOError):
                kills.append(os.eventfd_read(self._events))
        denied = [counters.pids_denied for counters in seen if counters is alive or self._layout.version == 2]
        peak = self._peak_processes()
        if peak is not None and not self._full_at_start:
            denied.append(int(peak >= self._full))
        return Usage(
            cpu_s=seen[0].cpu_s if seen else None,
            memory_bytes=self._group.peak() if self.parent else None,
            oom_kills=max(kills) if kills else None,
            pids_denied=max(denied) if denied else None,
            host_wait_s=wait_s,
        )

    def _peak_processes(self) -> int | None:
        if not self.parent:
            return None
        with contextlib.suppress(OSError, ValueError):  # Linux 6.1
            return int((self._at["pids" if self._layout.version == 1 else "unified"] / "pids.peak").read_text())
        return None

    def close(self) -> bool:
        """Remove the group above; False when something is left in it."""
        if self._events >= 0:
            os.close(self._events)
            self._events = -1
        return not self.parent or remove(self._layout, self.parent.lstrip("/"))


def leftovers(layout: cgroup.Layout, prefix: str) -> set[str]:
    """Names of groups above containers that start with `prefix`."""
    found: set[str] = set()
    for parent in layout.parents.values():
        with contextlib.suppress(OSError):
            found.update(path.name for path in parent.iterdir() if path.name.startswith(prefix))
    return found


def remove(layout: cgroup.Layout, name: str, deadline_s: float = 10.0) -> bool:
    """Remove a group with what the engine left in it, processes too; False when something stays.

    An engine on a busy machine removes a container's own group a while after it said that the container is gone.
    """
    end = time.monotonic() + deadline_s
    while True:
        left = False
        for parent in layout.parents.values():
            for folder, _, _ in os.walk(parent / name, topdown=False):
                with contextlib.suppress(OSError):
                    for pid in map(int, Path(folder, "cgroup.procs").read_text().split()):
                        os.kill(pid, signal.SIGKILL)
                try:
                    os.rmdir(folder)
                except OSError:
                    left = left or os.path.isdir(folder)
        if not left or time.monotonic() > end:
            return not left
        time.sleep(0.01)
