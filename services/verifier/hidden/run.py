"""Judging by hidden pytest files: one entry for both ways of running them, and what they need at start."""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from services.runtime import scratch
from services.runtime.errors import UserError
from services.runtime.jail.backend import Backend
from services.tasks import api
from services.tasks.fixture import CheckSet, HiddenTests, content_digest
from services.verifier.attribution import Facts
from services.verifier.hidden import collect, inside, must_fail, outside, pytest_arguments
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
    digests = [content_digest(check.hidden_tests.to_json()) for check in wanted if check.hidden_tests is not None]
    distinct = dict(zip(digests, wanted, strict=True))  # the bugs of one module share its tests
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "hidden") as pool:
        faults = dict(zip(distinct, pool.map(_fault, distinct.values()), strict=True))
    for check, digest in zip(wanted, digests, strict=True):
        fault = faults[digest]
        if check.fixed_cases or check.evidence == "E3":
            fault = ValueError("a check set asks hidden tests or cases, not both, and tests are no E3 evidence")
        if fault is not None:
            raise UserError(f"hidden tests cannot be run: {fault}", check.task_id, "mend the task set") from fault


def _fault(check: CheckSet) -> Exception | None:
    assert check.hidden_tests is not None
    try:
        validate(check.hidden_tests)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        return error
    return None


def validate(tests: HiddenTests) -> None:
    """Raises ValueError or SyntaxError that says what is wrong with hidden tests, without running any.

    Their files are imported once, in a trusted process, so that pytest itself says which tests there are.
    """
    if not tests.expected:
        raise ValueError("no test is expected, so that nothing would be judged")
    if len(set(tests.expected)) != len(tests.expected):
        raise ValueError("a test is expected twice")
    if not all(part.isidentifier() for part in tests.module.split(".")):
        raise ValueError(f"module {tests.module!r} is no name of a module")
    if tests.module.partition(".")[0] in _TAKEN:
        raise ValueError(f"module {tests.module!r} has the name of a module that pytest itself may import")
    for path, text in tests.files.items():
        if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
            raise ValueError(f"{path!r} is not a relative path")
        if "[" in path or "::" in path or not path.isprintable():
            raise ValueError(f"{path!r} cannot stand in the id of a test")
        if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
            raise ValueError(f"{path!r} is no text: it holds NUL or half a character")
        if path.rpartition("/")[2] in ("conftest.py", pytest_arguments.INI):
            raise ValueError(f"{path!r} would have no effect: hidden tests are run without")
    if tests.mode == "outside":
        api.parse(tests.api)
    collect.require_expected(tests)
    if tests.mode == "inside":
        must_fail.variants(tests.files, random.Random(0), tests.expected)
