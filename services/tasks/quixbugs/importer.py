"""Importer: programs of a QuixBugs-style JSON-lines file as tasks.

One object a line: `name` (also the function's name), `buggy` and `correct` source, and `cases`, each `[arguments,
expected]`; arguments that are not a list are one argument. Line endings of the sources become those of Python.

A program that we know (`problems`) is judged on fresh inputs by our own reference, with the file's cases asked among
them (evidence E3). Any other program is judged on the file's cases only (evidence E2): those are public, so a table of
them would pass; use such tasks to measure, not to train.
"""

import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from services.tasks import comparators, feedback
from services.tasks.bench import Bench
from services.tasks.build import BUDGETS, PATH, TOOLS, known_bad
from services.tasks.fixture import REPEAT_SHARE, CheckSet, Example, Fixture, Outcome
from services.tasks.oracle import Oracle
from services.tasks.quixbugs.problem import FAMILY, Problem
from services.tasks.quixbugs.problems import problems
from services.tasks.quixbugs.reader import BadProgram, Program, read
from services.tasks.repair import admission_fault
from services.tasks.taskset import HELDOUT_FAMILIES, CheckSets, TaskSet

# Fresh inputs of a trial at evidence E3: see `draws` for what they let through.
FRESH = 72
# Every right program answers every input of a known program's generator in a few milliseconds.
_FRESH_CALL_CPU_S = 0.1
# The slowest kept case takes its correct program 1.5 s; three times that separates slow from endless.
CALL_CPU_S = 5.0
# At import only the unrepaired program runs, shortest cases first, where a second tells that it does not end.
_IMPORT_CPU_S = 1.0
# Two cases whose correct programs do not answer in useful time (gigabytes of table; recursion beyond half a minute),
# by first argument.
_SLOW = {("knapsack", 6404180), ("levenshtein", "amanaplanacanalpanama")}
VISIBLE = 3


def load_quixbugs(path: Path) -> TaskSet:
    """The task set of a file, one task a line, all of them in the split of held-out families.

    Runs every buggy program once, in a limited subprocess, to find what it does on its first failing case.
    Raises BadProgram for a file or a line that cannot be read, and for a program that fails none of its cases or whose
    right repair no candidate could hand in.
    """
    fixtures: list[Fixture] = []
    checks: dict[str, CheckSet] = {}
    with Bench() as bench:
        for program in read(path):
            fixture, check = _task(bench, program)
            if fixture.task_id in checks:
                raise BadProgram(f"{program.where}: {fixture.problem} is in the file twice")
            fixtures.append(fixture)
            checks[fixture.task_id] = check
    if not fixtures:
        raise BadProgram(f"{path}: holds no program", "write one program a line, or name another file")
    ids = tuple(fixture.task_id for fixture in fixtures)
    return TaskSet(FAMILY, tuple(fixtures), {HELDOUT_FAMILIES: ids}, CheckSets(FAMILY, checks))


def _task(bench: Bench, program: Program) -> tuple[Fixture, CheckSet]:
    name, where = program.name, program.where
    cases = tuple(case for case in program.cases if not _is_slow(name, case))
    if not cases:
        raise BadProgram(f"{where}: no case is left that can be asked in useful time")
    problem = _known(name, cases)
    if problem is not None:
        cases = _asked(problem, cases)
        comparator, call_cpu_s = problem.comparator, _FRESH_CALL_CPU_S
    else:
        comparator, call_cpu_s = _loosest(cases), CALL_CPU_S
    if (error := bench.load(program.correct, name)) is not None:
        raise BadProgram(f"{where}: the correct program does not load a function {name}: {error}")
    failing = _failing(bench, program.buggy, name, cases, partial(_right, problem, comparator), comparator)
    if failing is None:
        raise BadProgram(f"{where}: the buggy program passes all of its cases")
    path = _path(program)
    first, failure = failing
    shown = _visible(first, cases)
    total = len(cases) if problem is None else math.ceil((FRESH + len(cases)) / (1 - REPEAT_SHARE))
    check = CheckSet(
        task_id=f"{FAMILY}/{name}/original",
        problem=f"{FAMILY}/{name}",
        entry=name,
        comparator=comparator,
        evidence="E2" if problem is None else "E3",
        cases_per_trial=total,
        fixed_cases=cases if problem is None else (),
        call_cpu_s=call_cpu_s,
        known_bad=known_bad({path: program.buggy}, name, shown if problem is None else cases),
        decoys=shown if problem is None else cases,
        oracle_digest="" if problem is None else problem.digest,
        reference={path: program.correct},
    )
    fixture = Fixture(
        task_id=check.task_id,
        family=FAMILY,
        problem=check.problem,
        bug_kind="original",
        entry=name,
        base_tree={path: program.buggy},
        allowed_globs=(path,),
        tools=TOOLS,
        budgets=BUDGETS,
        public_checks=shown,
        first_failure=failure,
        comparator=comparator,
        deterministic=True,
        check_digest=check.digest,
        domain="" if problem is None else problem.domain.statement,
    )
    return fixture, check


