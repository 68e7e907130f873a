"""One check run: what it asks, what it counts, and that each declared looseness is no looser than it says."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, Limits
from services.runtime.settings import Verifier
from services.tasks import catalogue, oracle, values
from services.tasks.catalogue.problem import define
from services.tasks.fixture import CheckSet, Example, HiddenTests, ObjectClass, Outcome
from services.tasks.objects import node_class
from services.verifier import trial
from services.verifier.attribution import Facts, attribute
from services.verifier.main import bounds
from tests.services.jails import ADD_FIX, add_check

BOUNDS = trial.Bounds(Limits(memory_bytes=96 * MIB, processes=12, cpu_s=2), call_cpu_s=0.2, wall_s=30.0)
COUNTING = replace(BOUNDS, all_cases=True)


def ran(host: JailHost, source: str, check: CheckSet, seed: int = 1, bounds: trial.Bounds = BOUNDS) -> Facts:
    return trial.run(host, {"solution.py": source}, check, seed, bounds)


def test_the_first_rejection_ends_a_run_unless_every_case_is_counted(host: JailHost) -> None:
    check = add_check(fixed_cases=tuple(Example((n, 1), n + 1) for n in range(10)))
    source = "def add(a, b): return a + b if a < 7 else 'x'\n"
    facts = ran(host, source, check)
    assert attribute(facts) == ("fail", "wrong_value")
    assert facts.right is None
    assert facts.answered < facts.wanted == 11
    asked = [args[0] for args in check.inputs(random.Random(5))]
    facts = ran(host, source, check, 5, COUNTING)
    assert attribute(facts) == ("fail", "wrong_value")
    assert (facts.answered, facts.right) == (11, sum(a < 7 for a in asked))
    facts = ran(host, ADD_FIX, check, 5, COUNTING)
    assert (attribute(facts), facts.right) == (("pass", "ok"), 11)


def test_every_seed_has_a_hash_seed_that_is_in_force_and_recorded(host: JailHost) -> None:
    check = add_check(fixed_cases=(Example((1, 2), 3),))
    told = "def add(a, b): raise (KeyError if hash('a') % 2 else IndexError)\n"
    seeds = [trial.hash_seed(seed) for seed in range(200)]
    assert len(set(seeds)) == 200
    assert all(0 <= seed < 1 << 32 for seed in seeds)
    facts = ran(host, told, check, 7)
    assert (facts.hash_seed, facts.backend) == (trial.hash_seed(7), "bubblewrap")
    assert facts.boot_s is not None
    hidden = "import os, posix\nassert not [k for k in posix.environ if b'SEED' in k]\n" + ADD_FIX
    assert attribute(ran(host, hidden, check)) == ("pass", "ok")


CELL = ObjectClass("Node", ("value", "next"))
Cell: Any = node_class(CELL.name, CELL.fields)
REVERSE = """
def add(node):
    before = None
    while node is not None:
        node.next, before, node = before, node, node.next
    return before
