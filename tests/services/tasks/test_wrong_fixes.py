"""Protects the width of the questions: programs that are right on small inputs only fail every check run of theirs, and
right programs of other algorithms and styles pass."""

import ast
import marshal
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from services.runtime.jail.launcher import JailHost
from services.runtime.settings import Verifier
from services.tasks import catalogue, values
from services.tasks.build import build_catalogue
from services.tasks.comparators import Outcome
from services.tasks.fixture import CheckSet
from services.verifier import trial
from services.verifier.attribution import attribute
from services.verifier.main import bounds
from tests.services.jails import jail_host
from tests.services.tasks.right_programs import RIGHT
from tests.services.tasks.wrong_fixes import WRONG, Wrong

RUNS = 300
"""Check runs of which a wrong program may pass none. They share what is dear (inputs and trusted answers)."""


@pytest.fixture
def host() -> Iterator[JailHost]:
    yield from jail_host(2)


def check_of(key: str) -> CheckSet:
    tasks = build_catalogue()
    return next(tasks.checks.get(fixture.task_id) for fixture in tasks.fixtures if fixture.problem == key)


def function_of(source: str, entry: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    function: Callable[..., Any] = namespace[entry]
    return function


def ask(function: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    """Our own program's answer, in this process."""
    given = marshal.loads(marshal.dumps(args))
    try:
        return Outcome(function(*given), args_after=given)
    except Exception as error:
        return Outcome(error=values.exception_name(error), args_after=given)


def is_right(check: CheckSet, function: Callable[..., Any], args: tuple[Any, ...], expected: Outcome) -> bool:
    return check.agrees(expected, ask(function, args), args)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong.key}: {wrong.what}")
def test_a_wrong_program_is_wrong_where_it_says(wrong: Wrong) -> None:
    check = check_of(wrong.key)
    args = eval(wrong.wrong_on)
    assert not is_right(check, function_of(wrong.source, check.entry), args, check.expected(args))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # one of the wrong ones takes texts for patterns
@pytest.mark.parametrize("key", sorted({wrong.key for wrong in WRONG}))
def test_no_wrong_program_passes_a_check_run(key: str) -> None:
    check = check_of(key)
    functions = {wrong.what: function_of(wrong.source, check.entry) for wrong in WRONG if wrong.key == key}
    passed = []
    for seed in range(RUNS):
        calls = check.inputs(random.Random(seed))
        answers: dict[int, Outcome] = {}

        def expected(at: int, calls: Any = calls, answers: dict[int, Outcome] = answers) -> Outcome:
            if at not in answers:
                answers[at] = check.expected(calls[at])
            return answers[at]

        for what, function in functions.items():
            if all(is_right(check, function, args, expected(at)) for at, args in enumerate(calls)):
                passed.append((what, seed))
    assert passed == []


@pytest.mark.parametrize("key", sorted(RIGHT))
def test_right_programs_pass(key: str) -> None:
    check = check_of(key)
    functions = [function_of(source, check.entry) for source in RIGHT[key]]
    for seed in range(3):
        calls = check.inputs(random.Random(seed))
        expected = [check.expected(args) for args in calls]
        for number, function in enumerate(functions):
            for args, want in zip(calls, expected, strict=True):
                assert is_right(check, function, args, want), (number, args)


def test_every_function_has_right_programs_of_its_own_and_wrong_ones() -> None:
    keys = set(catalogue.problems())
    assert set(RIGHT) == keys == {wrong.key for wrong in WRONG}
    assert min(map(len, RIGHT.values())) >= 2
    assert sum(map(len, RIGHT.values())) >= 81
    assert len(WRONG) >= 61
    for key, sources in RIGHT.items():
        shapes = {ast.dump(ast.parse(source)) for source in (*sources, catalogue.problem(key).source)}
        assert len(shapes) == len(sources) + 1


def test_right_programs_pass_in_the_jail(host: JailHost) -> None:
    """Once each, as the verifier asks them: with its limits, over the pipes."""
    limits = bounds(Verifier())
    failed = []
    for key, sources in RIGHT.items():
        check = check_of(key)
        for number, source in enumerate(sources):
            found = attribute(trial.run(host, {"solution.py": source}, check, number, limits))
            if found != ("pass", "ok"):
                failed.append((key, number, found))
    assert failed == []
