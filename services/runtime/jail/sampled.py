"""The watch over jails without control groups: what each uses as a whole, seen from outside, and its end if too much.

The kernel bounds every process of such a jail (address space, CPU time, number of processes); nothing there bounds
their sum, and no refusal is counted. So one thread of the owner looks at the processes of each busy jail every few
milliseconds. A jail sees nothing of it, and what it reads (`/proc/PID/stat`) no process can hide or write.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from services.runtime.jail.limits import Limits

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_BUSY_S = 0.02
_IDLE_S = 0.16
"""A jail that has used no CPU since it was last looked at is looked at half as often the next time, down to this."""
_MAX_WALK = 512


def can_sample() -> bool:
    """Whether this kernel tells which processes are whose children (CONFIG_PROC_CHILDREN)."""
    me = os.getpid()
    return os.path.exists(f"/proc/{me}/task/{me}/children") and _stat(me) is not None


@dataclass(frozen=True)
class Sample:
    """What all processes of a jail use. `memory_bytes`: resident, pages that several share counted for each of them."""

    processes: int  # threads too, as the kernel's own bound counts them
    memory_bytes: int
    cpu_s: float
    pids: tuple[int, ...]
    own_s: Mapping[int, float] = field(default_factory=dict, compare=False)
    """CPU seconds of each process itself, by its number."""


def sample(pid: int) -> Sample:
    """Of a process and everything below it: in a jail nothing can leave its process 1."""
    waiting, seen = [pid], dict[int, tuple[int, int, int, int]]()
    while waiting and len(seen) < _MAX_WALK:
        one = waiting.pop()
        found = _stat(one)
        if found is None or one in seen:
            continue
        seen[one] = found
        waiting += _children(one, found[0])
    threads, pages, ticks, _ = (sum(column) for column in zip(*seen.values(), strict=True)) if seen else (0, 0, 0, 0)
    own_s = {one: found[3] / _TICK for one, found in seen.items()}
    return Sample(threads, pages * _PAGE, ticks / _TICK, tuple(seen), own_s)


def _stat(pid: int) -> tuple[int, int, int, int] | None:
    """(threads, resident pages, CPU ticks with those of children that it waited for, its own); None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[17]), int(fields[21]), sum(map(int, fields[11:15])), sum(map(int, fields[11:13]))
    except (OSError, ValueError, IndexError):
        return None


def _children(pid: int, threads: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        names = [str(pid)] if threads <= 1 else os.listdir(f"/proc/{pid}/task")
        for name in names:
            with open(f"/proc/{pid}/task/{name}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def proportional(pids: tuple[int, ...]) -> int:
    """Bytes of these processes with shared pages counted once; what cannot be looked into counts as it is resident."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                total += next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
        except (OSError, ValueError, StopIteration):
            found = _stat(pid)
            total += found[1] * _PAGE if found is not None else 0
    return total


class Watched:
    """One jail under watch. Its numbers only grow; they are read by the thread that closes the jail."""

    def __init__(self, outer_pid: int, outer_pidfd: int, limits: Limits) -> None:
        self._outer = outer_pid
        self._ended = select.poll()
        self._ended.register(outer_pidfd, select.POLLIN)
        self._limits = limits
        self._lock = threading.Lock()
        self._inner = 0
        self._cpu_s = 0.0
        self._own_s: dict[int, float] = {}
        self._gone_s = 0.0
        self._pause_s = _BUSY_S
        self.due = 0.0
        self.done = False
        self.memory_bytes: int | None = None
        self.memory_kills = 0
        self.excess_processes = 0
        self.company = False
        """Whether a second process or thread was ever seen: what its short children use is not in `cpu_s`."""

    def cpu_s(self) -> float | None:
        """CPU seconds so far; None before its process 1 was ever seen."""
        self.look()
        return self._cpu_s if self._inner else None

    def look(self) -> None:
        """Take one sample, and end the jail when it uses more memory or more processes than it may."""
        with self._lock:
            inner = None if self.done else self._process_1()
            if inner is None:
                self._pause_s = _BUSY_S
                return
            now = sample(inner)
            used, self._cpu_s = self._cpu_s, max(self._cpu_s, now.cpu_s, self._ever(now))
            self._pause_s = _BUSY_S if self._cpu_s > used else min(_IDLE_S, 2 * self._pause_s)
            self._judge(inner, now)

    def _ever(self, now: Sample) -> float:
        """CPU seconds of all processes that were ever seen: those that take turns are not forgotten one by one."""
        self._gone_s += sum(used for pid, used in self._own_s.items() if pid not in now.own_s)
        self._own_s = dict(now.own_s)
        return self._gone_s + sum(now.own_s.values())

    def _process_1(self) -> int | None:
        if self._ended.poll(0):
            return None  # its number may belong to somebody else by now
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._inner = int(Path(f"/proc/{self._outer}/task/{self._outer}/children").read_text().split()[0])
            return self._inner
        return None

    def _judge(self, inner: int, now: Sample) -> None:
        self.company = self.company or now.processes > 1
        memory = now.memory_bytes
        if memory > self._limits.memory_bytes and len(now.pids) > 1:
            memory = proportional(now.pids)
        self.memory_bytes = max(self.memory_bytes or 0, memory)
        # One beside those allowed, as where a control group counts them with bubblewrap's own two.
        self.excess_processes = max(self.excess_processes, now.processes - self._limits.processes - 1)
        greedy = memory > self._limits.memory_bytes
        self.memory_kills += greedy
        if (greedy or self.excess_processes > 0) and not self._ended.poll(0):
            self.done = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(inner, signal.SIGKILL)  # process 1 of its namespace: all others end with it

    def finish(self) -> None:
        """One more sample, and nothing is done by number any more."""
        self.look()
        with self._lock:
            self.done = True

    def postpone(self) -> float:
        """When it is to be looked at next."""
        self.due = time.monotonic() + self._pause_s
        return self.due


class Watch:
    """One thread for all jails of an owner; it sleeps while there are none."""

    def __init__(self) -> None:
        self._jails: set[Watched] = set()
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="jail-watch", daemon=True)
        self._thread.start()

    def add(self, outer_pid: int, outer_pidfd: int, limits: Limits) -> Watched:
        """Start watching the jail of this outer process."""
        watched = Watched(outer_pid, outer_pidfd, limits)
        watched.postpone()
        with self._wake:
            self._jails.add(watched)
            self._wake.notify()
        return watched

    def drop(self, watched: Watched) -> None:
        """A last look, while its processes are still there; its number is never looked at again."""
        watched.finish()
        with self._wake:
            self._jails.discard(watched)

    def close(self) -> None:
        """End the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(5)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._closed:
                    due = min((one.due for one in self._jails), default=None)
                    wait_s = None if due is None else due - time.monotonic()
                    if wait_s is not None and wait_s <= 0:
                        break
                    self._wake.wait(wait_s)
                if self._closed:
                    return
                now = time.monotonic()
                ready = [one for one in self._jails if one.due <= now]
            for one in ready:
                one.look()
                one.postpone()
