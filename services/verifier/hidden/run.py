"""Judging by hidden pytest files: one entry for both ways of running them, and what they need at start."""

from __future__ import annotations

import ast
import importlib.util
import random
import sys
from collections.abc import Iterable, Mapping

from services.runtime import scratch
from services.runtime.errors import UserError
from services.runtime.jail.backend import Backend
from services.tasks import api
from services.tasks.fixture import CheckSet, HiddenTests
from services.verifier.attribution import Facts
from services.verifier.hidden import inside, must_fail, outside, pytest_arguments
from services.verifier.trial import Bounds

_TAKEN = frozenset((*sys.stdlib_module_names, "pytest", "pluggy", "iniconfig", "packaging", "pygments", "services"))


def run(host: Backend, tree: Mapping[str, str], check: CheckSet, seed: int, bounds: Bounds) -> Facts:
    """One trial of a candidate's tree by the check set's hidden tests, in the mode that they declare.

    Never raises for anything that the candidate does. Raises outside.CheckFault, must_fail.NoCanary, ValueError or
    SyntaxError for tests that are wrong by themselves.
    """
    assert check.hidden_tests is not None
    run_trial = outside.run if check.hidden_tests.mode == "outside" else inside.run
    return run_trial(host, tree, check, seed, bounds)


def require(checks: Iterable[CheckSet]) -> None:
    """What a verifier of these check sets needs: pytest, and hidden tests that can be run at all.

    Call it when a verifier starts; it also removes what a killed one left. Raises UserError.
    """
    wanted = [check for check in checks if check.hidden_tests is not None]
    if not wanted:
        return
    if importlib.util.find_spec("pytest") is None:
        raise UserError(
            "the task set has hidden pytest files, and pytest is not installed",
            wanted[0].task_id,
            "pip install 'rollstream[hidden-tests]'",
        )
    scratch.sweep()
    for check in wanted:
        assert check.hidden_tests is not None
        try:
            if check.fixed_cases or check.evidence == "E3":
                raise ValueError("a check set asks hidden tests or cases, not both, and tests are no E3 evidence")
            validate(check.hidden_tests)
        except (ValueError, SyntaxError) as error:
            raise UserError(f"hidden tests cannot be run: {error}", check.task_id, "mend the task set") from error


def validate(tests: HiddenTests) -> None:
    """Raises ValueError or SyntaxError that says what is wrong with hidden tests, without running any."""
    if not tests.expected:
        raise ValueError("no test is expected, so that nothing would be judged")
    if len(set(tests.expected)) != len(tests.expected):
        raise ValueError("a test is expected twice")
    if tests.module.partition(".")[0] in _TAKEN:
        raise ValueError(f"module {tests.module!r} has the name of a module that pytest itself may import")
    for path in tests.files:
        if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
            raise ValueError(f"{path!r} is not a relative path")
        if path.rpartition("/")[2] in ("conftest.py", pytest_arguments.INI):
            raise ValueError(f"{path!r} would have no effect: hidden tests are run without")
    there = {
        f"{path}::{name}"
        for path, text in tests.files.items()
        if path.endswith(".py")
        for name, _ in must_fail.tests(ast.parse(text, path))
    }
    missing = [test for test in tests.expected if test.partition("[")[0] not in there]
    if missing:
        raise ValueError(f"expected tests are in no file: {', '.join(missing)}")
    if tests.mode == "outside":
        api.parse(tests.api)
    else:
        must_fail.variants(tests.files, random.Random(0))
