"""Searching: positions and pairs in lists."""

from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define


def _sorted_and_number(rng: Random) -> tuple[Any, ...]:
    xs = sorted(draws.ints(rng))
    return xs, draws.member(rng, xs)


def _distinct_and_number(rng: Random) -> tuple[Any, ...]:
    xs = draws.distinct(rng)
    return xs, draws.member(rng, xs, 0.75, 0, 15)


def _list_and_number(rng: Random) -> tuple[Any, ...]:
    xs = draws.ints(rng)
    return xs, draws.member(rng, xs, 0.75)


def _some(rng: Random) -> tuple[Any, ...]:
    return (draws.ints(rng, 1),)


def _sorted_and_sum(rng: Random) -> tuple[Any, ...]:
    xs = sorted(draws.ints(rng))
    if len(xs) > 1 and rng.random() < 0.7:
        i, j = sorted(rng.sample(range(len(xs)), 2))
        return xs, xs[i] + xs[j]
    return xs, rng.randint(0, 18)


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
def binary_search(xs, x):
    i = 0
    j = len(xs) - 1
    while i <= j:
        k = (i + j) // 2
        if xs[k] == x:
            return k
        if xs[k] < x:
            i = k + 1
        else:
            j = k - 1
    return -1
""",
        _distinct_and_number,
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
    define(
        "searching",
        """
def pair_sum(xs, n):
    i = 0
    j = len(xs) - 1
    while i < j and xs[i] + xs[j] != n:
        if xs[i] + xs[j] < n:
            i += 1
        else:
            j -= 1
    return i < j
""",
        _sorted_and_sum,
    ),
)
