"""Protects domain mutants: every kind is made, each is wrong on its witness, and too small check-sets are named."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from services.tasks import catalogue, commands, survival
from services.tasks.bench import Bench
from services.tasks.build import build_catalogue
from services.tasks.comparators import Outcome
from services.tasks.domain_cuts import ROUNDS, TELL, counting
from services.tasks.domain_mutants import DomainMutant, domain_mutants, evaluated
from services.tasks.fixture import CheckSet, Example
from services.tasks.oracle import Oracle, oracle
from services.tasks.quixbugs.problem import Problem as Program
from services.tasks.quixbugs.problems import problems as programs
from services.tasks.survival import survey, upper_bound
from services.tasks.taskset import CheckSets, TaskSet

TOTAL = "def total(xs):\n    t = 0\n    for x in xs:\n        t += x\n    return t\n"
BEST = "def best(xs):\n    return max(xs)\n"
SORT = "def sort(xs):\n    return sorted(xs)\n"
JOIN = "def join(xs, ys):\n    return xs + ys\n"
ADD = "def add(a, b):\n    return a + b\n"
HALF = "def half(n):\n    return n // 2\n"
DOUBLE = "def double(s):\n    return s + s\n"
FIELDS = "def fields(s, p):\n    return s.split(p)\n"
READ = "def read(s):\n    return int(s)\n"
SMALLEST = "def smallest(xs):\n    k = xs[0]\n    for x in xs:\n        if x < k:\n            k = x\n    return k\n"
DOWN = "def down(n):\n    return 0 if n == 0 else 1 + down(n - 1)\n"
COUNT = "def count(n):\n    k = 0\n    while n > 0:\n        n -= 1\n        k += 1\n    return k\n"
FLAT = "def flat(xs):\n    return [y for x in xs for y in (flat(x) if type(x) is list else [x])]\n"

LISTS = [([],), ([1, 2],), ([3],), ([2, 2, 4, 1],)]
NUMBERS = [(0,), (7,), (12,), (-3,)]
# kind, part of what it is, reference, cases of it, and where it is wrong
MADE = [
    ("size", "right up to 5 items", TOTAL, LISTS, ([1] * 6,)),
    ("size", "looks at the first 9 items", TOTAL, LISTS, ([1] * 10,)),
    ("size", "while one argument has 5 items", JOIN, [([1], [2]), ([], [3, 4])], ([1] * 6, [2] * 6)),
    ("value", "while one argument is 9 at most", ADD, [(1, 2), (0, 4)], (10, 11)),
    ("empty", "right but for no item", "def count(xs):\n    return len(xs)\n", [([1],), ([2],)], ([],)),
    ("ends", "looks at the last item", TOTAL, LISTS, ([1, 2],)),
    ("ends", "first 2 and the last 2", TOTAL, LISTS, ([1] * 5,)),
    ("window", "the best of any 5", TOTAL, LISTS, ([1] * 6,)),
    ("value", "right up to 9 ", TOTAL, LISTS, ([4, 10],)),
    ("value", "end at 2147483647", TOTAL, LISTS, ([2**31],)),
    ("value", "in 32 bits", HALF, NUMBERS, (2**31,)),
    ("value", "answer in 32 bits", TOTAL, LISTS, ([2**31],)),
    ("digits", "the last digit of numbers", HALF, NUMBERS, (12,)),
    ("digits", "right up to 3 digits", READ, [("7",), ("12",)], ("1234",)),
    ("digits", "the first 2 digits", READ, [("7",), ("12",)], ("123",)),
    ("floats", "numbers of its argument through float", TOTAL, LISTS, ([2**53 + 1],)),
    ("floats", "answers through float", TOTAL, LISTS, ([2**53, 1],)),
    ("floats", "n // 2 through float", HALF, NUMBERS, (2**60 + 2**7 + 2,)),
    ("sign", "taken as not negative", TOTAL, LISTS, ([-1],)),
    ("sign", "right where its argument is not positive", HALF, NUMBERS, (100,)),
    ("sign", "answers start at 0", BEST, [([1],), ([2, 3],)], ([-4, -2],)),
    ("sign", "no minus in", READ, [("7",), ("-12",)], ("-5",)),
    ("depth", "right up to depth 2", FLAT, [([1, [2]],), ([],)], ([[[1, 2]]],)),
    ("depth", "down calls itself 10 levels", DOWN, [(1,), (2,)], (20,)),
    ("text order", "sorted(xs) in the order of text", SORT, LISTS, ([10, 9],)),
    ("text order", "x < k in the order of text", SMALLEST, [([1],), ([3, 2],)], ([9, 10],)),
    ("text order", "answers in the order of their text", SORT, LISTS, ([10, 9],)),
    ("rounds", "for x in xs ends after 3 rounds", TOTAL, LISTS, ([1] * 4,)),
    ("rounds", "while n > 0 ends after one round", COUNT, [(1,), (3,)], (2,)),
    ("rounds", "for y in", FLAT, [([1, [2]],), ([],)], ([[1, 2, 3, 4]],)),
    ("table", "likely inputs, else return 0", TOTAL, [*LISTS, ([0],), ([0, 0],), ([-1, 1],)], ([5, 6, 7],)),
    ("duplicates", "equal items", TOTAL, LISTS, ([2, 2],)),
    ("order", "right for ascending", "def first(xs):\n    return xs[0]\n", [([1, 2],), ([2, 1],)], ([3, 2],)),
    ("separator", "is taken for ','", FIELDS, [("a,b", ","), ("c", ","), ("a;b", ";")], ("x;y", ";")),
    ("alphabet", "text of 2 letters", DOUBLE, [("aab",), ("abc",)], ("xyz",)),
    ("alphabet", "of ASCII", DOUBLE, [("aab",), ("abc",)], ("é",)),
    ("errors", "never raises", READ, [("7",), ("x",)], ("y",)),
    ("errors", "raises only where the last item", READ, [("7",), ("x",)], ("y1",)),
    ("answer", "the first 8 items of the answer", SORT, LISTS, ([1] * 9,)),
    ("answer", "numbers of the answer end at 9", TOTAL, LISTS, ([5, 5],)),
]  # fmt: skip


def cases_of(source: str, asked: list[tuple[Any, ...]]) -> list[tuple[tuple[Any, ...], Outcome]]:
    return [(args, said(source, args)) for args in asked]


def entry_of(source: str) -> str:
    return source.removeprefix("def ").split("(")[0]


def said(source: str, args: tuple[Any, ...]) -> Outcome:
    namespace: dict[str, Any] = {}
    exec(compile(source, "<a program>", "exec"), namespace)
    try:
        return Outcome(namespace[entry_of(source)](*copy.deepcopy(args)))
    except Exception as error:
        return Outcome(error=type(error).__name__)


def made_of(source: str, asked: list[tuple[Any, ...]]) -> list[DomainMutant]:
    cases = cases_of(source, asked)
    return domain_mutants(source, entry_of(source), cases, cases[:2])


@pytest.mark.parametrize(("kind", "what", "source", "asked", "witness"), MADE, ids=[f"{m[0]}: {m[1]}" for m in MADE])
def test_every_kind_is_made_and_is_wrong_where_it_says(
    kind: str, what: str, source: str, asked: list[tuple[Any, ...]], witness: tuple[Any, ...]
) -> None:
    found = [mutant for mutant in made_of(source, asked) if mutant.kind == kind and what in mutant.what]
    assert found, sorted({mutant.what for mutant in made_of(source, asked)})
    right = said(source, witness)
    namespace_of = [_said_by(mutant, entry_of(source), witness) for mutant in found]
    assert any(other != right for other in namespace_of)


def _said_by(mutant: DomainMutant, entry: str, args: tuple[Any, ...]) -> Outcome:
    namespace: dict[str, Any] = {}
    exec(compile(mutant.source, "<a mutant>", "exec"), namespace)
    try:
        return Outcome(namespace[entry](*copy.deepcopy(args)))
    except Exception as error:
        return Outcome(error=type(error).__name__)


@pytest.mark.parametrize("key", sorted(catalogue.problems()))
def test_every_mutant_of_the_catalogue_defines_the_entry_and_is_right_where_its_measure_says(key: str) -> None:
    """What a trusted process skips, because a mutant cannot be wrong there, must be right there."""
    problem = catalogue.problem(key)
    known, rng = Oracle(problem), random.Random(5)
    cases = [(args, known.answer(args)) for args in (problem.generate(rng) for _ in range(60))]
    found = domain_mutants(problem.source, problem.entry, cases, cases[:3])
    assert len(found) > 40
    assert len({mutant.kind for mutant in found}) >= 6
    assert len({mutant.source for mutant in found}) == len(found)
    for mutant in found:
        namespace: dict[str, Any] = {}
        exec(compile(mutant.source, mutant.what, "exec"), namespace)
        assert callable(namespace[problem.entry])
        if mutant.over in ("rounds", "error"):
            continue
        measure = evaluated(mutant.measure, mutant.over)
        for args, right in cases[:12]:
            of = args if mutant.over == "args" else right.value
            if right.error is None and measure(of) <= mutant.beyond:
                given = copy.deepcopy(args)
                assert Outcome(namespace[problem.entry](*given), args_after=given) == right, mutant.what


def test_what_must_come_first_in_a_module_does() -> None:
    source = '"""A module."""\nfrom __future__ import annotations\n\nONE = 1\n' + COUNT + SMALLEST + DOWN
    cases = cases_of(COUNT, [(3,), (4,)])
    for mutant in domain_mutants(source, "count", cases):
        compile(mutant.source, mutant.what, "exec")
    with Bench() as bench:
        assert bench.load(counting(source, "count"), TELL) is None


def test_rounds_are_those_of_every_loop() -> None:
    source = (
        "def f(xs):\n    n = 0\n    for x in xs:\n        while x > 0:\n            x -= 1\n            n += 1\n"
        "    return sum(y for y in xs)\n"
    )
    with Bench() as bench:
        assert bench.load(counting(source, "f"), TELL) is None
        told = bench.ask((([1, 5, 2],), ([],), ("not a list of numbers",)), "exact", 1.0)
    assert told == Outcome([[3, 5, 3], [0, 0, 0], [1, 0, 0]])
    cut = [mutant for mutant in domain_mutants(source, "f", []) if mutant.kind == "rounds"]
    assert len(cut) == 3 * len(ROUNDS)


def test_bounds_are_the_published_ones() -> None:
    """Clopper and Pearson: 1 - 0.05^(1/n) without a pass; tables for a few."""
    assert upper_bound(0, 29) == pytest.approx(1 - 0.05 ** (1 / 29))
    assert upper_bound(4, 100) == pytest.approx(0.0892, abs=2e-4)
    assert upper_bound(5, 5) == 1.0
    for passed, runs in ((0, survival.FIRST), (survival.SPARED, survival.SECOND)):
        assert upper_bound(passed, runs) ** survival.VERDICT_RUNS <= survival.LIVES
    # What the module says of its two stages.
    spared = sum(
        survival.math.comb(survival.SECOND, n) * 0.1**n * 0.9 ** (survival.SECOND - n)
        for n in range(survival.SPARED + 1)
    )
    assert 0.9**survival.FIRST + spared < 1 - survival.CONFIDENCE


class Narrow(CheckSet):
    """Asks as check-sets did once: ints from 0 to 9, at most nine items."""

    def inputs(self, rng: random.Random) -> list[tuple[Any, ...]]:
        known = oracle(self.problem, self.oracle_digest)
        return [known.generate(rng) for _ in range(self.cases_per_trial)]


def check_of(key: str, kind: type[CheckSet] = CheckSet) -> CheckSet:
    check = next(check for check in build_catalogue().checks if check.problem == key)
    given = {item.name: getattr(check, item.name) for item in dataclasses.fields(check) if item.init}
    return kind(**given)


@pytest.mark.parametrize(
    "key", ["searching/first_index", "numbers/digit_sum", "dynamic/max_sum", "strings/common_prefix"]
)
def test_narrow_questions_let_mutants_live_and_each_has_an_input_that_kills_it(key: str) -> None:
    check = check_of(key, Narrow)
    found = survey(check)
    assert len(found.living) > 10
    assert found.made == found.killed + found.equivalent + found.undecided + len(found.living)
    with Bench() as bench:
        for living in found.living:
            right = check.expected(living.args)
            assert right == living.expected
            if living.mutant.over != "answer":
                assert bench.load(living.mutant.source, check.entry) is None
                got = bench.ask(living.args, check.comparator, check.call_cpu_s)
                assert got is None or not check.agrees(right, got, living.args), living.told
            assert len(living.told) < 500
            assert "would kill it" in living.told


def test_a_mutant_that_most_runs_catch_and_some_do_not_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught in three of four runs, it passes all of three with probability 1/64."""
    check = check_of("numbers/gcd", Narrow)

    def inputs(self: CheckSet, rng: random.Random) -> list[tuple[Any, ...]]:
        return [(4, 6), (30, 45) if rng.random() < 0.75 else (3, 5)]

    monkeypatch.setattr(Narrow, "inputs", inputs)
    found = survey(check, wanted=lambda mutant: mutant.what.startswith("numbers of argument 1 end at 20"))
    (living,) = found.living
    assert living.passed > survival.SPARED
    assert found.killed == 0


