"""What a jail may use, what was measured of it, and the two kinds of error around it."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024
SPARE_PROCESSES = 8


class JailFault(Exception):
    """The jail itself failed (start, pipe, cgroup): infrastructure, never the candidate."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one jail. `memory_bytes` covers heap, tmpfs and page cache together where a cgroup enforces it."""

    memory_bytes: int = 256 * MIB
    processes: int = 16
    tmp_bytes: int = 16 * MIB
    tmp_inodes: int = 4096  # files, folders and links under /tmp, where the jail has a mount namespace of ours
    cpu_s: int = 10  # whole life of the first process; the kernel kills at this (RLIMIT_CPU)
    files: int = 64
    file_bytes: int = 16 * MIB
    log_bytes: int = MIB  # what one run may print; more ends it
    reply_bytes: int = 4 * MIB

    @property
    def own_processes(self) -> int:
        """What a worker bounds itself to where no control group does: above the limit, so that passing it shows."""
        return self.processes + SPARE_PROCESSES


@dataclass(frozen=True)
class Usage:
    """Counters of one jail's life, none of which it can write; None where nothing on this host measures it.

    `host_wait_s` is how long the first process was runnable without getting a CPU (schedstat run delay).
    `lost`: whoever keeps the jail alive (spawner, engine) had ended before it was closed, so that its end says nothing.
    Where a jail has no control group of its own, `memory_bytes`, `oom_kills` and `pids_denied` are what the watch of
    `sampled.py` saw and did, `outer_kills` is how many processes the kernel killed for memory around it in that time,
    and `killed` whether its first process ended by SIGKILL, or by the exit code that looks so.
    """

    cpu_s: float | None = None
    memory_bytes: int | None = None
    oom_kills: int | None = None
    pids_denied: int | None = None
    host_wait_s: float | None = None
    lost: bool = False
    outer_kills: int | None = None
    killed: bool | None = None


def host_pressure() -> float | None:
    """Share (0..1) of the last 10 s in which some task of this host waited for a CPU; None without PSI."""
    try:
        with open("/proc/pressure/cpu", encoding="ascii") as file:
            return float(file.readline().split("avg10=")[1].split()[0]) / 100.0
    except (OSError, IndexError, ValueError):
        return None


def host_oom_kills() -> int | None:
    """Count of tasks killed by any out-of-memory event on this host since boot; None when not readable."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return int(file.read().partition("\noom_kill ")[2].partition("\n")[0])
    except (OSError, ValueError):
        return None
