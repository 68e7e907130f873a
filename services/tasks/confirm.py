"""Confirmation: a changed function is a bug only if the checks tell it from the reference, and how often they do."""

from dataclasses import dataclass
from random import Random
from typing import Any

from services.tasks import comparators
from services.tasks.bugs import Bug, bugs
from services.tasks.catalogue.problem import Problem
from services.tasks.comparators import Outcome
from services.tasks.guard import LONG_TICKS, SHORT_TICKS, Guarded, Overgrown
from services.tasks.oracle import Oracle

PROBES = 48
# A bug that fails 15 % of small inputs survives 14 fresh ones with 10 %; its visible failing example, which is asked in
# every trial too, leaves it nothing.
MIN_KILL_RATE = 0.15
# An endless loop costs a whole call limit each time it is asked, so a problem has few of them.
MAX_ENDLESS = 3


@dataclass(frozen=True)
class Probe:
    """One generated input with the reference's answer."""

    args: tuple[Any, ...]
    expected: Outcome


@dataclass(frozen=True)
class Confirmed:
    """A bug that the checks kill: what it did on each probe (None: no answer), and the probes that it fails."""

    bug: Bug
    outcomes: tuple[Outcome | None, ...]
    failing: tuple[int, ...]

    @property
    def kill_rate(self) -> float:
        """Share of generated inputs on which the bug shows."""
        return len(self.failing) / len(self.outcomes)


def probes(problem: Problem, rng: Random, count: int = PROBES) -> tuple[Probe, ...]:
    """Generated inputs with the reference's answers."""
    oracle = Oracle(problem)
    drawn = [problem.generate(rng) for _ in range(count)]
    return tuple(Probe(args, oracle.answer(args)) for args in drawn)


def confirmed_bugs(problem: Problem, inputs: tuple[Probe, ...], rng: Random, cap: int) -> tuple[Confirmed, ...]:
    """Up to `cap` bugs of a problem that the inputs tell from the reference; equivalent changes are dropped."""
    found: list[Confirmed] = []
    endless = 0
    for bug in bugs(problem.source, rng):
        confirmed = confirm(problem, bug, inputs)
        if confirmed is None:
            continue
        if None in confirmed.outcomes:
            endless += 1
            if endless > MAX_ENDLESS:
                continue
        found.append(confirmed)
        if len(found) == cap:
            break
    return tuple(found)


def confirm(problem: Problem, bug: Bug, inputs: tuple[Probe, ...]) -> Confirmed | None:
    """The bug with its outcomes, or None when too few inputs show it or a value outgrew the guard."""
    try:
        outcomes = _outcomes(Guarded(bug.source, problem.entry), inputs)
    except Overgrown:
        return None
    failing = tuple(
        position
        for position, (probe, got) in enumerate(zip(inputs, outcomes, strict=True))
        if got is None or not comparators.agree(problem.comparator, probe.expected, got)
    )
    if len(failing) < MIN_KILL_RATE * len(inputs):
        return None
    return Confirmed(bug, outcomes, failing)


def _outcomes(function: Guarded, inputs: tuple[Probe, ...]) -> tuple[Outcome | None, ...]:
    """What the function does on each input; after two endless runs on the long leash the short one is believed."""
    found: list[Outcome | None] = []
    endless = 0
    for probe in inputs:
        got = function.ask(probe.args, SHORT_TICKS)
        if got is None and endless < 2:
            got = function.ask(probe.args, LONG_TICKS)
            endless += got is None
        found.append(got)
    return tuple(found)
