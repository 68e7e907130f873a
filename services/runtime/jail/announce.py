"""Says at a service's start, in its log and its metrics, which guarantees its jails have here; and whether they fit."""

from __future__ import annotations

from typing import get_args

from prometheus_client import CollectorRegistry, Gauge

from services.runtime.errors import UserError
from services.runtime.jail.backend import Backend, Evidence
from services.runtime.jail.limits import MIB, Limits
from services.runtime.logs import Log

_SERVICE_BYTES = 256 * MIB
_IDLE_BYTES = 4 * MIB
"""A jail in which nothing runs: measured 3.3 MiB."""
_WEAKNESSES = (
    "one_user",
    "no_inode_limit",
    "one_library",
    "no_memory_kill_count",
    "namespaces_by_filter",
    "no_own_counters",
)


def announce(backend: Backend, log: Log, registry: CollectorRegistry, warning: str | None = None) -> None:
    """One line, a metric of the same; `warning` is `crowded`'s."""
    log.info(
        "the sandbox self-test found no deviation",
        backend=backend.name,
        attribution=backend.evidence,
        absent=list(backend.weaknesses),
    )
    if warning is not None:
        log.warning(warning)
    level = Gauge(
        "rlvr_jail_attribution", "what the end of a sandboxed run can be attributed by (1: it is this)", ("evidence",),
        registry=registry,
    )  # fmt: skip
    for one in get_args(Evidence):
        level.labels(one).set(one == backend.evidence)
    absent = Gauge("rlvr_jail_absent", "what sandboxes lack in this place (1)", ("what",), registry=registry)
    for word in _WEAKNESSES:
        absent.labels(word).set(word in backend.weaknesses)


def crowded(backend: Backend, limits: Limits, busy: int, slots: int, setting: str) -> str | None:
    """A warning when this many busy jails among all slots could use more than the service's own memory limit.

    `setting` names what `busy` is. Raises UserError when not even one fits: the service would only ever be killed.
    """
    wall = backend.surroundings.memory_limit()
    if wall is None or not backend.surroundings.walled:
        return None
    # Where nobody watches the sum, each process may use that much.
    each = limits.memory_bytes * (limits.own_processes if backend.evidence == "rlimit" else 1) + limits.tmp_bytes
    fixed = _SERVICE_BYTES + (slots - busy) * _IDLE_BYTES
    if _SERVICE_BYTES + limits.memory_bytes + limits.tmp_bytes > wall:
        raise UserError(
            f"this container's memory limit of {wall // MIB} MiB holds the service and not one run of up to "
            f"{(limits.memory_bytes + limits.tmp_bytes) // MIB} MiB",
            "resources.limits.memory",
            f"set it to at least {-(-(fixed + busy * each) // MIB)}Mi, or lower memory_mb",
        )
    if fixed + busy * each <= wall:
        return None
    return (
        f"{busy} busy sandboxes could use {(fixed + busy * each) // MIB} MiB with their service, and the memory limit "
        f"is {wall // MIB} MiB: set resources.limits.memory to {-(-(fixed + busy * each) // MIB)}Mi, or {setting} to "
        f"{max(1, (wall - fixed) // each)}; a kill by that limit costs a repeat, never a verdict"
    )
