"""Protects mutants: many distinct real changes, of every function, and an honest word about which are equivalent."""

import ast
import random
from collections import Counter
from dataclasses import replace

import pytest

from services.tasks import catalogue
from services.tasks.build import build_catalogue
from services.tasks.fixture import CheckSet, Example
from services.tasks.mutants import CAP, Mutant, draw_sample, equivalent, mutants

TWO = """
import math

LIMIT = 3

class Box:
    def size(self):
        return self.wide * 2

def helper(xs):
    total = 0
    for x in xs:
        if x > LIMIT:
            total += x
    return total

def entry(xs):
    return helper(xs[1:]) + math.floor(0.5)
"""


def check_of(key: str) -> CheckSet:
    return next(check for check in build_catalogue().checks if check.problem == key)


@pytest.mark.parametrize("key", sorted(catalogue.problems()))
def test_every_reference_has_many_distinct_mutants(key: str) -> None:
    source = catalogue.problem(key).source
    found = mutants(source, random.Random(1))
    assert 15 <= len(found) <= CAP
    texts = {ast.unparse(ast.parse(mutant.source)) for mutant in found}
    assert len(texts) == len(found)
    assert ast.unparse(ast.parse(source)) not in texts
    assert len({mutant.what.split(" in ")[0] for mutant in found}) >= 5
    assert found == mutants(source, random.Random(1))


def test_every_function_of_a_module_is_changed_and_the_rest_is_kept() -> None:
    found = mutants(TWO, random.Random(1), cap=200)
    changed = Counter(mutant.what.split(" in ")[1].split(",")[0] for mutant in found)
    assert set(changed) == {"size", "helper", "entry"}
    for mutant in found:
        assert "import math" in mutant.source
        assert "LIMIT = 3" in mutant.source
        compile(mutant.source, "mutant", "exec")
    kinds = {mutant.what.split(" in ")[0] for mutant in found}
    assert {"cmp", "op", "init", "gone", "negated", "none"} <= kinds


def test_equivalent_is_only_what_no_input_tells_apart() -> None:
    """`>=` for `>` in a maximum of positions changes which position; `xs` for a copy of it changes nothing."""
    check = check_of("searching/arg_max")
    (source,) = check.reference.values()
    spelled = Mutant("spelled otherwise", source.replace("def arg_max(xs):", "def arg_max(xs):\n    xs = xs + []"))
    never = Mutant(
        "a branch that is never taken", source.replace("    return", "    if len(xs) > 9999: return 0\n    return")
    )
    wrong = Mutant("a constant", "def arg_max(xs):\n    return 0\n")
    rare = Mutant("wrong on few inputs", source.replace("    return", "    if sum(xs) == 7: return -5\n    return"))
    alike, how = equivalent(check, [spelled, never, wrong, rare], random.Random(3))
    assert alike == (spelled, never)
    assert "different inputs of" in how
    assert "trusted process" in how


def test_programs_that_the_guard_cannot_hold_are_asked_in_a_process() -> None:
    check = check_of("searching/arg_max")
    (source,) = check.reference.values()
    imports = "import math\n" + source.replace("    return", "    math.floor(1.0)\n    return")
    other = replace(check, reference={"solution.py": imports})
    wrong = Mutant("a constant", "def arg_max(xs):\n    return 0\n")
    alike, how = equivalent(other, [Mutant("same", imports), wrong], random.Random(3))
    assert [mutant.what for mutant in alike] == ["same"]
    assert "process of their own" in how


def test_fixed_cases_decide_nothing() -> None:
    fixed = CheckSet(
        "t", "t", "f", "exact", "E2", 1, (Example((1,), 1),), 0.1, (), reference={"s.py": "def f(x):\n    return x\n"}
    )
    alike, how = equivalent(fixed, [Mutant("special", "def f(x):\n    return 1\n")], random.Random(1))
    assert alike == ()
    assert "not decided" in how


def test_small_domains_end_the_drawing() -> None:
    fixed = CheckSet("t", "t", "f", "exact", "E2", 1, (Example((1,), 1), Example((2,), 2)), 0.1, ())
    assert len(draw_sample(fixed, random.Random(1)).inputs) == 2
    assert len(draw_sample(check_of("sorting/merge"), random.Random(1), 300).inputs) == 300
