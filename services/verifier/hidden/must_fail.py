"""Must-fail copies of hidden tests: the same calls with a wrong constant, which only a tampered run can pass."""

from __future__ import annotations

import ast
import math
import random
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

COPIES = 2
"""Must-fail copies of every test beside the real one."""


_LARGE = 1e300


class NoCanary(ValueError):
    """No test of the files compares an answer with a literal in an unconditional assert."""


@dataclass(frozen=True)
class Variants:
    """1 + `COPIES` versions of the files, in each of which some tests are real and the others changed.

    `real`: of every test that can be changed (file, `::`, names; no parameters), the version in which it is as it was.
    """

    versions: tuple[Mapping[str, str], ...]
    real: Mapping[str, int]


def variants(files: Mapping[str, str], rng: random.Random) -> Variants:
    """Make the versions. Raises NoCanary when no test can be changed, SyntaxError for files that are not Python.

    A test qualifies by an assert in its outermost block, `==` (or `is`, for True, False, None) between a literal and
    something else. One such literal per test is replaced by another of its kind: the same one in every copy, by another
    value in each where there is one, so that no majority tells which is real; and which version holds the real one is
    drawn for every test. Nothing else declares it: what a test asserts unconditionally is its declaration.
    """
    versions: list[dict[str, str]] = [{} for _ in range(1 + COPIES)]
    real: dict[str, int] = {}
    for path, text in files.items():
        chosen = _chosen(ast.parse(text, path), rng) if path.endswith(".py") else {}
        real.update({f"{path}::{name}": rng.randrange(len(versions)) for name in chosen})
        for number, version in enumerate(versions):
            wrong = {
                name: (place, others[number - (number > real[f"{path}::{name}"])])
                for name, (place, others) in chosen.items()
                if number != real[f"{path}::{name}"]
            }
            version[path] = _changed(text, wrong) if path.endswith(".py") else text
    if not real:
        raise NoCanary("no hidden test asserts that an answer equals a literal in its outermost block")
    return Variants(tuple(versions), real)


def _chosen(module: ast.Module, rng: random.Random) -> dict[str, tuple[int, list[Any]]]:
    """Of every test that qualifies: which of its places, and the wrong literal of each copy."""
    found = {}
    for name, function in tests(module):
        places = list(_places(function))
        if places:
            place = rng.randrange(len(places))
            found[name] = (place, _others(ast.literal_eval(_side(*places[place])), rng))
    return found


def _others(value: Any, rng: random.Random) -> list[Any]:
    wrong: list[Any] = []
    for _ in range(20):  # True has one other only
        made = other(value, rng)
        if made not in wrong:
            wrong.append(made)
        if len(wrong) == COPIES:
            return wrong
    return (wrong * COPIES)[:COPIES]


def _changed(text: str, wrong: Mapping[str, tuple[int, Any]]) -> str:
    module = ast.parse(text)
    for name, function in tests(module):
        if name in wrong:
            place, value = wrong[name]
            compare, on_left = list(_places(function))[place]
            literal = ast.parse(repr(value), mode="eval").body
            if on_left:
                compare.left = literal
            else:
                compare.comparators[0] = literal
    return ast.unparse(ast.fix_missing_locations(module)) + "\n"


def _side(compare: ast.Compare, on_left: bool) -> ast.expr:
    return compare.left if on_left else compare.comparators[0]


def tests(module: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """(name, function) of every test that pytest's default names collect; methods as `Class::name`."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            yield node.name, node
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name.startswith("test"):
                    yield f"{node.name}::{item.name}", item


def _places(function: ast.FunctionDef) -> Iterator[tuple[ast.Compare, bool]]:
    for statement in function.body:
        if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
            return  # what follows may be skipped, and a copy that skips its wrong constant passes honestly
        place = _literal_compare(statement)
        if place is not None:
            yield place


def _literal_compare(statement: ast.stmt) -> tuple[ast.Compare, bool] | None:
    """The comparison of a qualifying assert, and whether the literal stands on its left."""
    if not isinstance(statement, ast.Assert) or not isinstance(statement.test, ast.Compare):
        return None
    compare = statement.test
    if len(compare.ops) != 1 or not isinstance(compare.ops[0], ast.Eq | ast.Is):
        return None
    left, right = _literal(compare.left), _literal(compare.comparators[0])
    if (left is None) == (right is None):  # two literals, or none
        return None
    value = (left or right or (None,))[0]
    if isinstance(compare.ops[0], ast.Is) and not (value is None or isinstance(value, bool)):
        return None
    return (compare, left is not None) if _has_other(value) else None


def _has_other(value: Any) -> bool:
    if isinstance(value, list | tuple | set):
        return all(map(_has_other, value))
    if isinstance(value, dict):
        return all(map(_has_other, value.values()))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, int | str | bytes)


def _literal(node: ast.expr) -> tuple[Any] | None:
    try:
        return (ast.literal_eval(node),)
    except ValueError:
        return None


def other(value: Any, rng: random.Random) -> Any:
    """A literal of the same kind that does not equal `value`."""
    if value is None:
        return rng.choice((True, False))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-1, 1)) * rng.randint(1, max(9, abs(value)))
    if isinstance(value, float):
        if abs(value) > _LARGE:
            return value / rng.choice((2.0, 3.0, 5.0))
        return value + rng.choice((-1.0, 1.0)) * rng.uniform(1.0, 2.0) * max(1.0, abs(value))
    if isinstance(value, str):
        return _other_text(value, string.ascii_letters, rng)
    if isinstance(value, bytes):
        return _other_text(value.decode("latin-1"), string.ascii_letters, rng).encode("latin-1")
    if isinstance(value, dict):
        key = rng.choice(list(value)) if value else 0
        return {**value, key: other(value[key], rng) if value else 0}
    if isinstance(value, set):
        return value | {next(number for number in range(len(value) + 1) if number not in value)}
    items = list(value)
    if items:
        place = rng.randrange(len(items))
        items[place] = other(items[place], rng)
    else:
        items.append(0)
    return tuple(items) if isinstance(value, tuple) else items


def _other_text(text: str, letters: str, rng: random.Random) -> str:
    if not text:
        return rng.choice(letters)
    place = rng.randrange(len(text))
    return text[:place] + rng.choice([one for one in letters if one != text[place]]) + text[place + 1 :]
