"""The seeded schedule: which fault hits whom, when and for how long. The same seed gives the same schedule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

PROCESS_FAULTS = ("kill", "pause", "long_pause", "term")
LINK_FAULTS = ("latency", "bandwidth", "cut", "reset", "limit_data", "slicer")
BROKER, STORE = "broker", "store"


@dataclass(frozen=True)
class Fault:
    """`at_s` after the start of the chaos; `kind` one of the above; it is taken back after `for_s`."""

    at_s: float
    kind: str
    target: str
    for_s: float
    number: int

    def __str__(self) -> str:
        return f"{self.at_s:7.1f} s  {self.kind:10} {self.target:14} {self.for_s:4.1f} s"


def schedule(
    seed: int, seconds: float, count: int, processes: Sequence[str], links: Sequence[str], session_s: float
) -> list[Fault]:
    """`count` faults over `seconds`: every process is killed and stopped in turn, every link in every way, shuffled.

    A short pause ends before the session does, a long one after it: then the process wakes up as a zombie.
    """
    rng = random.Random(seed)
    longest = {"pause": 0.6 * session_s, "long_pause": 1.4 * session_s}
    deck: list[tuple[str, str]] = []
    while len(deck) < count:
        turn = [("kill", name) for name in processes]
        turn += [(rng.choice(PROCESS_FAULTS[1:]), name) for name in processes]
        turn += [(kind, link) for link in links for kind in rng.sample(LINK_FAULTS, 3)]
        rng.shuffle(turn)
        deck += turn
    # Whatever the length: each process is hit at least once while there are faults enough.
    deck = _each_first(deck, [*processes, *(f"{link} link" for link in links)], count)
    gap = seconds / max(1, count)
    out = []
    for number, (kind, target) in enumerate(deck):
        for_s = longest.get(kind, 0.0) if kind in longest else rng.uniform(0.3, min(3.0, 0.5 * session_s))
        out.append(Fault(gap * (number + rng.uniform(0.0, 0.8)), kind, target, for_s, number))
    return out


def _each_first(deck: list[tuple[str, str]], wanted: Sequence[str], count: int) -> list[tuple[str, str]]:
    first: list[tuple[str, str]] = []
    left = list(deck)
    for name in wanted:
        for item in left:
            if _name(item) == name:
                first.append(item)
                left.remove(item)
                break
    return (first + left)[:count]


def _name(item: tuple[str, str]) -> str:
    kind, target = item
    return f"{target} link" if kind in LINK_FAULTS else target
