"""Searching: positions and pairs in lists."""

from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define
from services.tasks.domain import Domain, Stratum
from services.tasks.strata import (
    INTS,
    MOST,
    alike,
    another,
    ascending,
    far_below,
    few,
    last_digits_alike,
    lengths,
    lists,
    neighbours,
    signed,
)


def _sorted_and_number(rng: Random) -> tuple[Any, ...]:
    xs = sorted(draws.ints(rng))
    return xs, draws.member(rng, xs)


def _list_and_number(rng: Random) -> tuple[Any, ...]:
    xs = draws.ints(rng)
    return xs, draws.member(rng, xs, 0.75)


def _some(rng: Random) -> tuple[Any, ...]:
    return (draws.ints(rng, 1),)


def _absent(rng: Random, xs: list[int]) -> int:
    """Below all, above all, or right beside an element."""
    if not xs:
        return 3
    beside = rng.choice(xs) + rng.choice((-1, 1))
    return rng.choice((min(xs) - 1, max(xs) + 1, beside if beside not in xs else max(xs) + 9))


def _late(rng: Random, xs: list[int]) -> int:
    """An element from the second half, never the only first one."""
    return rng.choice(xs[len(xs) // 2 :]) if xs else -7


def _needle(rng: Random, xs: list[int]) -> tuple[Any, ...]:
    return xs, another(_late(rng, xs) if rng.random() < 0.7 else _absent(rng, xs))


def _sorted_needle(rng: Random, xs: list[int]) -> tuple[Any, ...]:
    return _needle(rng, sorted(xs))


def _long(rng: Random) -> list[int]:
    return ascending(rng, rng.randint(MOST - 40, MOST))


def _after_nine_halvings(rng: Random) -> tuple[Any, ...]:
    """Hundreds of ascending ints, and one whose place a binary search does not know before its ninth round."""
    xs = ascending(rng, rng.randint(300, MOST))
    while True:
        x, i, j, rounds, up = rng.choice(xs), 0, len(xs), 0, False
        while i < j:
            k, rounds = (i + j) // 2, rounds + 1
            up = xs[k] < x
            i, j = (k + 1, j) if up else (i, k)
        if rounds > 8 and up:
            return xs, x


_SORTED = (
    *lists(_sorted_needle),
    Stratum("hundreds, the last", lambda rng: (xs := _long(rng), xs[-1])),
    Stratum("hundreds, near the end", lambda rng: (xs := _long(rng), rng.choice(xs[265:]))),
    Stratum("hundreds, between two", lambda rng: (xs := _long(rng), rng.choice(xs[150:]) + 1)),
    Stratum("hundreds, after nine halvings", _after_nine_halvings, 2),
    Stratum(
        "above all", lambda rng: (xs := sorted(signed(rng, rng.randint(100, 130))), xs[-1] + rng.randint(1, 10**12))
    ),
    Stratum("below all", lambda rng: (xs := sorted(signed(rng, rng.randint(12, 40))), xs[0] - rng.randint(1, 10**12))),
    Stratum(
        "a run of equal ones", lambda rng: (xs := sorted(few(rng, rng.randint(40, 70))), rng.choice((xs[-1], 10**6)))
    ),
    Stratum("one of many beyond 2^53", lambda rng: (xs := sorted(neighbours(rng, 12)), rng.choice(xs[3:])), 2),
    Stratum("zero above some", lambda rng: (sorted([*signed(rng, rng.randint(3, 30)), -5, -2, 3]), 0), 2),
)


def _once(rng: Random, count: int, end: bool) -> tuple[Any, ...]:
    """Distinct ints, and one of the last twenty or of the first."""
    xs = ascending(rng, count)
    rng.shuffle(xs)
    return xs, another(rng.choice(xs[-20:] if end else xs[:20]))


def _more_than_once(rng: Random, count: int) -> tuple[Any, ...]:
    """A value that stands at two or more places, none of them the first or the last."""
    x = rng.choice((rng.randint(-99, -10), rng.randint(300, 9999), 10**18 + rng.randint(0, 9)))
    xs = signed(rng, count)
    for place in rng.sample(range(count // 4, count - 2), rng.randint(2, 4)):
        xs[place] = x
    return [0, *xs, 1], another(x)


_UNSORTED = (
    Stratum("zero inside", lambda rng: ([*range(1, rng.randint(3, 9)), 0, *signed(rng, 9)], 0), 2),
    *lists(_needle),
    Stratum("hundreds, once near the end", lambda rng: _once(rng, rng.randint(MOST - 40, MOST), True)),
    Stratum("hundreds, once near the start", lambda rng: _once(rng, rng.randint(MOST - 40, MOST), False)),
    Stratum("above a hundred, once near the end", lambda rng: _once(rng, rng.randint(124, 140), True)),
    Stratum("above a hundred, once near the start", lambda rng: _once(rng, rng.randint(124, 140), False)),
    Stratum(
        "one of many that end alike", lambda rng: (xs := last_digits_alike(rng, 12), another(rng.choice(xs[4:8]))), 2
    ),
    Stratum(
        "digits inside other ints",
        lambda rng: ([*rng.sample((12, 23, 31, 123, 321, -3, -12), 7), 1, 2, 3], rng.choice((1, 2, 3))),
    ),
    Stratum("absent from hundreds", lambda rng: (signed(rng, rng.randint(260, 300)), rng.choice((-1, 1)) * 100)),
    Stratum("absent, with its digits there", lambda rng: ([12, 31, -2, 23], rng.choice((1, 2, 3, 123, 22)))),
    Stratum("more than once", lambda rng: _more_than_once(rng, rng.randint(30, 60))),
    Stratum("more than once in hundreds", lambda rng: _more_than_once(rng, rng.randint(260, MOST - 4))),
    Stratum("one of many beyond 2^53", lambda rng: (xs := neighbours(rng, 12), another(rng.choice(xs[3:9]))), 2),
    Stratum("one of many alike modulo 2^32 or 2^64", lambda rng: (xs := alike(rng, 9), another(rng.choice(xs[3:6])))),
)


def _with_late_maximum(rng: Random, xs: list[int]) -> tuple[Any, ...]:
    """The maximum, once or several times, but not among the first two (where there are more)."""
    if len(xs) > 3:
        top = max(xs)
        xs = [x - (x == top) for x in xs]
        for place in rng.sample(range(2, len(xs)), rng.randint(1, 2)):
            xs[place] = top
    return (xs,)


_NOT_EMPTY = (
    *lists(lambda rng, xs: (xs,), least=1),
    Stratum(
        "a maximum near the end of hundreds", lambda rng: ([*lengths(rng, 270), *rng.sample(range(10**6, 10**7), 30)],)
    ),
    Stratum("a late maximum modulo 2^32 or 2^64", lambda rng: _with_late_maximum(rng, alike(rng, 9))),
    Stratum("a late maximum, all negative", lambda rng: _with_late_maximum(rng, [-x for x in range(5, 40, 3)])),
    Stratum("a late maximum far below zero", lambda rng: _with_late_maximum(rng, far_below(rng, 9))),
    Stratum("a late maximum beyond 2^53", lambda rng: _with_late_maximum(rng, neighbours(rng, 12)), 2),
    Stratum("several maxima", lambda rng: ([*signed(rng, 30), *[100] * rng.randint(2, 5), *signed(rng, 30)],)),
    Stratum("the last is the maximum", lambda rng: ([*signed(rng, rng.randint(105, 300)), 100],)),
    Stratum("the first is the maximum", lambda rng: ([100, *signed(rng, rng.randint(9, 40)), rng.choice((99, 100))],)),
    Stratum(
        "a maximum that begins with 1", lambda rng: _with_late_maximum(rng, [*range(2, 10), 10 ** rng.randint(1, 9)])
    ),
)
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
        domain=Domain(
            f"xs: a list of up to {MOST} {INTS}, ascending, equal ones allowed; x: such an int. The answer is the "
            "lowest index at which x can be inserted with xs still ascending: how many elements are below x.",
            _SORTED,
        ),
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
        domain=Domain(
            f"xs: a list of up to {MOST} {INTS}, in any order; x: such an int. The answer is the highest index of x, "
            "or -1 where it is absent.",
            _UNSORTED,
        ),
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
        domain=Domain(
            f"xs: a list of up to {MOST} {INTS}, in any order; x: such an int. The answer is the lowest index of x; "
            "ValueError is raised where it is absent.",
            _UNSORTED,
        ),
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
        domain=Domain(
            f"xs: a list of 1 to {MOST} {INTS}, in any order. The answer is the index of the largest, the lowest index "
            "where several are the largest.",
            _NOT_EMPTY,
        ),
    ),
)