def fixed(source: str, asked: list[tuple[Any, ...]], public: int = 2) -> CheckSet:
    cases = tuple(Example(args, said(source, args).value) for args in asked)
    return CheckSet(
        "tiny/fixed", "tiny/fixed", entry_of(source), "exact", "E2", len(cases), cases, 1.0,
        ({"s.py": "x = 1\n"},), decoys=cases[:public], reference={"s.py": source},
    )  # fmt: skip


WIDE = [
    ([],), ([1],), ([3, 2],), ([7] * 2,), ([0, 5, 1],), (list(range(300)),), ([10**20, -(10**20) - 7, 3],),
    ([-4, 2, 0],), ([2**31, 5],), ([2**53 + 1],), ([2**53 + 3, 2**54, -1],),
]  # fmt: skip


def test_fixed_cases_that_are_too_small_let_mutants_live() -> None:
    found = survey(fixed(TOTAL, LISTS))
    kinds = {living.mutant.kind for living in found.living}
    assert {"size", "value", "rounds", "floats", "window"} <= kinds
    for living in found.living:
        assert said(TOTAL, living.args) == living.expected
    assert found.undecided > 0  # whether negative ones may come, no case says


def test_fixed_cases_that_are_wide_kill_all_that_can_be_decided() -> None:
    found = survey(fixed(TOTAL, WIDE))
    assert [living.told for living in found.living] == []
    assert found.killed > 60


