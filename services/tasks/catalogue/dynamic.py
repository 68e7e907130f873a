"""Dynamic programming (a held-out family): answers built up from smaller answers."""

from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define
from services.tasks.domain import Domain, Stratum
from services.tasks.strata import INTS, far_below, few, lengths, lists, neighbours, signed


def _coins(rng: Random) -> tuple[Any, ...]:
    return sorted(rng.sample(range(1, 6), rng.randint(0, 3))), rng.randint(0, 9)


def _signed(rng: Random) -> tuple[Any, ...]:
    return (draws.ints(rng, 0, 6, -5, 5),)


def _list(rng: Random) -> tuple[Any, ...]:
    return (draws.ints(rng),)


def _grid(rng: Random) -> tuple[Any, ...]:
    return rng.randint(1, 4), rng.randint(1, 4)


_WAYS = (
    Stratum("no coins, nothing", lambda rng: ([], 0)),
    Stratum("no coins", lambda rng: ([], rng.randint(1, 300))),
    Stratum("nothing", lambda rng: (sorted(rng.sample(range(1, 99), rng.randint(1, 8))), 0)),
    Stratum("ones", lambda rng: ([1], rng.randint(1, 300))),
    Stratum("one coin", lambda rng: ([x := rng.randint(2, 40)], x * rng.randint(1, 7) + rng.choice((0, 0, 1)))),
    Stratum("one coin, the sum itself", lambda rng: ([x := rng.randint(2, 300)], x)),
    Stratum("one above the sum", lambda rng: ([x := rng.randint(2, 300)], x - 1)),
    Stratum("ones and twos", lambda rng: ([1, 2], rng.randint(13, 60)), 2),
    Stratum("ones and twos, hundreds", lambda rng: ([1, 2], rng.randint(200, 260))),
    Stratum("ones and a coin of hundreds", lambda rng: ([1, x := rng.randint(256, 270)], x + rng.randint(0, 9)), 2),
    Stratum("two coins", lambda rng: (sorted(rng.sample(range(2, 20), 2)), rng.randint(20, 120)), 2),
    Stratum("three coins", lambda rng: (sorted(rng.sample(range(1, 10), 3)), rng.randint(10, 40)), 3),
    Stratum("three coins, a hundred", lambda rng: ([2, 5, 10], rng.randint(100, 130))),
    Stratum("three coins, hundreds", lambda rng: ([2, 5, 10], rng.randint(256, 300)), 2),
    Stratum(
        "a coin of hundreds",
        lambda rng: ([c := rng.randint(3, 9), x := rng.randint(256, 270)], x + c * rng.randint(0, 3)),
        3,
    ),
    Stratum(
        "four to six coins", lambda rng: (sorted(rng.sample(range(2, 16), rng.randint(4, 6))), rng.randint(20, 40)), 2
    ),
    Stratum("many coins", lambda rng: (xs := sorted(rng.sample(range(6, 32), 12)), sum(xs[-2:]))),
    Stratum(
        "many coins, all but one too large", lambda rng: (xs := sorted(rng.sample(range(20, 60), 12)), xs[9] + xs[10])
    ),
    Stratum("all coins", lambda rng: (list(range(1, n := rng.randint(7, 14))), n)),
    Stratum("money", lambda rng: ([1, 5, 10, 25, 50], rng.randint(25, 100))),
    Stratum("coins of two digits", lambda rng: (sorted(rng.sample(range(10, 60), 4)), rng.randint(100, 240)), 2),
    Stratum(
        "coins of three digits", lambda rng: (xs := sorted(rng.sample(range(101, 150), 3)), xs[1] + rng.choice(xs))
    ),
    Stratum(
        "even coins, an odd sum", lambda rng: (sorted(rng.sample(range(2, 30, 2), 4)), 2 * rng.randint(10, 50) + 1)
    ),
    Stratum("coins above the sum", lambda rng: ([2, 3, rng.randint(50, 99), 10**20], rng.randint(10, 49))),
)


def _around(rng: Random, best: list[int], before: int, behind: int) -> tuple[Any, ...]:
    """A part that is worth taking, with losses on both sides of it."""
    return ([*(-rng.randint(50, 90) for _ in range(before)), *best, *(-rng.randint(50, 90) for _ in range(behind))],)


_SUMMED = (
    *lists(lambda rng, xs: (xs,), most=200),
    Stratum("all positive", lambda rng: ([rng.randint(1, 9) for _ in range(rng.randint(9, 40))],)),
    Stratum("all positive, above a hundred", lambda rng: ([rng.randint(1, 9) for _ in range(rng.randint(104, 130))],)),
    Stratum("all positive, hundreds", lambda rng: ([rng.randint(1, 999) for _ in range(rng.randint(170, 200))],)),
    Stratum("all negative", lambda rng: ([-rng.randint(1, 99) for _ in range(rng.randint(2, 40))],)),
    Stratum("zeros and losses", lambda rng: ([rng.choice((0, -1)) for _ in range(rng.randint(2, 20))],)),
    Stratum("the whole but for its ends", lambda rng: _around(rng, [*signed(rng, 20), 999], rng.randint(1, 9), 2)),
    Stratum("a long part in the middle", lambda rng: _around(rng, [rng.randint(1, 9) for _ in range(110)], 30, 30)),
    Stratum("the start", lambda rng: _around(rng, [rng.randint(5, 9) for _ in range(12)], 0, rng.randint(5, 30))),
    Stratum("the end", lambda rng: _around(rng, [rng.randint(5, 9) for _ in range(12)], rng.randint(5, 30), 0)),
    Stratum("two parts with a small loss between", lambda rng: ([-9, *[5] * 9, -rng.randint(1, 40), *[6] * 9, -9],)),
    Stratum("two parts with a great loss between", lambda rng: ([-9, *[5] * 9, -rng.randint(60, 99), *[6] * 9, -9],)),
    Stratum(
        "gains and losses in turn", lambda rng: ([rng.choice((5, 6)) * (-1) ** k for k in range(rng.randint(20, 60))],)
    ),
    Stratum(
        "beyond 2^53, gains and losses", lambda rng: ([x * (-1) ** k for k, x in enumerate(neighbours(rng, 14))],), 2
    ),
)


