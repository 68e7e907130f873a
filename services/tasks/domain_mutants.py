"""Domain mutants of a reference: programs that are right for a part of its domain only, made mechanically.

A changed operator is wrong nearly everywhere (services/tasks/mutants.py); what passes a check whose questions are too
small is a program that is right up to a size, a value, a number of digits or a depth, for one sign, one separator or
one alphabet, that goes through floats or compares numbers as text, that cuts loops, or that knows the likeliest inputs
and guesses the rest. Every mutant is the reference's own text and something around it; none is written by hand.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from services.tasks import domain_cuts
from services.tasks.domain_rules import HELPERS, Case, Rule, after_rules, error_rules, rules


@dataclass(frozen=True)
class DomainMutant:
    """A program that is the reference but where its `measure` is beyond `beyond` ("": nobody knows where).

    The measure is an expression over `args`, over the right `answer` (then `after`, another, is what this program says
    instead), the number of a loop of `domain_cuts.counting` whose rounds count, or whether the call must raise
    (`error`): `over` says which. Measures and `after` are ours and take plain values: a trusted process may evaluate
    them.
    """

    kind: str
    what: str
    source: str
    measure: str = ""
    beyond: int = 0
    over: Literal["args", "answer", "rounds", "error"] = "args"
    after: str = ""


def domain_mutants(source: str, entry: str, cases: Sequence[Case], shown: Sequence[Case] = ()) -> list[DomainMutant]:
    """Domain mutants of the function `entry` that `source` defines, distinct, in a fixed order.

    `cases` show what arguments and answers look like; without any, only what needs no look at them is made. `shown` are
    the public examples, which tables hold first. Raises SyntaxError.
    """
    found = [_program(source, entry, rule) for rule in rules(cases, shown)]
    found += [_changed_answer(source, entry, rule) for rule in after_rules(cases)]
    found += [_changed_error(source, entry, rule) for rule in error_rules(cases)]
    for kind, what, text, loop, rounds in domain_cuts.changed(source):
        measure = str(loop) if loop >= 0 else ""
        found.append(DomainMutant(kind, what, text, measure, rounds, "rounds"))
    return list({mutant.source: mutant for mutant in found}.values())


def evaluated(expression: str, over: str) -> Callable[[Any], Any]:
    """A mutant's `measure` or `after` as a function of what it is over."""
    namespace: dict[str, Any] = {}
    text = f"{HELPERS}def evaluate({over}):\n    return {expression}\n"
    exec(compile(text, "<expression of a domain mutant>", "exec"), namespace)
    function: Callable[[Any], Any] = namespace["evaluate"]
    return function


def _program(source: str, entry: str, rule: Rule) -> DomainMutant:
    body = f"    if ({rule.measure}) > {rule.beyond}:\n        {rule.otherwise}\n    return _right(*args, **named)\n"
    text = f"{_right(source, entry)}{HELPERS}def {entry}(*args, **named):\n{body}"
    return DomainMutant(rule.kind, rule.what, text, rule.measure, rule.beyond)


def _changed_answer(source: str, entry: str, rule: Rule) -> DomainMutant:
    body = "    answer = _right(*args, **named)\n"
    body += "    answer = list(answer) if hasattr(answer, '__next__') else answer\n"
    body += f"    return {rule.otherwise} if ({rule.measure}) > {rule.beyond} else answer\n"
    text = f"{_right(source, entry)}{HELPERS}def {entry}(*args, **named):\n{body}"
    return DomainMutant(rule.kind, rule.what, text, rule.measure, rule.beyond, "answer", rule.otherwise)


def _changed_error(source: str, entry: str, rule: Rule) -> DomainMutant:
    body = "    try:\n        return _right(*args, **named)\n    except Exception:\n"
    body += f"        {rule.measure}\n        {rule.otherwise}\n"
    text = f"{_right(source, entry)}{HELPERS}def {entry}(*args, **named):\n{body}"
    return DomainMutant(rule.kind, rule.what, text, "1", 0, "error")


def _right(source: str, entry: str) -> str:
    """The reference under the name `_right`, its calls of itself included."""
    module = ast.parse(source)
    if not any(isinstance(node, ast.FunctionDef) and node.name == entry for node in module.body):
        return f"{source}\n_right = {entry}\n"
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            node.name = "_right"
        elif isinstance(node, ast.Name) and node.id == entry:
            node.id = "_right"
    return ast.unparse(module) + "\n"
