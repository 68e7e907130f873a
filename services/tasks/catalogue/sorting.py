"""Sorting: putting lists in order, whole or step by step."""

from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define


def _list(rng: Random) -> tuple[Any, ...]:
    return (draws.ints(rng),)


def _nearly_sorted(rng: Random) -> tuple[Any, ...]:
    xs = sorted(draws.ints(rng))
    if rng.random() < 0.6:
        xs.insert(rng.randint(0, len(xs)), rng.randint(0, 9))
    return (xs,)


def _two_sorted(rng: Random) -> tuple[Any, ...]:
    return sorted(draws.ints(rng, 0, 4)), sorted(draws.ints(rng, 0, 4))


def _bounded(rng: Random) -> tuple[Any, ...]:
    n = rng.randint(1, 6)
    return draws.ints(rng, 0, 6, 0, n - 1), n


def _sorted_and_number(rng: Random) -> tuple[Any, ...]:
    xs = sorted(draws.ints(rng))
    return xs, draws.member(rng, xs, 0.4)


PROBLEMS = (
    define(
        "sorting",
        """
def insertion_sort(xs):
    for i in range(1, len(xs)):
        j = i
        while j > 0 and xs[j - 1] > xs[j]:
            xs[j - 1], xs[j] = xs[j], xs[j - 1]
            j -= 1
    return xs
""",
        _list,
        "exact+args",
    ),
    define(
        "sorting",
        """
def merge(xs, ys):
    out = []
    while xs and ys:
        if xs[0] <= ys[0]:
            out.append(xs.pop(0))
        else:
            out.append(ys.pop(0))
    return out + xs + ys
""",
        _two_sorted,
    ),
    define(
        "sorting",
        """
def counting_sort(xs, n):
    t = [0] * n
    for x in xs:
        t[x] += 1
    out = []
    for x in range(n):
        out += [x] * t[x]
    return out
""",
        _bounded,
    ),
    define(
        "sorting",
        """
def is_sorted(xs):
    for i in range(1, len(xs)):
        if xs[i - 1] > xs[i]:
            return False
    return True
""",
        _nearly_sorted,
    ),
    define(
        "sorting",
        """
def insert(xs, x):
    i = 0
    while i < len(xs) and xs[i] < x:
        i += 1
    return xs[:i] + [x] + xs[i:]
""",
        _sorted_and_number,
    ),
)