def _woven(rng: Random, rise: int, falls: int) -> tuple[Any, ...]:
    """A rising sequence with falling ones of far higher ints woven in, which lead whoever is greedy away."""
    low, high = sorted(rng.sample(range(-500, 500), rise)), sorted(rng.sample(range(600, 9999), rise * falls))
    return ([y for x in low for y in (x, *(high.pop() for _ in range(falls)))],)


_RISING = (
    *lists(lambda rng, xs: (xs,), most=150, without=("above a hundred",)),
    Stratum("tens in no order", lambda rng: (rng.sample(range(-999, 999), rng.randint(50, 70)),)),
    Stratum("above a hundred that rise", lambda rng: (sorted(rng.sample(range(-999, 999), rng.randint(104, 130))),)),
    Stratum("a rise and falls between", lambda rng: _woven(rng, rng.randint(8, 30), rng.randint(1, 3)), 2),
    Stratum("a rise of tens and falls", lambda rng: _woven(rng, 54, 1)),
    Stratum("one that does not fit", lambda rng: ([*range(10, 30), 5, *range(30, 40 + rng.randint(0, 9))],)),
    Stratum("a late start", lambda rng: ([*range(50, 55), *range(rng.randint(8, 30))],)),
    Stratum("an early end", lambda rng: ([*range(rng.randint(8, 30)), *range(-9, -3)],)),
    Stratum("blocks that fall", lambda rng: ([x for k in range(9, 0, -1) for x in range(10 * k, 10 * k + 5)],)),
    Stratum(
        "blocks that rise", lambda rng: ([x for k in range(9) for x in range(10 * k + rng.randint(2, 6), 10 * k, -1)],)
    ),
    Stratum("equal ones in a rise", lambda rng: (sorted(few(rng, 12) + signed(rng, 12)),)),
    Stratum("beyond 2^53, rising", lambda rng: (sorted(neighbours(rng, rng.randint(8, 16))),)),
    Stratum("far below zero, rising", lambda rng: (sorted(far_below(rng, rng.randint(5, 12))),)),
    Stratum("digits, rising", lambda rng: (sorted(lengths(rng, 12)),)),
)

_GRIDS = (
    Stratum("one cell", lambda rng: (1, 1)),
    Stratum("one row", lambda rng: (1, rng.randint(2, 60))),
    Stratum("one column", lambda rng: (rng.randint(2, 60), 1)),
    Stratum("two rows", lambda rng: (2, rng.randint(5, 60))),
    Stratum("two columns", lambda rng: (rng.randint(5, 60), 2)),
    Stratum("three rows", lambda rng: (3, rng.randint(5, 40))),
    Stratum("three columns", lambda rng: (rng.randint(5, 40), 3)),
    Stratum("small", lambda rng: (rng.randint(2, 5), rng.randint(2, 5)), 3),
    Stratum("to twelve", lambda rng: (rng.randint(5, 12), rng.randint(5, 12)), 3),
    Stratum("squares", lambda rng: (n := rng.randint(4, 12), n)),
    Stratum("wide", lambda rng: (rng.randint(4, 9), rng.randint(20, 60))),
    Stratum("high", lambda rng: (rng.randint(20, 60), rng.randint(4, 9))),
    Stratum("beyond 2^31", lambda rng: (rng.randint(18, 25), rng.randint(18, 25))),
    Stratum("beyond 2^53", lambda rng: (rng.randint(34, 60), rng.randint(34, 60)), 3),
    Stratum("the largest", lambda rng: (60, 60)),
)

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
        domain=Domain(
            "xs: a list of up to 12 distinct ints from 1 up, ascending; n: an int from 0 to 300. The answer is the "
            "number of ways in which n is a sum of numbers of xs, each as often as one likes, their order not "
            "counting; at most 1000. 1 where n is 0.",
            _WAYS,
        ),
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
        domain=Domain(
            f"xs: a list of up to 200 {INTS}. The answer is the largest sum of a part of xs without gaps; the empty "
            "part counts, so that it is never below 0.",
            _SUMMED,
        ),
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
        domain=Domain(
            f"xs: a list of up to 150 {INTS}. The answer is how many elements can at most be chosen, left to right and "
            "not necessarily side by side, so that each is larger than the one before; 0 for none.",
            _RISING,
        ),
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
        domain=Domain(
            "n, m: ints from 1 to 60. The answer is, exactly, in how many ways one gets from the upper left to the "
            "lower right cell of n rows and m columns by steps to the right and down.",
            _GRIDS,
        ),
    ),
)