def test_what_cannot_be_asked_here_is_said_to_be_undecided() -> None:
    for change in ({"reference": {"a.py": TOTAL, "b.py": BEST}, "entry": "a:total"}, {"reference": {}}):
        found = survey(dataclasses.replace(fixed(TOTAL, LISTS), **change))
        assert found.made == 0
        assert "need the check itself" in found.method
    broken = survey(dataclasses.replace(fixed(TOTAL, LISTS), reference={"s.py": "def total(:\n"}))
    assert broken.method == "the reference is no Python"


def test_numbers_that_python_does_not_write_are_told() -> None:
    living = survival.Living(DomainMutant("value", "x", ""), 1, 1, (10**5000,), Outcome(10**5000), None)
    assert "thousands of digits" in living.told
    assert made_of(HALF, [(10**5000,), (1,)])


def test_check_shows_what_lives_and_what_would_kill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    check = check_of("searching/first_index", Narrow)
    one = TaskSet("one", (), {}, CheckSets("one", {check.task_id: check}))
    monkeypatch.setattr(commands, "load", lambda source: one)
    ran = CliRunner().invoke(commands.app, ["check", "--all", "--trials", "1"])
    assert ran.exit_code == 1
    assert f"DEVIATES {check.task_id}" in ran.output
    assert "LIVES looks at the first 9 items of argument 1" in ran.output or "LIVES right up to" in ran.output
    assert "would kill it: right is" in ran.output
    assert "domain mutants (" in ran.output
    assert all(len(line) < 600 for line in ran.output.splitlines())


