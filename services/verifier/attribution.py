"""Whose fault a check run's end was: a pure function over recorded facts that the candidate cannot write."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Literal

from services.runtime.jail.limits import Usage

Outcome = Literal["pass", "fail", "infra"]

STARVED = "host_starved"
PRESSURE_GATE = 0.6
"""Share of time in which some task waited for a CPU above which a host counts as starved."""
_WAIT_SHARE = 0.25
_BUSY_SHARE = 0.5
_LIMIT_SHARE = 0.9
_KERNEL_CPU_SHARE = 0.75
"""A process ended by RLIMIT_CPU was seen with 0.80 of its limit on its group's counter: the two clocks differ."""
_LATE_BOOT = 3.0

NOTHING_MEASURED = Usage()

_ENDINGS = {
    "log_flood": "output_flood",
    "reply_flood": "output_flood",
    "protocol": "protocol",
    "lingering": "lingering",
    "limit": "cpu_limit",
}


@dataclass(frozen=True)
class Facts:
    """What controller and kernel saw of one check run. `fault`: the jail or the controller itself failed.

    `boot_s`: from the start of the jail to its `boot` handshake, before any code of the candidate; `usual_boot_s`: the
    median of the jails before it on this host. `right`: how many answers were right, only counted where the objective
    asks for every case. `hash_seed`, `backend`: how it ran. `evidence`: which counters there were to attribute by.
    """

    fault: str | None = None
    booted: bool = True
    ready: bool = True
    import_error: str | None = None
    ending: str = "complete"
    rejection: str | None = None
    wanted: int = 0
    answered: int = 0
    wall_s: float = 0.0
    usage: Usage = NOTHING_MEASURED
    memory_limit: int = 0
    cpu_limit: float = 0.0
    pressure: float | None = None
    host_oom: bool = False
    hash_seed: int | None = None
    backend: str = ""
    right: int | None = None
    boot_s: float | None = None
    usual_boot_s: float | None = None
    evidence: str = ""


def attribute(facts: Facts) -> tuple[Outcome, str]:
    """(outcome, cause). Before the `boot` handshake everything is infrastructure, after it the candidate by default.

    After `boot` four things alone are infrastructure, each shown by a counter that no candidate can write: the owner
    of the jail died (and the jail with it), the whole host's memory killer struck below the jail's own limit, a
    deadline passed while the host kept the jail waiting for a CPU, and, where the jail has no control group, the memory
    killer struck around it (`_around`). What could not be measured shows nothing.
    """
    if facts.fault is not None or not facts.booted:
        return "infra", facts.fault or "no_boot"
    resources = _resources(facts)
    if resources is not None:
        return resources
    outcome, cause = _candidates(facts)
    if outcome == "fail" and _around(facts):
        return "infra", "memory_killer"
    return outcome, cause


def _around(facts: Facts) -> bool:
    """Whether the kernel's memory killer may have made this failure: only asked where nothing counts kills per jail.

    Its count for the whole service (the pod) decides. A candidate that runs the pod out of memory earns a repeat by it,
    and in the end `unknown`: no reward, and the watch ends it below that wall with a fail of its own. Where there is no
    such count at all, an end that looks like SIGKILL is not held against the candidate either, unless its CPU limit
    explains it; a candidate can exit in that way, and earns as little.
    """
    usage = facts.usage
    if usage.outer_kills is not None:
        return usage.outer_kills > 0
    return usage.killed is True and facts.ending == "eof" and not _spent(facts)


def _spent(facts: Facts) -> bool:
    """Whether the first process used up the CPU time at which the kernel ends it (RLIMIT_CPU)."""
    return bool(facts.cpu_limit) and (facts.usage.cpu_s or 0.0) >= _KERNEL_CPU_SHARE * facts.cpu_limit


def _candidates(facts: Facts) -> tuple[Outcome, str]:
    """By how it ended and what it answered."""
    if facts.ending == "deadline":
        return _deadline(facts)
    if facts.ending == "eof" and facts.usage.lost:
        return "infra", "jail_lost"
    if facts.ending == "eof" and _spent(facts):
        return "fail", "cpu_limit"  # the kernel ended it (RLIMIT_CPU): a loop in C never sees the worker's own timer
    if facts.ending in _ENDINGS:
        return "fail", _ENDINGS[facts.ending]
    if facts.import_error is not None:
        return "fail", "syntax_error" if facts.import_error in ("SyntaxError", "IndentationError") else "import_error"
    if facts.rejection is not None:
        return "fail", facts.rejection
    if facts.ending != "complete" or not facts.ready or facts.answered < facts.wanted:
        return "fail", "crash" if facts.ready else "no_ready"
    return "pass", "ok"


def _resources(facts: Facts) -> tuple[Outcome, str] | None:
    usage = facts.usage
    if usage.oom_kills:
        peak = usage.memory_bytes
        # The group's counter also counts kills by the whole host's killer; then the group itself was below its limit.
        # Without kills of its own (or without a count of them) nothing in this jail was killed for memory: the host's
        # count rises for every other jail as well. (Without a group it was our own watch that ended it.)
        if facts.host_oom and peak is not None and peak < _LIMIT_SHARE * facts.memory_limit:
            return "infra", "host_oom"
        return "fail", "oom"
    if usage.pids_denied:
        return "fail", "processes"
    return None


def _deadline(facts: Facts) -> tuple[Outcome, str]:
    usage = facts.usage
    if usage.cpu_s is None or usage.cpu_s >= _BUSY_SHARE * facts.wall_s:
        return "fail", "timeout"
    # Late to boot, before any code of the candidate ran: stands for whatever of the two is not measured here.
    pressed = _late(facts) if facts.pressure is None else facts.pressure >= PRESSURE_GATE
    waited = _late(facts) if usage.host_wait_s is None else usage.host_wait_s >= _WAIT_SHARE * facts.wall_s
    return ("infra", STARVED) if pressed and waited else ("fail", "timeout")


def _late(facts: Facts) -> bool:
    if facts.boot_s is None or facts.usual_boot_s is None:
        return False
    return facts.boot_s >= _LATE_BOOT * facts.usual_boot_s


class Boots:
    """How long jails of this host take to boot, lately: what one of them is late against. Thread-safe."""

    def __init__(self, remembered: int = 64, least: int = 8) -> None:
        self._recent: deque[float] = deque(maxlen=remembered)
        self._least = least
        self._lock = threading.Lock()

    def seen(self, facts: Facts) -> Facts:
        """The facts with the median before them; None until enough jails booted."""
        with self._lock:
            usual = statistics.median(self._recent) if len(self._recent) >= self._least else None
            if facts.boot_s is not None:
                self._recent.append(facts.boot_s)
        return replace(facts, usual_boot_s=usual)