def _path(program: Program) -> str:
    """The file that holds the program: named after it, unless a file of that name could not be repaired.

    Raises BadProgram when the repair would be refused whatever the file is called.
    """
    fault = ""
    for path in (f"{program.name}.py", PATH):
        # A module of the library's name would be imported in the library's place, by itself too.
        if path.removesuffix(".py") not in sys.stdlib_module_names:
            fault = admission_fault({path: program.buggy}, {path: program.correct}, (path,)) or ""
            if not fault:
                return path
    fault = fault.removesuffix(f": {PATH}")
    raise BadProgram(f"{program.where}: the right repair would be refused as a candidate's diff ({fault})")


def _known(name: str, cases: tuple[Example, ...]) -> Problem | None:
    """The contract that we hold for a name, unless a case of the file says that this is another program."""
    problem = problems().get(f"{FAMILY}/{name}")
    if problem is None:
        return None
    oracle = Oracle(problem)
    try:
        asked = _asked(problem, cases)
        same = [_right(problem, problem.comparator, case, oracle.answer(case.args), case.outcome()) for case in asked]
    except Exception:  # the reference, or what says which cases it is for, was made for other arguments than these
        return None
    return problem if same and all(same) else None


def _right(problem: Problem | None, comparator: str, case: Example, expected: Outcome, got: Outcome) -> bool:
    name = comparators.parse(comparator).predicate
    if problem is None or not name:
        return comparators.agree(comparator, expected, got)
    holds = Oracle(problem).predicate(name)
    return comparators.agree(comparator, expected, got, lambda value: holds(case.args, value))


def _asked(problem: Problem, cases: tuple[Example, ...]) -> tuple[Example, ...]:
    """The file's cases that right programs answer quickly."""
    return tuple(case for case in cases if problem.fits(*case.args))


def _loosest(cases: tuple[Example, ...]) -> str:
    # JSON has no tuples and no generators: the file's lists stand for all of them. Its square roots are approximations
    # to a hundredth, of which right programs give different digits; what is an int there is exact.
    return "close:1e-4+number+sequence" if any(_has_float(case.expected) for case in cases) else "sequence"


def _is_slow(name: str, case: Example) -> bool:
    first = case.args[0] if case.args else None
    return isinstance(first, int | str) and (name, first) in _SLOW


def _has_float(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, float) or any(map(_has_float, items))


def _failing(
    bench: Bench,
    source: str,
    entry: str,
    cases: tuple[Example, ...],
    right: Callable[[Example, Outcome, Outcome], bool],
    comparator: str,
) -> tuple[Example, str] | None:
    """The failing case with the shortest arguments, with what was seen."""
    if (error := bench.load(source, entry)) is not None:
        return cases[0], f"FAIL import raises {error}"
    for case in sorted(cases, key=lambda case: len(repr(case.args))):
        got = bench.ask(case.args, comparator, _IMPORT_CPU_S)
        if got is None or not right(case, case.outcome(), got):
            return case, feedback.failure_text(case.args, case.outcome(), got)
    return None


def _visible(first: Example, cases: tuple[Example, ...]) -> tuple[Example, ...]:
    """The failing case and up to two short others, while a hidden case with another answer than the first's is left."""
    shown = [first]
    for case in sorted(cases, key=lambda case: len(repr(case))):
        rest = [other for other in cases if other is not case and all(other is not seen for seen in shown)]
        if len(shown) < VISIBLE and case is not first and any(other.expected != first.expected for other in rest):
            shown.append(case)
    return tuple(shown)
