"""Declared comparisons: when an answer counts as the reference's, with exact types unless declared looser."""

import functools
import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from services.tasks import values

BASES = ("exact", "sequence", "number", "multiset", "set", "abs", "rel", "close", "predicate")
FLOOR = 1e-9
"""What "close" forgives whatever the size of the expected float: no right program rounds to exactly nothing."""
_TOLERANT = ("abs", "rel", "close")
_FLAGS = ("args", "number", "sequence")


@dataclass(frozen=True)
class Outcome:
    """What one call did: a returned `value`, or the type name of what it raised, and the arguments afterwards.

    `args_after` is None when nobody looked; it is compared only where the comparator says so ("…+args").
    `also`: further types of what it raised, which `error` does not imply.
    """

    value: Any = None
    error: str | None = None
    args_after: tuple[Any, ...] | None = None
    also: tuple[str, ...] = ()

    @classmethod
    def raised(cls, names: tuple[str, ...], args_after: tuple[Any, ...] | None = None) -> "Outcome":
        """Of a call that raised an exception of these types (`values.exception_names`)."""
        return cls(error=names[0], args_after=args_after, also=names[1:])


@dataclass(frozen=True)
class Comparator:
    """A parsed comparator name: a base, then what is declared looser or looked at too.

    Bases: "exact"; "multiset" (order of the outermost container is free); "set" (order and repetition are free);
    "abs:1e-9" and "rel:1e-9" (numbers of either kind within the tolerance, as items and as values of a dict, but two
    ints only when they are equal: nothing rounds them); "close:1e-4" (where a float is expected, a number of either
    kind within that share of it, or within `FLOOR`; where an int is expected, as "exact");
    "predicate:NAME" (the problem's trusted predicate of that name says whether the answer is right).
    "sequence" and "number" are "exact+sequence" and "exact+number".
    "+sequence": list and tuple are one at every depth, generators are read out. "+number": ints and floats of equal
    value are one at every depth (2 is 2.0; True is neither). "+args": the arguments after the call are part of the
    contract, exact but for those two.
    The exception that a call raises is part of every comparator: one that `except` of the expected type takes.
    """

    base: str
    tolerance: float = 0.0
    arguments: bool = False
    number: bool = False
    sequence: bool = False
    predicate: str = ""


@functools.lru_cache(maxsize=1024)
def parse(name: str) -> Comparator:
    """Parse a comparator name. Raises ValueError naming what is wrong."""
    head, *flags = name.split("+") if not name.startswith(_TOLERANT) else _split_tolerance(name)
    base, _, detail = head.partition(":")
    if base not in BASES:
        raise ValueError(f"unknown comparator {name!r}; known: {', '.join(BASES)}")
    if not set(flags) <= set(_FLAGS) or len(set(flags)) != len(flags):
        raise ValueError(f"comparator {name!r}: after its base it takes each of +{', +'.join(_FLAGS)} once")
    found = Comparator(base, 0.0, "args" in flags, "number" in flags, "sequence" in flags)
    if base == "predicate":
        if not detail.isidentifier():
            raise ValueError(f"comparator {name!r}: a predicate is named by an identifier")
        return replace(found, predicate=detail)
    if base not in _TOLERANT:
        if detail:
            raise ValueError(f"comparator {name!r}: only {', '.join(_TOLERANT)} take a tolerance")
        if base == "sequence":
            return replace(found, base="exact", sequence=True)
        return replace(found, base="exact", number=True) if base == "number" else found
    tolerance = float(detail)
    if not 0 < tolerance < math.inf:
        raise ValueError(f"comparator {name!r}: the tolerance must be positive and finite")
    return replace(found, tolerance=tolerance)


def _split_tolerance(name: str) -> list[str]:
    # "1e+3" holds a plus sign of its own.
    flags: list[str] = []
    while name.rpartition("+")[2] in _FLAGS:
        name, _, flag = name.rpartition("+")
        flags.append(flag)
    return [name, *flags]


def drains(name: str) -> bool:
    """Whether a generator that the candidate returns is to be read out as a list (`values.encode(..., drain=True)`)."""
    return parse(name).sequence


def wants_arguments(name: str) -> bool:
    """Whether the arguments after the call are part of the contract."""
    return parse(name).arguments


def agree(name: str, expected: Outcome, got: Outcome, predicate: Callable[[Any], bool] | None = None) -> bool:
    """Whether `got` counts as `expected` under the comparator called `name`.

    `predicate` says whether a returned value is right; the comparators "predicate:…" need it. One that raises says no:
    the value was not of the form that it looks for. Raises ValueError when it is needed and not given.
    """
    comparator = parse(name)
    match = _Match(comparator)
    if comparator.arguments:
        if expected.args_after is None or got.args_after is None:
            return False
        match.comparator = replace(comparator, base="exact")
        if not match.whole(expected.args_after, got.args_after):
            return False
        match.comparator = comparator
    if expected.error is not None or got.error is not None:
        both = expected.error is not None and got.error is not None
        return both and values.catches(str(expected.error), (str(got.error), *got.also))
    if comparator.base == "predicate":
        if predicate is None:
            raise ValueError(f"comparator {name!r} needs its predicate")
        return _holds(predicate, got.value)
    if comparator.base in ("multiset", "set"):
        return match.unordered(expected.value, got.value)
    return match.whole(expected.value, got.value)


def consistent(name: str, first: Outcome, again: Outcome) -> bool:
    """Whether one program may give both answers to one question. Each is compared with what is expected by itself.

    A choice that the contract leaves may be made anew each time: the order of a bag, any value that the predicate
    takes, which kind of the wanted exception. A tolerance leaves none: it forgives the digits of another way to
    calculate, and a program that calculates otherwise the second time remembers the first.
    """
    comparator = parse(name)
    if comparator.base == "predicate" or None not in (first.error, again.error):
        return True
    if comparator.base in _TOLERANT:
        name = "+".join(["exact", *_split_tolerance(name)[1:]])
    return agree(name, first, again)