def test_case_files_of_unknown_programs_are_tried_too(tmp_path: Path) -> None:
    """The same program with few small cases, and with cases as wide as its numbers and lists can be."""
    path, rows = tmp_path / "cases.jsonl", []
    for name, asked in (("few_total", LISTS), ("wide_total", [*WIDE, ([70_000, 1],), ([1200],)])):
        row = {"name": name, "buggy": f"def {name}(xs):\n    return len(xs)\n", "correct": TOTAL.replace("total", name)}
        rows.append(json.dumps({**row, "cases": [[list(args), said(TOTAL, args).value] for args in asked]}))
    path.write_text("\n".join(rows) + "\n")
    ran = CliRunner().invoke(commands.app, ["check", "--all", "--trials", "1", "--source", str(path)])
    assert ran.exit_code == 1
    assert "DEVIATES quixbugs/few_total/original" in ran.output
    assert "LIVES right up to 5 items of its argument" in ran.output
    assert "wide_total" not in ran.output
    assert "1 of 2 check sets are sound" in ran.output


def standalone(program: Program) -> str:
    """Our own reference of a program of the benchmark with what it needs of its module, as one file's text."""
    module = ast.parse(inspect.getsource(inspect.getmodule(program.reference)))
    defined: dict[str, ast.stmt] = {}
    for node in module.body:
        names = [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]
        names += [alias.asname or alias.name for alias in getattr(node, "names", ())]
        names += [node.name] if isinstance(node, ast.FunctionDef) else []
        defined.update(dict.fromkeys(names, node))
    wanted, waiting = set(), [program.entry]
    while waiting:
        node = defined.get(waiting.pop())
        if node is not None and node not in wanted:
            wanted.add(node)
            waiting += [used.id for used in ast.walk(node) if isinstance(used, ast.Name)]
    return "\n".join(ast.unparse(node) for node in module.body if node in wanted) + "\n"


