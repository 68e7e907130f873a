"""What an attack is, the checks that it meets, and one run of it against a real jail."""

from __future__ import annotations

import random
import textwrap
from dataclasses import dataclass, replace
from typing import Any

from services.runtime.jail.backend import Backend
from services.runtime.jail.limits import MIB, Limits
from services.tasks import values
from services.tasks.comparators import Outcome
from services.tasks.fixture import CheckSet, Example
from services.verifier import trial
from services.verifier.attribution import Facts, attribute

LIMITS = Limits(memory_bytes=96 * MIB, processes=12, cpu_s=1)
BOUNDS = trial.Bounds(LIMITS, call_cpu_s=0.1, wall_s=10.0)
SHORT = replace(BOUNDS, wall_s=1.5)  # for what sleeps: no load of this machine makes that right

ROOMY_S = 2.0  # CPU seconds of one call, where a row is not about time

GOOD = "def add(a, b): return a + b\n"
WRONG = "def add(a, b): return a - b\n"


REFUSED = ("wrong_exception", "import_error", "no_ready", "crash", "protocol", "unencodable", "cpu_limit")
"""What a candidate makes of memory or processes that the kernel refuses it."""


@dataclass(frozen=True)
class Attack:
    """One candidate program. `causes`: what a fail may be attributed to; empty: it must pass, having changed nothing.

    `row` is the row of the attack list that it belongs to; `check` names one of `CHECKS`. `bounded`: what it wastes is
    not what it answers with, so that it is right where the kernel merely refuses the waste and nothing counts refusals.
    """

    row: str
    title: str
    source: str
    causes: tuple[str, ...] = ()
    check: str = "fixed"
    bounds: trial.Bounds = BOUNDS
    bounded: bool = False

    @property
    def name(self) -> str:
        return f"{self.row} {self.title}"

    def good(self, outcome: str, cause: str, evidence: str = "cgroup") -> bool:
        """Whether verdict and attribution are as they must be, by what there was to attribute with."""
        if not self.causes:
            return (outcome, cause) == ("pass", "ok")
        if evidence in ("sampled", "rlimit") and {"oom", "processes"} & set(self.causes):
            return self.bounded if outcome == "pass" else outcome == "fail" and cause in (*self.causes, *REFUSED)
        return outcome == "fail" and cause in self.causes


def fail(
    row: str,
    title: str,
    source: str | tuple[str, ...],
    *causes: str,
    check: str = "fixed",
    bounds: trial.Bounds = BOUNDS,
    bounded: bool = False,
) -> Attack:
    """An attack that must fail for one of `causes`."""
    return Attack(row, title, _text(source), causes, check, bounds, bounded)


def harmless(row: str, title: str, source: str | tuple[str, ...], check: str = "fixed") -> Attack:
    """A candidate that tries something and then answers rightly. What it tries must have no effect: it asserts so."""
    return Attack(row, title, _text(source), (), check)


def _text(source: str | tuple[str, ...]) -> str:
    return "".join(map(textwrap.dedent, (source,) if isinstance(source, str) else source))


class FreshAdd(CheckSet):
    """E3 for `add`: questions drawn anew for each run, answered by a reference that the candidate never meets."""

    def inputs(self, rng: random.Random) -> list[tuple[Any, ...]]:
        calls = [(rng.randrange(-999, 999), rng.randrange(-999, 999)) for _ in range(18)]
        return [*calls, calls[0], calls[5]]

    def expected(self, args: tuple[Any, ...]) -> Outcome:
        return Outcome(value=args[0] + args[1])


def _check(kind: type[CheckSet] = CheckSet, **changes: Any) -> CheckSet:
    cases = tuple(Example((a, b), a + b) for a, b in [(2, 3), (-17, 400), (0, 0), (10**30, 1), (5, 5)])
    fields: dict[str, Any] = {
        "task_id": "attack/add", "problem": "attack/add", "entry": "add", "comparator": "exact", "evidence": "E2",
        "cases_per_trial": 5, "fixed_cases": cases, "call_cpu_s": ROOMY_S, "known_bad": (),
    }  # fmt: skip
    return kind(**{**fields, **changes})


def _cases(*pairs: tuple[tuple[Any, ...], Any]) -> tuple[Example, ...]:
    return tuple(Example(args, expected) for args, expected in pairs)


CHECKS: dict[str, CheckSet] = {
    "fixed": _check(),
    "fresh": _check(FreshAdd, evidence="E3"),
    "pairs": _check(fixed_cases=_cases(((2, 3), 5), ((-17, 400), 383))),
    "raises": _check(fixed_cases=_cases(((1, 0), values.ExceptionName("ValueError")), ((4, 2), 2))),
    "close": _check(comparator="abs:0.5", fixed_cases=_cases(*(((float(n), 1.0), n + 1.0) for n in range(20)))),
    "multiset": _check(
        comparator="multiset", fixed_cases=_cases(*(((n, n + 1), [n, n + 1, n + 1]) for n in range(20)))
    ),
    "sequence": _check(comparator="sequence", fixed_cases=_cases(((1, 3), [1, 2, 3]), ((2, 2), [2]))),
    "one": _check(fixed_cases=_cases(((1, 1), 1))),
    "zero": _check(fixed_cases=_cases(((0.0, 0.0), 0.0))),
    "tuple": _check(fixed_cases=_cases(((1, 2), (1, 2)))),
    "text": _check(fixed_cases=_cases((("a", "b"), "ab"), (("", ""), ""))),
}  # fmt: skip


def roomy(bounds: trial.Bounds) -> trial.Bounds:
    return replace(bounds, limits=replace(bounds.limits, cpu_s=8 * bounds.limits.cpu_s), call_cpu_s=ROOMY_S)


def run(backend: Backend, attack: Attack, seed: int = 1, tries: int = 4) -> tuple[str, str]:
    """(outcome, cause) of one check run through the real trial and attribution.

    A host that is busy with other things may starve the jail of CPU: that is no verdict and is asked again with more
    time, as the verifier itself does. A slow processor may use up the short limits that the rows about time want before
    a row about something else gets to its point: that one is asked again with longer ones.
    """
    outcome, cause = attribute(facts(backend, attack, seed))
    if cause == "cpu_limit" and "cpu_limit" not in attack.causes and attack.bounds.call_cpu_s < ROOMY_S:
        return run(backend, replace(attack, bounds=roomy(attack.bounds)), seed, tries)
    if cause == "host_starved" and tries > 1:
        longer = replace(attack, bounds=replace(attack.bounds, wall_s=attack.bounds.wall_s * 2))
        return run(backend, longer, seed, tries - 1)
    return outcome, cause


def facts(backend: Backend, attack: Attack, seed: int = 1) -> Facts:
    """What controller and kernel saw of one check run."""
    return trial.run(backend, {"solution.py": attack.source}, CHECKS[attack.check], seed, attack.bounds)