def _holds(predicate: Callable[[Any], bool], value: Any) -> bool:
    try:
        return predicate(value) is True
    except Exception:
        return False


class _Unmet(Exception):
    """A node stands where only known ones can be told apart."""


class _Match:
    """One comparison, and which nodes it has taken for each other so far (each for one other only)."""

    def __init__(self, comparator: Comparator) -> None:
        self.comparator = comparator
        self._pairs: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._waiting: deque[tuple[Any, Any]] = deque()

    def whole(self, left: Any, right: Any) -> bool:
        """Equal values of equal types at every depth but for what is declared, and equal graphs behind their nodes."""
        if not self._same(left, right):
            return False
        while self._waiting:
            left, right = self._waiting.popleft()
            for field in left.__node_fields__:
                if not self._same(getattr(left, field), getattr(right, field)):
                    return False
        return True

    def unordered(self, left: Any, right: Any) -> bool:
        """Equal items of the outermost containers, in any order; for "set" in any number too."""
        kind = self._kind(left)
        if kind is not self._kind(right) or kind not in (list, tuple, set, frozenset):
            return False
        try:
            ours, theirs = (Counter(self._key(item, side) for item in v) for side, v in enumerate((left, right)))
        except _Unmet:
            return False
        return set(ours) == set(theirs) if self.comparator.base == "set" else ours == theirs

    def _kind(self, value: Any) -> type:
        kind = type(value)
        return list if kind is tuple and self.comparator.sequence else kind

    def _same(self, left: Any, right: Any) -> bool:
        """Without the fields of nodes, which wait: True is not 1, 2 is not 2.0, a tuple is not a list; nan is nan."""
        kind = self._kind(left)
        if kind in (int, float) and type(right) in (int, float):
            return self._same_number(left, right)
        if kind is not self._kind(right):
            return False
        if kind in (list, tuple):
            # Most long answers are lists of ints, which need no look at each item.
            ints = left == right and set(map(type, left)) == set(map(type, right)) == {int}
            return ints or (len(left) == len(right) and all(map(self._same, left, right)))
        if kind is dict:
            return len(left) == len(right) and self._same_dict(left, right)
        if kind in (set, frozenset):
            return len(left) == len(right) and self._same_set(left, right)
        if hasattr(kind, "__node_fields__"):
            return self._same_node(left, right)
        return bool(left == right)

    def _same_number(self, left: int | float, right: int | float) -> bool:
        if left != left or right != right:
            return left != left and right != right
        base = self.comparator.base
        if base in ("abs", "rel") or (base == "close" and type(left) is float):
            return left == right or _close(left, right, self.comparator)
        return left == right and (self.comparator.number or type(left) is type(right))

    def _same_node(self, left: Any, right: Any) -> bool:
        ours, theirs = self._pairs
        number = ours.get(id(left))
        if number is None and id(right) not in theirs:
            ours[id(left)] = theirs[id(right)] = len(ours)
            self._waiting.append((left, right))
            return True
        return number is not None and theirs.get(id(right)) == number

    def _same_set(self, left: Any, right: Any) -> bool:
        try:
            return Counter(self._key(v, 0) for v in left) == Counter(self._key(v, 1) for v in right)
        except _Unmet:
            return False

    def _same_dict(self, left: dict[Any, Any], right: dict[Any, Any]) -> bool:
        # Keys are matched by their text: {True: x} and {1: x} are equal to Python but not to us.
        try:
            ours, theirs = {self._key(k, 0): k for k in left}, {self._key(k, 1): k for k in right}
        except _Unmet:  # nodes that nothing tells apart yet: then the order of insertion does
            pairs = zip(left.items(), right.items(), strict=True)
            return all(self._same(a, c) and self._same(b, d) for (a, b), (c, d) in pairs)
        if ours.keys() != theirs.keys():
            return False
        return all(self._same(left[key], right[theirs[text]]) for text, key in ours.items())

    def _key(self, value: Any, side: int) -> str:
        """Text that two values share exactly when they are the same. Raises _Unmet."""
        kind = self._kind(value)
        if hasattr(kind, "__node_fields__"):
            number = self._pairs[side].get(id(value))
            if number is None:
                raise _Unmet
            return f"n{number}"
        if kind in (list, tuple):
            return kind.__name__ + "(" + ",".join(self._key(item, side) for item in value) + ")"
        if kind in (set, frozenset):
            return kind.__name__ + "(" + ",".join(sorted(self._key(item, side) for item in value)) + ")"
        if kind is dict:
            pairs = (self._key(k, side) + ":" + self._key(v, side) for k, v in value.items())
            return "dict(" + ",".join(sorted(pairs)) + ")"
        if kind is float and (value == 0 or self.comparator.number):
            value = int(value) if self.comparator.number and value.is_integer() else value + 0.0
        return values.dumps(value)


def _close(expected: int | float, got: int | float, comparator: Comparator) -> bool:
    """Whether two numbers that differ are within the tolerance; as fractions, since a float may not hold an int."""
    if type(expected) is type(got) is int or math.inf in (abs(expected), abs(got)):
        return False
    ours, theirs, tolerance = Fraction(expected), Fraction(got), Fraction(comparator.tolerance)
    if comparator.base == "abs":
        return abs(ours - theirs) <= tolerance
    if comparator.base == "rel":
        return abs(ours - theirs) <= tolerance * max(abs(ours), abs(theirs))
    return abs(ours - theirs) <= max(Fraction(FLOOR), tolerance * abs(ours))
