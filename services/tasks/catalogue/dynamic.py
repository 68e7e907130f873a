"""Dynamic programming (a held-out family): answers built up from smaller answers."""

from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define


def _coins(rng: Random) -> tuple[Any, ...]:
    return sorted(rng.sample(range(1, 6), rng.randint(0, 3))), rng.randint(0, 9)


def _signed(rng: Random) -> tuple[Any, ...]:
    return (draws.ints(rng, 0, 6, -5, 5),)


def _list(rng: Random) -> tuple[Any, ...]:
    return (draws.ints(rng),)


def _grid(rng: Random) -> tuple[Any, ...]:
    return rng.randint(1, 4), rng.randint(1, 4)


PROBLEMS = (
    define(
        "dynamic",
        """
def ways(xs, n):
    t = [1] + [0] * n
    for x in xs:
        for i in range(x, n + 1):
            t[i] += t[i - x]
    return t[n]
""",
        _coins,
    ),
    define(
        "dynamic",
        """
def max_sum(xs):
    a = 0
    b = 0
    for x in xs:
        a = max(0, a + x)
        b = max(a, b)
    return b
""",
        _signed,
    ),
    define(
        "dynamic",
        """
def longest_rise(xs):
    t = []
    for i in range(len(xs)):
        t.append(1)
        for j in range(i):
            if xs[j] < xs[i]:
                t[i] = max(t[i], t[j] + 1)
    return max(t, default=0)
""",
        _list,
    ),
    define(
        "dynamic",
        """
def paths(n, m):
    t = [1] * m
    for i in range(1, n):
        for j in range(1, m):
            t[j] += t[j - 1]
    return t[-1]
""",
        _grid,
    ),
)
