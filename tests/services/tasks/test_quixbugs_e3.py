"""Protects the benchmark's verdicts: right programs pass and wrong ones fail, through the real verifier, every time."""

import inspect
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from services.runtime.jail.launcher import JailHost
from services.runtime.settings import Verifier
from services.tasks.fixture import CheckSet
from services.tasks.quixbugs import load_quixbugs
from services.tasks.quixbugs.importer import FRESH
from services.tasks.quixbugs.problems import problems
from services.tasks.taskset import TaskSet
from services.verifier import trial
from services.verifier.judge import Judgement, judge
from services.verifier.main import bounds
from tests.attacks.wrong_fixes import FIXES
from tests.services.jails import jail_host

REPETITIONS = pytest.mark.parametrize("repeated", [1, pytest.param(3, marks=pytest.mark.long)])
"""Three times over by `make test-long`; each time is k = 3 runs."""
Job = tuple[str, CheckSet, str]


@pytest.fixture(scope="module")
def host() -> Iterator[JailHost]:
    yield from jail_host(6)


@pytest.fixture(scope="module")
def tasks(shared_equipment: Path) -> TaskSet:
    path = shared_equipment / "data" / "quixbugs.jsonl"
    if not path.is_file():
        pytest.skip(f"the benchmark's file is absent: {path}")
    return load_quixbugs(path)


def verdicts(host: JailHost, jobs: Iterable[Job], trials: int = 3, **changes: float) -> list[tuple[str, Judgement]]:
    """Judge each (name, check set, source) with the verifier's own settings; all of k = 3 must pass."""
    settings = Verifier.model_validate(changes)
    assert settings.trials == 3
    limits = bounds(settings)

    def one(job: Job) -> tuple[str, Judgement]:
        name, check, source = job
        tree = {f"{check.entry}.py": source}
        return name, judge(
            name,
            trials,
            settings.infra_retries,
            lambda seed: trial.run(host, tree, check, seed, limits),
            lambda: int(time.time() * 1000),
        )

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(one, jobs))


def deviations(found: Iterable[tuple[str, Judgement]], wanted: str) -> list[str]:
    return [f"{name}: {one.verdict} ({one.cause})" for name, one in found if one.verdict != wanted]


def test_every_known_program_is_judged_on_fresh_inputs(tasks: TaskSet) -> None:
    assert {check.entry for check in tasks.checks} == {problem.entry for problem in problems().values()}
    for check in tasks.checks:
        assert check.evidence == "E3"
        assert check.decoys, f"{check.entry}: no case of the file is asked"


@REPETITIONS
def test_correct_programs_pass(host: JailHost, tasks: TaskSet, repeated: int) -> None:
    jobs = [(check.entry, check, check.reference[f"{check.entry}.py"]) for check in tasks.checks] * repeated
    found = verdicts(host, jobs)
    assert deviations(found, "pass") == []
    assert all(len(judged.runs) == 3 for _, judged in found)


@REPETITIONS
def test_unrepaired_programs_and_tables_fail(host: JailHost, tasks: TaskSet, repeated: int) -> None:
    """The tables answer every case of the file: a policy that learnt the benchmark by heart."""
    jobs = [
        (f"{check.entry} {number}", check, tree[f"{check.entry}.py"])
        for check in tasks.checks
        for number, tree in enumerate(check.known_bad)
    ]
    assert len(jobs) == 3 * len(tasks.checks)
    assert deviations(verdicts(host, jobs * repeated), "fail") == []


@REPETITIONS
def test_wrong_repairs_fail(host: JailHost, repeated: int) -> None:
    """On fresh inputs alone: none of the file's cases is needed to tell them."""
    jobs = [
        (f"{name}: {label}", fresh_only(name), source)
        for name, fixes in FIXES.items()
        for label, source in fixes.items()
    ]
    assert {name.partition(":")[0] for name, _, _ in jobs} == {problem.entry for problem in problems().values()}
    assert all(len(fixes) >= 5 for fixes in FIXES.values())
    assert deviations(verdicts(host, jobs * repeated), "fail") == []


def fresh_only(name: str) -> CheckSet:
    problem = problems()[f"quixbugs/{name}"]
    return CheckSet(
        task_id=problem.key,
        problem=problem.key,
        entry=name,
        comparator=problem.comparator,
        evidence="E3",
        cases_per_trial=round(FRESH / 0.9),
        fixed_cases=(),
        call_cpu_s=0.1,
        known_bad=(),
        oracle_digest=problem.digest,
    )


PREAMBLE = """
import math, re
from bisect import bisect_left
from functools import reduce
from itertools import combinations
from math import factorial
from typing import Any
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""
# The definition word for word, as slow as the stated domain lets it be.
PLAIN = {
    "gcd": """
