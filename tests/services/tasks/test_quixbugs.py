"""Protects the importer: 31 real programs become sound tasks, and a bad file gives one message that names the line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from services.tasks.bench import Bench
from services.tasks.quick_look import look
from services.tasks.quixbugs import BadProgram, load_quixbugs
from services.tasks.taskset import HELDOUT_FAMILIES, TaskSet, load_hidden, load_public

# Their unrepaired programs loop for ever on a case, which costs the whole call limit each time.
ENDLESS = {"bitcount", "find_first_in_sorted", "sqrt"}


@pytest.fixture(scope="module")
def tasks(shared_equipment: Path) -> TaskSet:
    path = shared_equipment / "data" / "quixbugs.jsonl"
    if not path.is_file():
        pytest.skip(f"the benchmark's file is absent: {path}")
    return load_quixbugs(path)


def test_all_programs_arrive(tasks: TaskSet) -> None:
    assert len(tasks.fixtures) == 31
    assert len(tasks.split(HELDOUT_FAMILIES)) == 31
    # Of 242: six are beyond useful time, and one is outside its program's definition.
    assert sum(len(check.fixed_cases or check.decoys) for check in tasks.checks) == 235
    assert all(check.evidence == "E3" for check in tasks.checks)
    assert load_public(tasks.public_document()).fixtures == tasks.fixtures
    assert load_hidden(tasks.hidden_document()).by_id == tasks.checks.by_id


def test_hidden_cases_remain(tasks: TaskSet) -> None:
    for fixture in tasks.fixtures:
        assert 1 <= len(fixture.public_checks) < tasks.checks.get(fixture.task_id).cases_per_trial
        assert fixture.first_failure.startswith("FAIL ")


def test_correct_programs_pass_and_buggy_ones_fail(tasks: TaskSet) -> None:
    with Bench() as bench:
        for check in tasks.checks:
            if check.entry not in ENDLESS:
                found = look(bench, check, 1)
                assert found.sound, f"{check.task_id}: {found.deviation()}"


def test_endless_programs_fail_too(tasks: TaskSet) -> None:
    """With the unrepaired program only, and a shorter limit than the verifier grants: each refusal costs it whole."""
    with Bench() as bench:
        for check in tasks.checks:
            if check.entry in ENDLESS:
                found = look(bench, replace(check, call_cpu_s=0.5, known_bad=check.known_bad[:1]), 1)
                assert found.sound, f"{check.task_id}: {found.deviation()}"


GOOD = {
    "name": "twice",
    "buggy": "def twice(x):\n    yield x\n    yield x + 1\n",
    "correct": "def twice(x):\n    yield x\n    yield x\n",
    "cases": [[[1], [1, 1]], [2, [2, 2]], [[[3]], [[3], [3]]]],
}


def write(path: Path, *programs: object) -> Path:
    path.write_text("\n".join(item if isinstance(item, str) else json.dumps(item) for item in programs) + "\n")
    return path


def test_generators_and_lone_arguments(tmp_path: Path) -> None:
    tasks = load_quixbugs(write(tmp_path / "ours.jsonl", GOOD, ""))
    (fixture,) = tasks.fixtures
    assert fixture.task_id == "quixbugs/twice/original"
    assert fixture.first_failure == "FAIL 1 want [1,1] got [1,2]"
    with Bench() as bench:
        assert look(bench, tasks.checks.get(fixture.task_id), 2).sound


KNOWN = {
    "name": "gcd",
    "buggy": "def gcd(a, b):\n    return a\n",
    "correct": "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n",
    "cases": [[[4, 2], 2], [[9, 6], 3], [[7, 1], 1], [[5, 5], 5]],
}


def test_a_known_name_is_judged_on_fresh_inputs(tmp_path: Path) -> None:
    (check,) = load_quixbugs(write(tmp_path / "ours.jsonl", KNOWN)).checks
    assert (check.evidence, check.comparator, check.fixed_cases) == ("E3", "number", ())
    assert {example.args for example in check.decoys} == {(4, 2), (9, 6), (7, 1), (5, 5)}
    with Bench() as bench:
        assert look(bench, check, 2).sound


@pytest.mark.parametrize(
    "changes",
    [
        {"correct": "def gcd(a, b):\n    return a + b\n", "cases": [[[4, 2], 6], [[9, 6], 15]]},
        {"correct": "def gcd(xs):\n    return sum(xs)\n", "cases": [[[[4, 2]], 6], [[[9, 6]], 15]]},
        {"correct": "def gcd(a, b):\n    return a + b\n", "cases": [[["4", "2"], "42"], [["a", "b"], "ab"]]},
    ],
)
def test_another_program_of_a_known_name_keeps_its_own_cases(tmp_path: Path, changes: dict[str, object]) -> None:
    (check,) = load_quixbugs(write(tmp_path / "ours.jsonl", {**KNOWN, **changes})).checks
    assert (check.evidence, check.oracle_digest, len(check.fixed_cases)) == ("E2", "", 2)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{", "not JSON"),
        ([], "an object is needed"),
        ({**GOOD, "name": ""}, "'name' must be text"),
        ({**GOOD, "name": "two words"}, "name of a function"),
        ({**GOOD, "buggy": None}, "'buggy' must be text"),
        ({**GOOD, "cases": []}, "'cases' must be"),
        ({**GOOD, "cases": [[1]]}, "'cases' must be"),
        ({**GOOD, "buggy": GOOD["correct"]}, "passes all of its cases"),
        (GOOD, "is in the file twice"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, bad: object, message: str) -> None:
    with pytest.raises(BadProgram, match=f"line 2: .*{message}"):
        load_quixbugs(write(tmp_path / "bad.jsonl", GOOD, bad))


def test_empty_file(tmp_path: Path) -> None:
    with pytest.raises(BadProgram, match="holds no program"):
        load_quixbugs(write(tmp_path / "empty.jsonl"))
