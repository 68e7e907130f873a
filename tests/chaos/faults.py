"""The seeded schedule: which fault hits whom, when and for how long. The same seed gives the same schedule.

kill, term          SIGKILL, SIGTERM; the supervisor (or the schedule, for what it does not supervise) starts it again
pause, long_pause   SIGSTOP for less, and for more, than a session: then the process wakes up as a zombie
clock_back, _ahead  the wall clock of one process, or of all, is set an hour back or ahead, and later right again
roll                every instance of a service ends by SIGTERM, one after the other was back
rebalance           a member of a group ends and a broker is killed while the group is formed anew
outage              the object store is down for a minute
whole               SIGKILL to everything at once: services, brokers, store
latency … slicer    what toxiproxy does to the connections over a link
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

ENDING = ("kill", "term")
STOPPED = ("pause", "long_pause")
CLOCKS = ("clock_back", "clock_ahead")
WIDE = ("roll", "rebalance", "outage", "whole")
LINK_FAULTS = ("latency", "bandwidth", "cut", "reset", "limit_data", "slicer")
KINDS = (*ENDING, *STOPPED, *CLOCKS, *WIDE, *LINK_FAULTS)
BROKER, STORE, EVERYTHING = "broker", "store", "everything"
OUTAGE_S = 60.0
SCALED = ("sampler", "sandbox", "verifier", "closure", "admission", "recorder")


@dataclass(frozen=True)
class Targets:
    """What there is to hit. `services` are instances (`sampler-2`), `clocked` those whose clock can be set."""

    services: Sequence[str]
    brokers: Sequence[str]
    links: Sequence[str]
    store: bool = False
    clocked: Sequence[str] = ()

    @property
    def processes(self) -> list[str]:
        """Everything that can be killed by itself."""
        return [*self.services, *self.brokers, *([STORE] if self.store else [])]


@dataclass(frozen=True)
class Fault:
    """`at_s` after the start of the chaos; `kind` one of the above; it is taken back after `for_s`."""

    at_s: float
    kind: str
    target: str
    for_s: float
    number: int

    def __str__(self) -> str:
        return f"{self.at_s:7.1f} s  {self.kind:11} {self.target:20} {self.for_s:4.1f} s"

    @property
    def hit(self) -> tuple[str, ...]:
        """The names that it hits: `a+b` hits both."""
        return tuple(self.target.split("+"))


def service_of(name: str) -> str:
    """The service of an instance: `sampler` of `sampler-2`; brokers keep their number."""
    base, _, number = name.rpartition("-")
    return base if number.isdecimal() and base != "kafka" else name


def schedule(seed: int, seconds: float, count: int, targets: Targets, session_s: float) -> list[Fault]:
    """`count` faults over `seconds`: turn by turn, every process is killed, frozen past its session and hit in another
    way, every link in three ways, and everything wide comes once or twice. A short schedule still hits every target.
    """
    rng = random.Random(seed)
    deck: list[tuple[str, str]] = []
    while len(deck) < count:
        turn = _turn(rng, targets)
        rng.shuffle(turn)
        deck += turn
    deck = _each_first(rng, deck, count)
    gap = seconds / max(1, count)
    out = []
    for number, (kind, target) in enumerate(deck):
        out.append(
            Fault(gap * (number + rng.uniform(0.0, 0.8)), kind, target, _length(rng, kind, seconds, session_s), number)
        )
    return out


def _turn(rng: random.Random, targets: Targets) -> list[tuple[str, str]]:
    turn = [("kill", name) for name in targets.processes]
    turn += [("long_pause", name) for name in targets.processes]
    turn += [(rng.choice(("pause", "term")), name) for name in targets.processes]
    turn += [(kind, link) for link in targets.links for kind in rng.sample(LINK_FAULTS, 3)]
    names = sorted({service_of(name) for name in targets.services})
    scaled = [name for name in names if name in SCALED]
    turn += [("roll", name) for name in rng.sample(names, min(2, len(names)))]
    for name in rng.sample(scaled, min(2, len(scaled))):
        member = rng.choice([one for one in targets.services if service_of(one) == name])
        turn.append(("rebalance", f"{member}+{rng.choice(targets.brokers)}"))
    if targets.clocked:
        turn += [(kind, rng.choice(targets.clocked)) for kind in CLOCKS]
        turn += [(kind, EVERYTHING) for kind in CLOCKS]
    if targets.store:
        turn.append(("outage", STORE))
    turn.append(("whole", EVERYTHING))
    return turn


def _length(rng: random.Random, kind: str, seconds: float, session_s: float) -> float:
    """Seconds until it is taken back. A pause ends before the session does, a long one after it."""
    drawn = rng.uniform(0.3, min(3.0, 0.5 * session_s))
    if kind == "outage":
        return min(OUTAGE_S, 0.2 * seconds)
    if kind in CLOCKS:
        return 2.0 + 2.0 * drawn
    return {"pause": 0.6 * session_s, "long_pause": 1.4 * session_s}.get(kind, drawn)


def _each_first(rng: random.Random, deck: list[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    """Whatever the length: each target, and each link, is hit once while there are faults enough."""
    first: dict[tuple[str, bool], tuple[str, str]] = {}
    for kind, target in deck:
        first.setdefault((target, kind in LINK_FAULTS), (kind, target))
    single = [item for item in first.values() if item[0] not in WIDE and item[1] != EVERYTHING]
    left = list(deck)
    for item in single:
        left.remove(item)
    chosen = (single + left)[:count]
    rng.shuffle(chosen)
    return chosen