def gcd(a, b):
    while a and b:
        a, b = max(a, b) % min(a, b), min(a, b)
    return a + b
""",
    "get_factors": """
def get_factors(n):
    return next(([d] + get_factors(n // d) for d in range(2, n + 1) if n % d == 0), [])
""",
    "levenshtein": """
def levenshtein(s, t):
    if not s or not t:
        return len(s) + len(t)
    change = levenshtein(s[1:], t[1:]) + (s[0] != t[0])
    return min(change, levenshtein(s, t[1:]) + 1, levenshtein(s[1:], t) + 1)
""",
    "next_palindrome": """
def next_palindrome(digits):
    n = int("".join(map(str, digits))) + 1
    while str(n) != str(n)[::-1]:
        n += 1
    return [int(char) for char in str(n)]
""",
    "pascal": """
from functools import cache

@cache
def entry(row, column):
    return 1 if column in (0, row) else entry(row - 1, column - 1) + entry(row - 1, column)

def pascal(n):
    return [[entry(row, column) for column in range(row + 1)] for row in range(n)]
""",
    "sieve": """
def sieve(bound):
    return [n for n in range(2, bound + 1) if not any(n % d == 0 for d in range(2, n))]
""",
    "max_sublist_sum": """
def max_sublist_sum(xs):
    return max(sum(xs[i:j]) for i in range(len(xs) + 1) for j in range(i, len(xs) + 1))
""",
    "knapsack": """
def knapsack(capacity, items):
    if not items:
        return 0
    (weight, value), *rest = items
    best = knapsack(capacity, rest)
    return best if weight > capacity else max(best, value + knapsack(capacity - weight, rest))
""",
    "longest_common_subsequence": """
def longest_common_subsequence(a, b):
    if not a or not b:
        return ""
    if a[-1] == b[-1]:
        return longest_common_subsequence(a[:-1], b[:-1]) + a[-1]
    return max(longest_common_subsequence(a[:-1], b), longest_common_subsequence(a, b[:-1]), key=len)
""",
}


def test_other_right_programs_pass(host: JailHost, tasks: TaskSet) -> None:
    """Our references go about it in other ways than the benchmark's programs; neither way is refused."""
    jobs = [(f"{name}, plainly", check_named(tasks, name), source) for name, source in PLAIN.items()]
    for check in tasks.checks:
        reference = problems()[check.problem].reference
        jobs.append((f"{check.entry}, by reference", check, PREAMBLE + inspect.getsource(reference)))
    assert deviations(verdicts(host, jobs, trials=1), "pass") == []


def check_named(tasks: TaskSet, name: str) -> CheckSet:
    return tasks.checks.get(f"quixbugs/{name}/original")


CONVERSIONS = {
    "tuples": "tuple(map(convert, x)) if isinstance(x, (list, tuple)) else x",
    "lists": "list(map(convert, x)) if isinstance(x, (list, tuple)) else x",
    "floats": "list(map(convert, x)) if isinstance(x, (list, tuple))"
    " else float(x) if type(x) is int and x == float(x) else x",
    "integers": "int(x) if type(x) is float and x == int(x) else x",
    "generator": "(y for y in x)",
}


def converted(check: CheckSet, conversion: str) -> str:
    """The correct program with its answers in other types; its own recursion does not see them."""
    source = check.reference[f"{check.entry}.py"]
    return (
        f"inner = {{}}\nexec({source!r}, inner)\n\ndef convert(x):\n    return {CONVERSIONS[conversion]}\n\n"
        f"def {check.entry}(*args):\n    x = inner[{check.entry!r}](*args)\n"
        f"    return convert(list(x) if hasattr(x, '__next__') else x)\n"
    )


def test_types_that_the_contract_allows_are_not_refused(host: JailHost, tasks: TaskSet) -> None:
    jobs = []
    for check in tasks.checks:
        allowed = []
        if "sequence" in check.comparator:
            allowed += ["tuples", "lists", "generator"]
        if "number" in check.comparator:
            allowed += ["floats"]
        if check.comparator.startswith("rel") or check.entry == "sqrt":
            allowed += ["integers"]
        jobs += [(f"{check.entry} as {one}", check, converted(check, one)) for one in allowed]
    assert len(jobs) > 60
    assert deviations(verdicts(host, jobs, trials=1), "pass") == []


def test_types_that_the_contract_forbids_are_refused(host: JailHost, tasks: TaskSet) -> None:
    """An index that is a float, a truth value that is a number, items that came out in another type."""
    names = ("find_first_in_sorted", "find_in_sorted", "flatten", "shunting_yard")
    jobs = [(name, check_named(tasks, name), converted(check_named(tasks, name), "floats")) for name in names]
    assert deviations(verdicts(host, jobs, trials=1), "fail") == []