"""


def chain(*numbers: int) -> Any:
    head = None
    for number in reversed(numbers):
        head = Cell(number, head)
    return head


def linked_check(**changes: Any) -> CheckSet:
    cases = tuple(Example((chain(*range(n)),), chain(*reversed(range(n)))) for n in (0, 1, 2, 5, 900))
    return add_check(fixed_cases=cases, objects=(CELL,), **changes)


def test_linked_lists_are_asked_and_judged_as_graphs(host: JailHost) -> None:
    check = linked_check()
    assert attribute(ran(host, REVERSE, check)) == ("pass", "ok")
    copies = "def add(node):\n    new = None\n    while node:\n"
    copies += "        new = type(node)(node.value, new)\n        node = node.next\n    return new\n"
    assert attribute(ran(host, copies, check)) == ("pass", "ok")
    assert attribute(ran(host, "def add(node): return node\n", check)) == ("fail", "wrong_value")
    ring = REVERSE.replace("return before", "if before: before.next = before\n    return before")
    assert attribute(ran(host, ring, check)) == ("fail", "wrong_value")
    lists = "def add(node):\n    out = []\n"
    lists += "    while node: out.insert(0, node.value); node = node.next\n    return out or None\n"
    assert attribute(ran(host, lists, check)) == ("fail", "wrong_value")
    own = "class Node:\n    value = next = None\ndef add(node): return Node()\n"
    assert attribute(ran(host, own, check)) == ("fail", "unencodable")
    back = CheckSet.from_json(check.to_json())
    assert back.digest == check.digest
    assert attribute(ran(host, REVERSE, back)) == ("pass", "ok")


def test_a_handler_that_catches_all_meets_a_call_that_must_raise_in_every_run(host: JailHost) -> None:
    problem = catalogue.problem("searching/first_index")
    check = add_check(
        problem=problem.key, entry=problem.entry, evidence="E3", oracle_digest=problem.digest, fixed_cases=(),
        cases_per_trial=3, comparator=problem.comparator,
    )  # fmt: skip
    catches = problem.source.replace("raise ValueError", "return -1")
    assert catches != problem.source
    for seed in range(12):
        asked = check.inputs(random.Random(seed))
        assert any(check.expected(args).error for args in asked)
    assert attribute(ran(host, problem.source, check)) == ("pass", "ok")
    assert attribute(ran(host, catches, check)) == ("fail", "wrong_exception")


def divides(args: tuple[Any, ...], value: Any) -> bool:
    return type(value) is int and 1 < value < args[0] and args[0] % value == 0


def rejects(args: tuple[Any, ...], value: Any) -> bool:
    return False


FACTOR = "def add(n):\n    for d in range(2, n):\n        if n % d == 0:\n            return d\n    raise ValueError\n"


def test_a_problem_with_many_right_answers_is_judged_by_its_predicate(
    host: JailHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = define("tiny", FACTOR, lambda rng: (rng.randrange(2, 90),), "predicate:divides", ("ValueError",))
    problem = replace(problem, predicates=(divides,))
    monkeypatch.setattr(oracle, "_known", lambda key: {problem.key: problem}[key])
    assert problem.digest != replace(problem, predicates=()).digest
    check = add_check(
        problem=problem.key, evidence="E3", oracle_digest=problem.digest, fixed_cases=(), cases_per_trial=20,
        comparator=problem.comparator,
    )  # fmt: skip
    largest = FACTOR.replace("range(2, n)", "range(n - 1, 1, -1)")
    assert attribute(ran(host, FACTOR, check)) == ("pass", "ok")
    assert attribute(ran(host, largest, check)) == ("pass", "ok")
    assert attribute(ran(host, FACTOR.replace("return d", "return d + 1"), check)) == ("fail", "wrong_value")
    assert attribute(ran(host, FACTOR.replace("return d", "return float(d)"), check)) == ("fail", "wrong_value")
    assert attribute(ran(host, FACTOR.replace("raise ValueError", "return n"), check)) == ("fail", "wrong_exception")
    unknown = replace(check, comparator="predicate:other")
    with pytest.raises(oracle.ReferenceFault, match="no predicate 'other'"):
        ran(host, FACTOR, unknown)
    monkeypatch.setattr(oracle, "_known", lambda key: replace(problem, predicates=(rejects,)))
    oracle.oracle.cache_clear()
    wrong = replace(check, comparator="predicate:rejects", oracle_digest=replace(problem, predicates=(rejects,)).digest)
    with pytest.raises(oracle.ReferenceFault, match="rejects the reference's own answer"):
        ran(host, FACTOR, wrong)
    oracle.oracle.cache_clear()


def test_a_random_choice_among_right_answers_is_no_contradiction(
    host: JailHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = define("tiny", FACTOR, lambda rng: (rng.choice([12, 36, 60, 7]),), "predicate:divides", ("ValueError",))
    problem = replace(problem, predicates=(divides,))
    monkeypatch.setattr(oracle, "_known", lambda key: {problem.key: problem}[key])
    check = add_check(
        problem=problem.key, evidence="E3", oracle_digest=problem.digest, fixed_cases=(), cases_per_trial=20,
        comparator=problem.comparator,
    )  # fmt: skip
    anew = "import random\ndef add(n):\n    found = [d for d in range(2, n) if n % d == 0]\n"
    anew += "    if not found: raise ValueError\n    return random.SystemRandom().choice(found)\n"
    assert attribute(ran(host, anew, check)) == ("pass", "ok")
    assert attribute(ran(host, anew.replace("choice(found)", "choice([*found, *[0] * 999])"), check))[0] == "fail"
    bag = add_check(comparator="multiset", fixed_cases=tuple(Example((n, 9), [n, n, 9, 8]) for n in range(20)))
    shuffled = "import random\ndef add(a, b):\n    found = [a, a, b, b - 1]\n"
    shuffled += "    random.SystemRandom().shuffle(found)\n    return found\n"
    assert attribute(ran(host, shuffled, bag)) == ("pass", "ok")
    assert attribute(ran(host, shuffled, replace(bag, comparator="exact")))[0] == "fail"
    oracle.oracle.cache_clear()


RAISING = """
import json
class Mine(json.JSONDecodeError): pass
class Both(KeyError, ValueError): pass
def add(a, b):
    if b == 0: json.loads("{")
    if b == 1: bytes([255]).decode()
    if b == 2: raise Mine("x", "y", 0)
    if b == 3: raise Both
    raise ValueError