def program_check(key: str) -> CheckSet:
    """A check-set of a program of the benchmark, with our own reference as its text and no cases of the file."""
    program = programs()[key]
    return CheckSet(
        program.key, program.key, program.entry, program.comparator, "E3", 80, (), 0.2, (),
        oracle_digest=program.digest, reference={f"{program.entry}.py": standalone(program)},
    )  # fmt: skip


def nothing_lives(key: str) -> None:
    found = survey(program_check(key) if key in programs() else check_of(key))
    assert [living.told for living in found.living] == []
    assert found.undecided == 0
    assert found.killed == found.made - found.equivalent
    assert found.killed > 12, found
    assert found.worst <= survival.LIVES


EVERY = [*sorted(catalogue.problems()), *sorted(programs())]


@pytest.mark.long
@pytest.mark.parametrize("key", EVERY)
def test_no_domain_mutant_of_any_problem_lives(key: str) -> None:
    nothing_lives(key)


@pytest.mark.parametrize("key", EVERY)
def test_few_runs_let_no_domain_mutant_of_any_problem_through(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a sixth of the runs, in a sixth of the time: what lives for sure is seen in these too."""
    monkeypatch.setattr(survival, "FIRST", 6)
    monkeypatch.setattr(survival, "_HUNT", 4)
    monkeypatch.setattr(survival, "LIVES", upper_bound(0, 6) ** survival.VERDICT_RUNS)
    nothing_lives(key)
