"""One running bubblewrap jail: its pipes, the kernel's evidence about it, and its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from services.runtime.jail import cgroup
from services.runtime.jail.limits import JailFault, Limits, Usage
from services.runtime.jail.sampled import Watched

if TYPE_CHECKING:
    from services.runtime.jail.launcher import JailHost

_GRACE_S = 0.05
_ENDING_S = 0.5


@dataclass
class Slot:
    """One place for a jail: its user id and its control group."""

    number: int
    uid: int
    group: cgroup.Group
    limits: Limits | None = None


class BubblewrapJail:
    """One running jail: pipes to its worker and the kernel's evidence about it. Used by one thread at a time."""

    def __init__(
        self,
        host: JailHost,
        slot: Slot,
        process: tuple[int, int],
        pipes: tuple[int, int, int],
        before: cgroup.Counters | None,
        shown: str | None = None,
        watched: Watched | None = None,
        outer_kills: int | None = None,
    ) -> None:
        self._host = host
        self._shown = shown
        self._slot = slot
        self._pid, self._pidfd = process
        self.requests, self.replies, self.log = pipes
        self._before = before
        self._watched = watched
        self._outer_kills = outer_kills
        self._spawner = host.spawner_pid
        self.started_s = time.monotonic()
        self.closed = False
        self.private = host.private_mounts
        """Whether its /tmp was mounted by us, and so can be looked into from here."""
        self._condemned = False

    @property
    def pid(self) -> int:
        """Host process id of the jail's outer bubblewrap."""
        return self._pid

    @property
    def uid(self) -> int:
        """User id of the slot; 0: the caller's own."""
        return self._slot.uid

    def members(self) -> set[int]:
        """Host process ids inside, as its control group knows them (empty without one)."""
        return self._slot.group.members()

    def cpu_s(self) -> float | None:
        """CPU seconds used so far by everything inside; None without control group and watch."""
        if self._watched is not None:
            return self._watched.cpu_s()
        now = self._slot.group.counters()
        return None if now is None or self._before is None else now.cpu_s - self._before.cpu_s

    @property
    def inner_pid(self) -> int | None:
        """Host process id of the jail's process 1; None when it is gone."""
        return self._inner()

    def condemn(self) -> None:
        """Its slot is not used again once it is closed: something about it could not be explained."""
        self._condemned = True

    def host_wait_s(self) -> float | None:
        """Seconds for which the first inner process was runnable without a CPU; None when it is gone."""
        inner = self._inner()
        if inner is None:
            return None
        try:
            return int(Path(f"/proc/{inner}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return None

    def _inner(self) -> int | None:
        if self._gone():
            return None  # its number may belong to somebody else by now
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()[0])
        return None

    def _gone(self, wait_s: float = 0.0) -> bool:
        """Whether the outer bubblewrap has ended, and all inside with it."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(1000 * wait_s))

    def close_requests(self) -> None:
        """No more requests: an honest worker ends."""
        if self.requests >= 0:
            if self._watched is not None:
                self._watched.look()  # what it leaves behind ends with it
            os.close(self.requests)
            self.requests = -1

    def close(self) -> Usage:
        """Kill what is left, read the counters, give the slot back (retired when not clean). Never raises."""
        if self.closed:
            return Usage()
        self.closed = True
        group = self._slot.group
        wait_s = self.host_wait_s()
        early = self._ended_early()
        if self._watched is not None:
            self._host.watch.drop(self._watched)
        # All inside may be over a few milliseconds before that shows; taken for alive, a kill would read as a crash.
        ended = self._gone(_ENDING_S if early else 0.0)
        clean = self._end()
        lost = self._spawner_gone(_GRACE_S if early else 0.0)
        for fd in (self.requests, self.replies, self.log):
            if fd >= 0:
                os.close(fd)
        os.close(self._pidfd)
        waited, killed = self._host.reap(self._pid) if clean else (None, None)
        clean = group.kill() and clean
        usage = replace(self._usage(waited, wait_s), lost=lost)
        if group.version == 0:
            usage = self._without_group(usage, killed if ended else False)
        if self._shown is not None:
            self._host.fixtures.leave(self._shown)
        self._host.give_back(self._slot, clean and not self._condemned)
        return usage

    def _ended_early(self) -> bool:
        """Whether nobody inside can answer any more although nobody told it to end."""
        poll = select.poll()
        poll.register(self.replies, 0)
        return self.requests >= 0 and bool(poll.poll(0))

    def _spawner_gone(self, grace_s: float) -> bool:
        """Whether the jail lost its spawner; the jail may end a few milliseconds before that shows."""
        end = time.monotonic() + grace_s
        while self._host.spawner_lives(self._spawner):
            if time.monotonic() >= end:
                return False
            time.sleep(0.002)
        return True

    def _end(self) -> bool:
        """Kill the inner process first: bubblewrap then reaps it (no zombie, its CPU time is known) and ends itself."""
        inner = self._inner()
        if inner is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(inner, signal.SIGKILL)
            if self._gone(1.0):
                return True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        return self._gone(5.0)

    def _usage(self, waited: float | None, host_wait_s: float | None) -> Usage:
        group = self._slot.group
        try:
            now = group.counters()
        except JailFault:
            now = None
        if now is None or self._before is None:
            return Usage(cpu_s=waited, host_wait_s=host_wait_s)
        return Usage(
            cpu_s=now.cpu_s - self._before.cpu_s,
            memory_bytes=group.peak(),
            oom_kills=now.oom_kills - self._before.oom_kills,
            pids_denied=now.pids_denied - self._before.pids_denied,
            host_wait_s=host_wait_s,
        )

    def _without_group(self, usage: Usage, killed: bool | None) -> Usage:
        """What the watch saw, and what the memory killer did around the jail while it lived."""
        kills, watched = self._host.surroundings.kills(), self._watched
        outer = None if kills is None or self._outer_kills is None else kills - self._outer_kills
        if watched is None:
            return replace(usage, outer_kills=outer, killed=killed, host_wait_s=None)
        return replace(
            usage,
            cpu_s=max(usage.cpu_s or 0.0, watched.cpu_s() or 0.0),
            memory_bytes=watched.memory_bytes,
            oom_kills=watched.memory_kills,
            pids_denied=max(0, watched.excess_processes),
            # Children that hide their CPU time could make the first process wait; nobody does where it is alone.
            host_wait_s=None if watched.company else usage.host_wait_s,
            outer_kills=outer,
            killed=killed,
        )
