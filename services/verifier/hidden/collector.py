"""What the trusted process says about hidden tests that are only listed: nobody answers them, and nothing is run."""

from __future__ import annotations

import inspect
import unittest
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn, Protocol

from _pytest import skipping  # what pytest itself makes of marks has no public name

TEXT = 300


class Says(Protocol):
    """The socket to the verifier."""

    def say(self, message: dict[str, Any]) -> None: ...


class NobodyThere(BaseException):
    """The tests ask the module while they are collected: what they are is known when a candidate answers."""


class Nobody:
    """In the place of a candidate."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, question: Mapping[str, Any]) -> NoReturn:
        self.asked = True
        raise NobodyThere("the module is asked while the tests are collected")


def anything(name: str, nobody: Nobody) -> ModuleType:
    """A module that has every name, for tests in the candidate's own interpreter: their interface is not declared."""
    made = ModuleType(name)

    class Asked(type):
        def __call__(cls, *args: Any, **named: Any) -> NoReturn:
            nobody({})

        def __getattr__(cls, wanted: str) -> Any:
            if wanted.startswith("__"):
                raise AttributeError(wanted)
            return Asked(wanted, (), {})

    def attribute(wanted: str) -> Any:
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        return Asked(wanted, (), {})

    made.__dict__["__getattr__"] = attribute
    return made


class Collector:
    """The pytest plugin: reports every test with what keeps it from ever passing, and every file that does not load."""

    def __init__(self, line: Says, nobody: Nobody) -> None:
        self._line = line
        self._nobody = nobody

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != "passed":
            said = {"told": "broken", "id": report.nodeid, "text": _last(report.longrepr), "asked": self._nobody.asked}
            self._line.say(said)
        self._nobody.asked = False

    def pytest_collection_finish(self, session: Any) -> None:
        for item in session.items:
            self._line.say({"told": "test", "id": item.nodeid, "why": _unsupported(item)})

    def pytest_internalerror(self, excrepr: Any) -> None:
        self._line.say({"told": "internal", "text": _last(excrepr)})


def _last(found: Any) -> str:
    """The last lines of a report: what was raised."""
    try:
        if isinstance(found, tuple):  # where and why something is skipped
            found = found[-1]
        lines = str(found).strip().splitlines()[-3:]
        return " ".join(line.strip() for line in lines)[-TEXT:].encode("ascii", "backslashreplace").decode()
    except Exception as error:
        return type(error).__name__


def _unsupported(item: Any) -> str:
    """Why no candidate can pass this test; "" where nothing is known."""
    function, kind = getattr(item, "obj", None), getattr(item, "cls", None) or object
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    if is_async and not issubclass(kind, unittest.IsolatedAsyncioTestCase):
        return "it is async, which needs a class of unittest.IsolatedAsyncioTestCase: plugins are not loaded"
    skipped = getattr(function, "__unittest_skip__", False) or getattr(kind, "__unittest_skip__", False)
    if skipped or _marked(skipping.evaluate_skip_marks, item):
        return "it is skipped"
    if getattr(function, "__unittest_expecting_failure__", False) or _marked(skipping.evaluate_xfail_marks, item):
        return "it is expected to fail"
    info = getattr(item, "_fixtureinfo", None)
    given = {"request", *getattr(getattr(item, "callspec", None), "params", ())}
    known = {*getattr(info, "name2fixturedefs", ()), *given}
    missing = [name for name in getattr(info, "names_closure", ()) if name not in known]
    if missing:
        return f"there is no fixture {', '.join(missing)}: plugins and conftest files are not loaded"
    made = [one.func for defined in getattr(info, "name2fixturedefs", {}).values() for one in defined]
    waiting = [one.__name__ for one in made if inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one)]
    return f"its fixture {', '.join(waiting)} is async, and plugins are not loaded" if waiting else ""


def _marked(evaluate: Callable[[Any], object], item: Any) -> bool:
    """What pytest itself makes of the conditions of a test's marks; those that cannot be told yet do not hold."""
    try:
        return evaluate(item) is not None
    except BaseException:  # the condition asks the module, or is none
        return False