"""


def test_an_exception_of_a_kind_that_the_contract_names_counts(host: JailHost) -> None:
    wanted = add_check(fixed_cases=tuple(Example((1, b), values.ExceptionName("ValueError")) for b in range(5)))
    assert attribute(ran(host, RAISING, wanted)) == ("pass", "ok")
    assert attribute(ran(host, "def add(a, b): raise Exception\n", wanted)) == ("fail", "wrong_exception")
    assert attribute(ran(host, "def add(a, b): raise KeyError\n", wanted)) == ("fail", "wrong_exception")
    assert attribute(ran(host, "def add(a, b): return ValueError()\n", wanted)) == ("fail", "wrong_exception")
    lookup = add_check(fixed_cases=tuple(Example((1, b), values.ExceptionName("LookupError")) for b in range(5)))
    source = "def add(a, b): return {}[a] if b % 2 else [][a]\n"
    assert attribute(ran(host, source, lookup)) == ("pass", "ok")
    assert attribute(ran(host, source, wanted)) == ("fail", "wrong_exception")


def test_a_reference_may_raise_a_kind_of_what_its_contract_names() -> None:
    source = "def add(xs):\n    return xs[3]\n"
    assert oracle.Oracle(define("tiny", source, lambda rng: ([],), "exact", ("LookupError",))).answer(([],)) == Outcome(
        error="LookupError", args_after=([],)
    )
    several = define("tiny", source, lambda rng: ([],), "exact", ("LookupError", "IndexError"))
    assert oracle.Oracle(several).answer(([],)).error == "IndexError"
    with pytest.raises(oracle.ReferenceFault):
        oracle.Oracle(define("tiny", source, lambda rng: ([],), "exact", ("KeyError",))).answer(([],))


def test_evidence_and_mode_of_hidden_tests_belong_together() -> None:
    tests = HiddenTests({"t.py": ""}, "m", "inside", ("t.py::test",))
    assert add_check(evidence="E1", hidden_tests=tests).evidence == "E1"
    for evidence, hidden in (("E2", tests), ("E1", replace(tests, mode="outside")), ("E1", None), ("E4", None)):
        with pytest.raises(ValueError, match="evidence level"):
            add_check(evidence=evidence, hidden_tests=hidden)


def test_numbers_and_sequences_are_not_rejected_for_a_type_that_is_allowed(host: JailHost) -> None:
    case = (Example((4, 2), [2, 0.5]),)
    source = "def add(a, b): return (a / b, b / a)\n"
    assert attribute(ran(host, source, add_check(fixed_cases=case, comparator="number+sequence"))) == ("pass", "ok")
    for name in ("exact", "number", "sequence"):
        assert attribute(ran(host, source, add_check(fixed_cases=case, comparator=name))) == ("fail", "wrong_value")
    flag = (Example((1, 0), 1),)
    truth = "def add(a, b): return a > b\n"
    assert attribute(ran(host, truth, add_check(fixed_cases=flag, comparator="number"))) == ("fail", "wrong_value")


def test_a_tree_without_its_entry_fails_before_anything_runs(host: JailHost) -> None:
    facts = trial.run(host, {"a.py": "", "b.py": ""}, add_check(), 1, COUNTING)
    assert attribute(facts) == ("fail", "import_error")
    assert (facts.right, facts.wanted) == (0, 5)


def test_printing_is_no_crime_up_to_the_declared_bound(host: JailHost) -> None:
    check = add_check(fixed_cases=tuple(Example((n, 1), n + 1) for n in range(60)))
    source = "def add(a, b):\n    print('x' * 3072)\n    return a + b\n"
    settings = Verifier(memory_mb=96, call_cpu_s=0.2)
    facts = ran(host, source, check, bounds=bounds(settings))
    assert (attribute(facts), facts.answered) == (("pass", "ok"), facts.wanted)
    facts = ran(host, source, check, bounds=bounds(settings.model_copy(update={"print_kb": 64})))
    assert attribute(facts) == ("fail", "output_flood")
    assert facts.answered < facts.wanted
