"""What a policy is told of the public checks: linked nodes and problems of many right answers included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import Limits
from services.runtime.jail.session import Server
from services.sandbox import checks
from services.tasks import oracle, values
from services.tasks.catalogue.problem import define
from services.tasks.fixture import Example, Fixture, ObjectClass
from services.tasks.objects import node_class
from tests.services.jails import add_fixture


def observed(host: JailHost, fixture: Fixture, source: str) -> checks.Observation:
    jail = host.launch(Limits())
    try:
        asked = checks.program_of(fixture, {"solution.py": source})
        return checks.observe(fixture, Server(jail, Limits(), 30.0).run(asked, checks.calls(fixture), 2.0, 30.0))
    finally:
        jail.close()


def test_linked_nodes_are_shown_as_they_are_built(host: JailHost) -> None:
    kind = ObjectClass("Node", ("value", "next"))
    node: Any = node_class(kind.name, kind.fields)
    fixture = add_fixture(
        public_checks=(Example((node(1, node(2)),), node(2)),), objects=(kind,), comparator="exact+args"
    )
    assert observed(host, fixture, "def add(n): return type(n)(2, None)\n") == checks.Observation("ok", True)
    told = observed(host, fixture, "def add(n): return n\n")
    assert told.text == "FAIL Node(1,Node(2,None)) want Node(2,None) got Node(1,Node(2,None))"
    assert "another type" in observed(host, fixture, "def add(n): return object()\n").text
    assert Fixture.from_json(fixture.to_json()).digest == fixture.digest


def even(args: tuple[Any, ...], value: Any) -> bool:
    return bool(value % 2 == 0 and value > args[0])


def test_another_right_answer_than_the_example_is_not_called_wrong(
    host: JailHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = define(
        "tiny", "def add(n):\n    return n + 2 - n % 2\n", lambda rng: (rng.randrange(9),), "predicate:even"
    )
    monkeypatch.setattr(oracle, "_known", lambda key: replace(problem, predicates=(even,)))
    oracle.unpinned.cache_clear()
    fixture = add_fixture(
        problem=problem.key,
        comparator="predicate:even",
        public_checks=(Example((4,), 6), Example((-1,), values.ExceptionName("ValueError"))),
    )
    raising = "def add(n):\n    if n < 0: raise ValueError\n    return {}\n"
    assert observed(host, fixture, raising.format(100)).passed
    assert observed(host, fixture, raising.format(3)).text == "FAIL 4 want 6 got 3"
    assert observed(host, fixture, raising.format("'x'")).text == "FAIL 4 want 6 got 'x'"
    assert observed(host, fixture, "def add(n): return 6\n").text == "FAIL -1 want raise ValueError got 6"
    oracle.unpinned.cache_clear()
