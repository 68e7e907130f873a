"""Builds the task set of the shipped catalogue: confirmed bugs, visible examples, known-bad trees and splits."""

import re
from functools import lru_cache
from random import Random

from services.tasks import catalogue, examples, values
from services.tasks.catalogue import HELD_OUT_FAMILIES
from services.tasks.catalogue.problem import Problem
from services.tasks.confirm import Confirmed, confirmed_bugs, probes
from services.tasks.fixture import Budgets, CheckSet, Example, Fixture
from services.tasks.taskset import HELDOUT_BUGS, HELDOUT_FAMILIES, TRAIN, CheckSets, TaskSet

NAME = "catalogue"
PATH = "solution.py"
TOOLS = ("test", "read", "edit", "replace", "submit")
BUDGETS = Budgets(turns=4, tokens=160, wall_s=60.0)
BUGS_PER_PROBLEM = 24
HELD_OUT_SHARE = 0.3
# Examples, small inputs and repeats; the strata of the problem's domain come on top.
CASES_PER_TRIAL = 20
# The slowest reference call takes well under a millisecond; the limit only decides how much an endless loop costs.
CALL_CPU_S = 0.2


@lru_cache(maxsize=4)
def build_catalogue(seed: int = 0, bugs_per_problem: int = BUGS_PER_PROBLEM) -> TaskSet:
    """The task set of the catalogue with both halves; deterministic in its arguments, about two seconds of work.

    Splits: a problem of a held-out family gives only `heldout_families`; the bugs of any other problem are divided
    between `train` and `heldout_bugs`, so that every line with a held-out bug has another bug in `train`.
    """
    fixtures: list[Fixture] = []
    checks: dict[str, CheckSet] = {}
    splits: dict[str, list[str]] = {TRAIN: [], HELDOUT_BUGS: [], HELDOUT_FAMILIES: []}
    for problem in catalogue.problems().values():
        rng = Random(f"{seed}/{problem.key}")
        found = confirmed_bugs(problem, probes(problem, rng), rng, bugs_per_problem)
        held = _held_out(found, rng)
        for number, confirmed in enumerate(found):
            task_id = f"{problem.key}/{confirmed.bug.kind}-{number:03d}"
            fixture, check = _task(task_id, problem, confirmed, Random(f"{seed}/{task_id}"))
            fixtures.append(fixture)
            checks[task_id] = check
            split = HELDOUT_BUGS if number in held else TRAIN
            splits[HELDOUT_FAMILIES if problem.family in HELD_OUT_FAMILIES else split].append(task_id)
    frozen = {name: tuple(members) for name, members in splits.items()}
    return TaskSet(NAME, tuple(fixtures), frozen, CheckSets(NAME, checks))


def _held_out(found: tuple[Confirmed, ...], rng: Random) -> set[int]:
    """Numbers of the bugs to hold out: about three in ten, never the only one left on its line."""
    order = list(range(len(found)))
    rng.shuffle(order)
    left: dict[int, int] = {}
    for confirmed in found:
        left[confirmed.bug.line] = left.get(confirmed.bug.line, 0) + 1
    held: set[int] = set()
    for number in order:
        line = found[number].bug.line
        if len(held) < round(HELD_OUT_SHARE * len(found)) and left[line] > 1:
            left[line] -= 1
            held.add(number)
    return held


def _task(task_id: str, problem: Problem, confirmed: Confirmed, rng: Random) -> tuple[Fixture, CheckSet]:
    source = confirmed.bug.source
    shown = examples.draw(problem.key, source, rng)
    failure = examples.first_failure(source, problem.entry, problem.key, shown)
    assert failure is not None
    check = CheckSet(
        task_id=task_id,
        problem=problem.key,
        entry=problem.entry,
        comparator=problem.comparator,
        evidence="E3",
        cases_per_trial=CASES_PER_TRIAL,
        fixed_cases=(),
        call_cpu_s=CALL_CPU_S,
        known_bad=known_bad({PATH: source}, problem.entry, shown),
        decoys=shown,
        oracle_digest=problem.digest,
        reference={PATH: problem.source},
    )
    fixture = Fixture(
        task_id=task_id,
        family=problem.family,
        problem=problem.key,
        bug_kind=confirmed.bug.kind,
        entry=problem.entry,
        base_tree={PATH: source},
        allowed_globs=(PATH,),
        tools=TOOLS,
        budgets=BUDGETS,
        public_checks=shown,
        first_failure=failure,
        comparator=problem.comparator,
        deterministic=True,
        check_digest=check.digest,
        domain=problem.domain.statement,
    )
    return fixture, check


def known_bad(base: dict[str, str], entry: str, shown: tuple[Example, ...]) -> tuple[dict[str, str], ...]:
    """Trees that must fail: the unrepaired base, one constant answer, and a table of the visible examples."""
    (path,) = base
    constant = f"def {entry}(*args):\n    {_answer(shown[0])}\n"
    lines = [f"def {entry}(*args):"]
    for example in shown:
        lines += [f"    if args == {example.args!r}:", f"        {_answer(example)}"]
    lines.append(f"    {_answer(shown[0])}")
    return base, {path: _bare(constant)}, {path: _bare("\n".join(lines) + "\n")}


def _bare(source: str) -> str:
    """Source in which the floats that have no literal mean what `repr` says."""
    return f"from math import inf, nan\n{source}" if re.search(r"\b(?:inf|nan)\b", source) else source


def _answer(example: Example) -> str:
    if isinstance(example.expected, values.ExceptionName):
        return f"raise {example.expected.name}"
    return f"return {example.expected!r}"
