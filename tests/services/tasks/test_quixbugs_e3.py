"""Protects the benchmark's verdicts: right programs pass and wrong ones fail, through the real verifier, every time."""

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

REPETITIONS = 3
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


def verdicts(host: JailHost, jobs: Iterable[Job]) -> list[tuple[str, Judgement]]:
    """Judge each (name, check set, source) with the verifier's own settings: k = 3, all must pass."""
    settings = Verifier()
    limits = bounds(settings)

    def one(job: Job) -> tuple[str, Judgement]:
        name, check, source = job
        tree = {f"{check.entry}.py": source}
        return name, judge(
            name,
            settings.trials,
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


def test_correct_programs_pass_three_times_over(host: JailHost, tasks: TaskSet) -> None:
    jobs = [(check.entry, check, check.reference[f"{check.entry}.py"]) for check in tasks.checks] * REPETITIONS
    found = verdicts(host, jobs)
    assert deviations(found, "pass") == []
    assert all(len(judged.runs) == 3 for _, judged in found)


def test_unrepaired_programs_and_tables_fail_three_times_over(host: JailHost, tasks: TaskSet) -> None:
    """The tables answer every case of the file: a policy that learnt the benchmark by heart."""
    jobs = [
        (f"{check.entry} {number}", check, tree[f"{check.entry}.py"])
        for check in tasks.checks
        for number, tree in enumerate(check.known_bad)
    ]
    assert len(jobs) == 3 * len(tasks.checks)
    assert deviations(verdicts(host, jobs * REPETITIONS), "fail") == []


def test_wrong_repairs_fail_three_times_over(host: JailHost) -> None:
    """On fresh inputs alone: none of the file's cases is needed to tell them."""
    jobs = [
        (f"{name}: {label}", fresh_only(name), source)
        for name, fixes in FIXES.items()
        for label, source in fixes.items()
    ]
    assert {name.partition(":")[0] for name, _, _ in jobs} == {problem.entry for problem in problems().values()}
    assert all(len(fixes) >= 5 for fixes in FIXES.values())
    assert deviations(verdicts(host, jobs * REPETITIONS), "fail") == []


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


CONVERSIONS = {
    "tuples": "tuple(map(convert, x)) if isinstance(x, (list, tuple)) else x",
    "lists": "list(map(convert, x)) if isinstance(x, (list, tuple)) else x",
    "floats": "list(map(convert, x)) if isinstance(x, (list, tuple)) else float(x) if type(x) is int else x",
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
    assert deviations(verdicts(host, jobs), "pass") == []


def test_types_that_the_contract_forbids_are_refused(host: JailHost, tasks: TaskSet) -> None:
    """An index that is a float, a truth value that is a number, items that came out in another type."""
    by_name = {check.entry: check for check in tasks.checks}
    jobs = [
        ("index", by_name["find_first_in_sorted"], converted(by_name["find_first_in_sorted"], "floats")),
        ("items", by_name["flatten"], converted(by_name["flatten"], "floats")),
        ("tokens", by_name["shunting_yard"], converted(by_name["shunting_yard"], "floats")),
    ]
    assert deviations(verdicts(host, jobs), "fail") == []
