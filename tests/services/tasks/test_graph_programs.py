"""Protects linked nodes as arguments and answers: nine textbook programs over graphs, judged like any other."""

import time
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from services.runtime.jail.launcher import JailHost
from services.runtime.settings import Verifier
from services.tasks.comparators import Outcome
from services.tasks.fixture import CheckSet
from services.tasks.oracle import Oracle
from services.tasks.quixbugs import problems as known
from services.verifier import trial
from services.verifier.judge import judge
from services.verifier.main import bounds
from tests.services.jails import jail_host
from tests.services.tasks.graph_programs import PROGRAMS, GraphProgram, chain


@pytest.fixture(scope="module")
def host() -> Iterator[JailHost]:
    yield from jail_host(2)


@pytest.fixture(autouse=True)
def contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nine contracts stand among the known ones, where the verifier's oracle finds them."""
    for program in PROGRAMS:
        monkeypatch.setitem(known.problems(), program.problem.key, program.problem)


def check_of(program: GraphProgram) -> CheckSet:
    problem = program.problem
    return CheckSet(
        task_id=problem.key,
        problem=problem.key,
        entry=problem.entry,
        comparator=problem.comparator,
        evidence="E3",
        cases_per_trial=60,
        fixed_cases=(),
        call_cpu_s=0.1,
        known_bad=(),
        oracle_digest=problem.digest,
        objects=program.objects,
    )


def verdict(host: JailHost, program: GraphProgram, source: str) -> str:
    check, limits = check_of(program), bounds(Verifier())
    tree = {"solution.py": source}
    found = judge(
        check.task_id,
        3,
        3,
        lambda seed: trial.run(host, tree, check, seed, limits),
        lambda: int(time.time() * 1000),
    )
    return found.verdict


def name_of(program: GraphProgram) -> str:
    return program.problem.entry


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_right_passes_and_wrong_fails(host: JailHost, program: GraphProgram) -> None:
    for _ in range(3):
        assert verdict(host, program, program.correct) == "pass"
        assert verdict(host, program, program.buggy) == "fail"


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_reference_and_right_program_are_two_ways_to_one_answer(program: GraphProgram) -> None:
    """In this process, so that a disagreement shows its arguments."""
    check, namespace = check_of(program), dict[str, Any]()
    exec(program.correct, namespace)
    rng = Random(program.problem.entry)
    for _ in range(200):
        args = program.problem.generate(rng)
        got = Outcome(value=namespace[program.problem.entry](*deepcopy(args)))
        assert check.agrees(Oracle(program.problem).answer(args), got, args), args


def test_check_sets_with_nodes_keep_their_digest_when_stored() -> None:
    for program in PROGRAMS:
        check = check_of(program)
        assert CheckSet.from_json(check.to_json()).digest == check.digest


FORGED = {
    "breadth_first_search": "def breadth_first_search(a, b):\n    return a is b or b in a.successors\n",
    "reverse_linked_list": "def reverse_linked_list(node):\n    return node\n",
    "detect_cycle": "def detect_cycle(node):\n    return node.successor is node\n",
    "topological_ordering": "def topological_ordering(nodes):\n    return sorted(nodes, key=lambda n: n.value)\n",
    "minimum_spanning_tree": "def minimum_spanning_tree(weights):\n    return set(weights)\n",
}


@pytest.mark.parametrize("program", [one for one in PROGRAMS if one.problem.entry in FORGED], ids=name_of)
def test_guesses_fail(host: JailHost, program: GraphProgram) -> None:
    assert verdict(host, program, FORGED[program.problem.entry]) == "fail"


def test_a_circle_is_no_straight_list() -> None:
    """An answer that begins alike for ever, and one whose two cells are one, are told from the right one."""
    check = check_of(next(one for one in PROGRAMS if one.problem.entry == "reverse_linked_list"))
    cells = chain([1, 1])
    expected = check.expected((cells[0],))
    looped = chain([1])[0]
    looped.successor = looped
    assert check.agrees(expected, Outcome(value=chain([1, 1])[0]), (cells[0],))
    assert not check.agrees(expected, Outcome(value=looped), (cells[0],))
