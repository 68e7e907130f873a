"""Declared comparisons: when an answer counts as the reference's, with exact types unless declared looser."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from services.tasks import values

BASES = ("exact", "sequence", "multiset", "set", "abs", "rel")
_ARGS_SUFFIX = "+args"


@dataclass(frozen=True)
class Outcome:
    """What one call did: a returned `value`, or the type name of what it raised, and the arguments afterwards.

    `args_after` is None when nobody looked; it is compared only where the comparator says so ("…+args").
    """

    value: Any = None
    error: str | None = None
    args_after: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Comparator:
    """A parsed comparator name.

    Names: "exact"; "sequence" (list and tuple are one at every depth, generators are read out); "multiset" (order of
    the outermost container is free); "set" (order and repetition are free); "abs:1e-9" and "rel:1e-9" (numbers of
    either kind within the tolerance). "+args" after any of them makes the arguments after the call part of the
    contract.
    """

    base: str
    tolerance: float
    arguments: bool


def parse(name: str) -> Comparator:
    """Parse a comparator name. Raises ValueError naming what is wrong."""
    arguments = name.endswith(_ARGS_SUFFIX)
    base, _, tolerance = name.removesuffix(_ARGS_SUFFIX).partition(":")
    if base not in BASES:
        raise ValueError(f"unknown comparator {name!r}; known: {', '.join(BASES)}")
    if base not in ("abs", "rel"):
        if tolerance:
            raise ValueError(f"comparator {name!r}: only abs and rel take a tolerance")
        return Comparator(base, 0.0, arguments)
    number = float(tolerance)
    if not 0 < number < math.inf:
        raise ValueError(f"comparator {name!r}: the tolerance must be positive and finite")
    return Comparator(base, number, arguments)


def drains(name: str) -> bool:
    """Whether a generator that the candidate returns is to be read out as a list (`values.encode(..., drain=True)`)."""
    return parse(name).base == "sequence"


def wants_arguments(name: str) -> bool:
    """Whether the arguments after the call are part of the contract."""
    return parse(name).arguments


def agree(name: str, expected: Outcome, got: Outcome) -> bool:
    """Whether `got` counts as `expected` under the comparator called `name`."""
    comparator = parse(name)
    if comparator.arguments:
        if expected.args_after is None or got.args_after is None:
            return False
        if not _same(expected.args_after, got.args_after):
            return False
    if expected.error is not None or got.error is not None:
        return expected.error == got.error
    return _agree_values(comparator, expected.value, got.value)


def _agree_values(comparator: Comparator, expected: Any, got: Any) -> bool:
    if comparator.base == "exact":
        return _same(expected, got)
    if comparator.base == "sequence":
        return _same(_as_lists(expected), _as_lists(got))
    if comparator.base in ("abs", "rel"):
        return _close(expected, got, comparator)
    if type(expected) is not type(got) or type(expected) not in (list, tuple, set, frozenset):
        return False
    try:
        left, right = (Counter(values.dumps(item) for item in side) for side in (expected, got))
    except values.Unencodable:
        return False
    return set(left) == set(right) if comparator.base == "set" else left == right


def _same(left: Any, right: Any) -> bool:
    """Equal values of equal types at every depth: True is not 1, 2 is not 2.0, a tuple is not a list; nan is nan."""
    kind = type(left)
    if kind is not type(right):
        return False
    if kind in (list, tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if kind is float:
        return bool(left == right) or (math.isnan(left) and math.isnan(right))
    if kind in (set, frozenset, dict):
        return len(left) == len(right) and _same_unordered(left, right)
    return bool(left == right)


def _same_unordered(left: Any, right: Any) -> bool:
    # Keys are matched by their canonical text: {True: x} and {1: x} are equal to Python but not to us.
    try:
        left_keys = {values.dumps(key): key for key in left}
        right_keys = {values.dumps(key): key for key in right}
    except values.Unencodable:
        return False
    if left_keys.keys() != right_keys.keys():
        return False
    if type(left) is not dict:
        return True
    return all(_same(left[key], right[right_keys[text]]) for text, key in left_keys.items())


def _as_lists(value: Any) -> Any:
    if type(value) in (list, tuple):
        return [_as_lists(item) for item in value]
    if type(value) is dict:
        return {key: _as_lists(item) for key, item in value.items()}
    return value


def _close(expected: Any, got: Any, comparator: Comparator) -> bool:
    if type(expected) in (int, float) and type(got) in (int, float):
        return _close_numbers(expected, got, comparator)
    if type(expected) in (list, tuple):
        if type(got) is not type(expected) or len(got) != len(expected):
            return False
        return all(_close(left, right, comparator) for left, right in zip(expected, got, strict=True))
    return _same(expected, got)


def _close_numbers(expected: int | float, got: int | float, comparator: Comparator) -> bool:
    try:
        left, right = float(expected), float(got)
    except OverflowError:
        return expected == got
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    if comparator.base == "abs":
        return left == right or abs(left - right) <= comparator.tolerance
    return math.isclose(left, right, rel_tol=comparator.tolerance, abs_tol=0.0)
