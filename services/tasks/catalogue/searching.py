"""Searching: positions and pairs in lists."""

from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define


def _sorted_and_number(rng: Random) -> tuple[Any, ...]:
    xs = sorted(draws.ints(rng))
    return xs, draws.member(rng, xs)


def _list_and_number(rng: Random) -> tuple[Any, ...]:
    xs = draws.ints(rng)
    return xs, draws.member(rng, xs, 0.75)


def _some(rng: Random) -> tuple[Any, ...]:
    return (draws.ints(rng, 1),)


PROBLEMS = (
    define(
        "searching",
        """
def lower_bound(xs, x):
    i = 0
    j = len(xs)
    while i < j:
        k = (i + j) // 2
        if xs[k] < x:
            i = k + 1
        else:
            j = k
    return i
""",
        _sorted_and_number,
    ),
    define(
        "searching",
        """
def last_index(xs, x):
    i = len(xs) - 1
    while i >= 0 and xs[i] != x:
        i -= 1
    return i
""",
        _list_and_number,
    ),
    define(
        "searching",
        """
def first_index(xs, x):
    for i in range(len(xs)):
        if xs[i] == x:
            return i
    raise ValueError(x)
""",
        _list_and_number,
        raises=("ValueError",),
    ),
    define(
        "searching",
        """
def arg_max(xs):
    k = 0
    for i in range(1, len(xs)):
        if xs[i] > xs[k]:
            k = i
    return k
""",
        _some,
    ),
)
