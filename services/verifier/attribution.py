"""Whose fault a check run's end was: a pure function over recorded facts that the candidate cannot write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from services.runtime.jail.limits import Usage

Outcome = Literal["pass", "fail", "infra"]

PRESSURE_GATE = 0.6
"""Share of time in which some task waited for a CPU above which a host counts as starved."""
_WAIT_SHARE = 0.25
_BUSY_SHARE = 0.5
_LIMIT_SHARE = 0.9

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

    `boot_s`: from the start of the jail to its `boot` handshake, before any code of the candidate. `right`: how many
    answers were right, only counted where the objective asks for every case. `hash_seed`, `backend`: how it ran.
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


def attribute(facts: Facts) -> tuple[Outcome, str]:
    """(outcome, cause). Before the `boot` handshake everything is infrastructure, after it the candidate by default."""
    if facts.fault is not None or not facts.booted:
        return "infra", facts.fault or "no_boot"
    resources = _resources(facts)
    if resources is not None:
        return resources
    if facts.ending == "deadline":
        return _deadline(facts)
    if facts.ending == "eof" and facts.cpu_limit and (facts.usage.cpu_s or 0.0) >= _LIMIT_SHARE * facts.cpu_limit:
        return "fail", "cpu_limit"  # the kernel ended it (RLIMIT_CPU): a loop in C never sees the worker's own timer
    if facts.ending in _ENDINGS:
        return "fail", _ENDINGS[facts.ending]
    if facts.import_error is not None:
        return "fail", "syntax_error" if facts.import_error in ("SyntaxError", "IndentationError") else "import_error"
    if facts.rejection is not None:
        return "fail", facts.rejection
    if facts.ending == "eof" and facts.host_oom:
        return "infra", "host_oom"
    if facts.ending != "complete" or not facts.ready or facts.answered < facts.wanted:
        return "fail", "crash" if facts.ready else "no_ready"
    return "pass", "ok"


def _resources(facts: Facts) -> tuple[Outcome, str] | None:
    usage = facts.usage
    if usage.oom_kills:
        peak = usage.memory_bytes
        # The group's counter also counts kills by the whole host's killer; then the group itself was below its limit.
        if facts.host_oom and peak is not None and peak < _LIMIT_SHARE * facts.memory_limit:
            return "infra", "host_oom"
        return "fail", "oom"
    if usage.pids_denied:
        return "fail", "processes"
    return None


def _deadline(facts: Facts) -> tuple[Outcome, str]:
    usage = facts.usage
    if usage.cpu_s is not None and usage.cpu_s >= _BUSY_SHARE * facts.wall_s:
        return "fail", "timeout"
    pressed = facts.pressure is not None and facts.pressure >= PRESSURE_GATE
    waited = usage.host_wait_s is None or usage.host_wait_s >= _WAIT_SHARE * facts.wall_s
    if pressed and waited:
        return "infra", "host_starved"
    return "fail", "timeout"
