"""Which ends of a trial the schedule explains. What it does not explain is a loss.

An `unresolved` fate is explained only when every attempt of every unresolved member ended with an infrastructure stop
reason (or its check runs with an infrastructure cause) while something that this depends on was broken, or soon after.
A member without any verdict (`missing`) waited beyond its deadline: nothing explains that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.chaos.faults import BROKER, EVERYTHING, STORE, Fault, service_of

GRACE_S = 60.0
"""How long after its mending a fault still explains: waits of the services (20 s, twice) and their restart."""
_NEEDS = {
    "sandbox_lost": {"sandbox"},
    "engine": {"sampler", STORE},
    "preempted": {"sampler"},
    "no_start": {"verifier"},
    "no_boot": {"verifier"},
    "jail_lost": {"verifier"},
    "diff_unavailable": {STORE},
}
"""Causes that may be the schedule's doing, and whose faults explain them, beside those of brokers and of everything.
A starved host, a failing check-set or a poisoned group are never its doing."""


@dataclass(frozen=True)
class Injured:
    """One fault as it was: from its strike to its mending, seconds on the observer's clock."""

    fault: Fault
    since: float
    until: float

    @property
    def services(self) -> set[str]:
        """Whom it hit; a broker's link counts as the broker."""
        return {BROKER if name.startswith("kafka") else service_of(name) for name in self.fault.hit}


def explained(cause: str, at: float | None, injured: Iterable[Injured]) -> bool:
    """Whether a fault explains that something ended for this cause at that time (None: never seen)."""
    needs = _NEEDS.get(cause)
    if needs is None or at is None:
        return False
    guilty = needs | {BROKER, EVERYTHING}
    return any(one.since <= at <= one.until + GRACE_S and one.services & guilty for one in injured)
