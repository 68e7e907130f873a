"""Protects the quick look: sound sets pass it, and each way of being unsound is seen and named."""

import dataclasses
import os
import time

import pytest

from services.tasks.bench import Bench
from services.tasks.build import build_catalogue
from services.tasks.comparators import Outcome
from services.tasks.quick_look import look, passes
from services.tasks.taskset import TaskSet


@pytest.fixture(scope="module")
def tasks() -> TaskSet:
    return build_catalogue()


@pytest.fixture
def bench():
    with Bench() as one:
        yield one


def test_one_task_of_every_problem_is_sound(tasks: TaskSet, bench: Bench) -> None:
    seen = {fixture.problem: fixture.task_id for fixture in tasks.fixtures if "no answer" not in fixture.first_failure}
    for task_id in seen.values():
        found = look(bench, tasks.checks.get(task_id), 2)
        assert found.sound, found.deviation()


def test_endless_loop_is_killed(tasks: TaskSet, bench: Bench) -> None:
    fixture = next(fixture for fixture in tasks.fixtures if "no answer" in fixture.first_failure)
    assert look(bench, tasks.checks.get(fixture.task_id), 1).sound


def test_wrong_reference_and_right_known_bad_are_named(tasks: TaskSet, bench: Bench) -> None:
    check = tasks.checks.get(tasks.fixtures[0].task_id)
    wrong = look(bench, dataclasses.replace(check, reference=check.known_bad[1]), 2)
    assert not wrong.sound
    assert "reference passed 0 of 2" in wrong.deviation()
    spared = look(bench, dataclasses.replace(check, known_bad=(check.reference, *check.known_bad[1:])), 2)
    assert spared.kills == (0, 2, 2)
    assert "unrepaired base passed 2 of 2" in spared.deviation()
    with pytest.raises(ValueError, match="no reference"):
        look(bench, dataclasses.replace(check, reference={}))


@pytest.mark.parametrize(
    "source", ["def g(x):\n    return 1\n", "def f(:\n", "raise SystemExit(0)\n", "import os\nos._exit(0)\n"]
)
def test_candidate_that_does_not_load_fails(tasks: TaskSet, bench: Bench, source: str) -> None:
    check = tasks.checks.get(tasks.fixtures[0].task_id)
    assert not passes(bench, check, {"solution.py": source}, "s")
    assert passes(bench, check, check.reference, "s")  # and the bench works on


def test_bench_attributes_what_happened(bench: Bench) -> None:
    source = (
        "import os, sys, time\n"
        "def f(what):\n"
        "    if what == 'print': print('x' * 100000)\n"
        "    if what == 'die': os._exit(3)\n"
        "    if what == 'spin':\n        while True: pass\n"
        "    if what == 'object': return object()\n"
        "    if what == 'raise': raise KeyError(1)\n"
        "    if what == 'eat': return [0] * 10 ** 10\n"
        "    if what == 'catch':\n"
        "        while True:\n"
        "            try:\n                while True: pass\n"
        "            except Exception: pass\n"
        "    return what\n"
    )
    assert bench.load(source, "f") is None
    answers = {
        what: bench.ask((what,), "exact", 0.2) for what in ("print", "die", "spin", "object", "raise", "eat", "catch")
    }
    assert answers["print"] == Outcome("print")
    assert answers["raise"] == Outcome(error="KeyError")
    assert answers["eat"] == Outcome(error="MemoryError")
    assert [what for what, answer in answers.items() if answer is None] == ["die", "spin", "object", "catch"]
    assert bench.ask(("ok",), "exact", 0.2) == Outcome("ok")


def test_sleeping_candidate_meets_the_wall(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.tasks.bench.WALL_SLACK_S", 0.5)
    assert bench.load("import time\ndef f(x):\n    time.sleep(x)\n", "f") is None
    began = time.monotonic()
    assert bench.ask((60,), "exact", 0.2) is None
    assert time.monotonic() - began < 20


def test_bench_leaves_no_process() -> None:
    with Bench() as one:
        one.load("import os\ndef f():\n    return os.getpid()\n", "f")
        outcome = one.ask((), "exact", 1.0)
    assert outcome is not None
    with pytest.raises(ProcessLookupError):
        os.kill(outcome.value, 0)


def test_arguments_after_the_call_come_back_where_declared(bench: Bench) -> None:
    bench.load("def f(xs):\n    xs.sort()\n", "f")
    assert bench.ask(([2, 1],), "exact+args", 1.0) == Outcome(None, args_after=([1, 2],))
    assert bench.ask(([2, 1],), "exact", 1.0) == Outcome(None)
