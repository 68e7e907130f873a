"""Sorting: putting lists in order, whole or step by step."""

from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define
from services.tasks.domain import Domain, Stratum
from services.tasks.strata import INTS, MOST, alike, few, lengths, lists, neighbours, signed


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


def _alone(rng: Random, xs: list[int]) -> tuple[Any, ...]:
    return (xs,)


def _flawed(rng: Random, xs: list[int], place: int | None) -> tuple[Any, ...]:
    """The ints in order, but for the neighbours at `place` (from the end where negative), which change places."""
    xs = sorted(xs)
    if place is not None:
        place %= len(xs) - 1
        xs[place : place + 2] = [xs[place + 1] + (xs[place] == xs[place + 1]), xs[place]]
    return (xs,)


_LISTS = (
    *lists(_alone, most=130, without=("above a hundred",)),
    Stratum("hundreds, all but in order", lambda rng: _flawed(rng, lengths(rng, rng.randint(260, MOST)), -1)),
    Stratum("one out of place", lambda rng: ([*range(rng.randint(30, 60)), -1],)),
    Stratum("one out of a hundred places", lambda rng: ([*range(rng.randint(104, 130)), -1],)),
    Stratum("beyond 2^53 in reverse", lambda rng: (sorted(neighbours(rng, 10), reverse=True),)),
)


def _split(rng: Random, xs: list[int]) -> tuple[Any, ...]:
    """Two ascending lists of all the ints, each of any share."""
    cut = rng.randint(0, len(xs))
    return sorted(xs[:cut]), sorted(xs[cut:])


def _apart(rng: Random, low: int, high: int) -> tuple[list[int], list[int]]:
    """Two ascending lists of so many ints, every one of the first below every one of the second."""
    xs = sorted(lengths(rng, low + high))
    return xs[:low], xs[low:]


def _both(rng: Random, count: int) -> tuple[Any, ...]:
    """Two ascending lists of one length whose elements alternate."""
    xs = sorted(lengths(rng, 2 * count))
    return rng.choice(((xs[::2], xs[1::2]), (xs[1::2], xs[::2])))


_PAIRS = (
    *lists(_split),
    Stratum("the first empty", lambda rng: ([], sorted(lengths(rng, rng.randint(2, 40))))),
    Stratum("the second empty", lambda rng: (sorted(lengths(rng, rng.randint(2, 40))), [])),
    Stratum("all of the first below", lambda rng: _apart(rng, rng.randint(8, 60), rng.randint(8, 60))),
    Stratum("all of the second below", lambda rng: _apart(rng, rng.randint(8, 60), rng.randint(8, 60))[::-1]),
    Stratum("one below hundreds", lambda rng: _apart(rng, 1, rng.randint(260, MOST - 1))),
    Stratum("hundreds above one", lambda rng: _apart(rng, 1, rng.randint(260, MOST - 1))[::-1]),
    Stratum("hundreds that alternate", lambda rng: _both(rng, rng.randint(130, MOST // 2))),
    Stratum("tens that alternate", lambda rng: _both(rng, rng.randint(12, 30))),
    Stratum("equal lists", lambda rng: (xs := sorted(signed(rng, rng.randint(5, 30))), xs[:])),
    Stratum("many beyond 2^53", lambda rng: (xs := sorted(neighbours(rng, 16)), [x + 1 for x in xs[:8]])),
)


def _below(rng: Random, count: int, n: int) -> tuple[Any, ...]:
    """`count` ints of range(n) with 0 and n - 1 among them (where there is room)."""
    xs = rng.choices(range(n), k=count) + [0, n - 1][:count]
    rng.shuffle(xs)
    return xs, n


_COUNTED = (
    Stratum("empty", lambda rng: ([], rng.randint(1, 300))),
    Stratum("only zeros", lambda rng: ([0] * rng.randint(1, 12), 1)),
    Stratum("one", lambda rng: (n := rng.randint(1, 300), ([n - 1], n))[1]),
    Stratum("two values", lambda rng: _below(rng, rng.randint(12, 40), 2)),
    Stratum("seven to twelve", lambda rng: _below(rng, rng.randint(4, 20), rng.randint(7, 12)), 3),
    Stratum("tens", lambda rng: _below(rng, rng.randint(12, 40), rng.randint(13, 99)), 2),
    Stratum("above a hundred", lambda rng: _below(rng, rng.randint(104, 130), rng.randint(104, 140))),
    Stratum("hundreds", lambda rng: _below(rng, rng.randint(260, MOST - 2), rng.randint(260, 999))),
    Stratum("few of thousands", lambda rng: _below(rng, rng.randint(3, 20), rng.randint(1025, 2000))),
    Stratum("one value a hundred times", lambda rng: ([(n := rng.randint(20, 90)) - 1] * rng.randint(104, 200), n)),
    Stratum("in order", lambda rng: (list(range(n := rng.randint(20, 70))), n)),
    Stratum("in reverse", lambda rng: (list(range(n := rng.randint(20, 70)))[::-1], n)),
    Stratum("gaps", lambda rng: ([x * 7 % 90 for x in range(rng.randint(10, 40))], 90)),
    Stratum("n far above all", lambda rng: ([rng.randint(0, 9) for _ in range(9)], rng.randint(100, 2000))),
)


_ORDERED = (
    Stratum("no order", lambda rng: (lengths(rng, rng.randint(3, 40)),)),
    Stratum(
        "equal ones apart", lambda rng: (rng.choice(([5, 4, 5], [2, 1, 2, 3], [3, 7, 3], [-1, -2, -1], [1, 0, 1])),), 2
    ),
    Stratum("falling", lambda rng: (sorted(set(signed(rng, rng.randint(4, 40))), reverse=True),)),
    *lists(lambda rng, xs: (sorted(xs),)),
    Stratum("tens, the first two exchanged", lambda rng: _flawed(rng, lengths(rng, rng.randint(9, 40)), 0)),
    Stratum("tens, the last two exchanged", lambda rng: _flawed(rng, lengths(rng, rng.randint(9, 40)), -1)),
    Stratum("tens, two exchanged", lambda rng: _flawed(rng, lengths(rng, rng.randint(9, 40)), rng.randrange(40)), 2),
    Stratum("hundreds, the last two exchanged", lambda rng: _flawed(rng, lengths(rng, rng.randint(260, MOST)), -1)),
    Stratum("hundreds, two exchanged", lambda rng: _flawed(rng, lengths(rng, 300), rng.randint(110, 290))),
    Stratum("beyond 2^53, two exchanged", lambda rng: _flawed(rng, neighbours(rng, 12), rng.randrange(11)), 2),
    Stratum("alike modulo 2^64, two exchanged", lambda rng: _flawed(rng, alike(rng, 9), rng.randrange(7)), 2),
    Stratum("equal ones, two exchanged", lambda rng: _flawed(rng, few(rng, rng.randint(20, 40)), rng.randrange(40))),
    Stratum("all negative, two exchanged", lambda rng: _flawed(rng, list(range(-60, -20, 3)), rng.randrange(13))),
    Stratum("a rise from end to end, not in between", lambda rng: ([-500, *signed(rng, rng.randint(8, 60)), 500],)),
)


def _insertion(rng: Random, xs: list[int]) -> tuple[Any, ...]:
    """The ints in order, and one from anywhere: an element, beside one, or beyond all."""
    xs = sorted(xs)
    if not xs:
        return xs, rng.randint(-99, 99)
    return xs, rng.choice((rng.choice(xs), rng.choice(xs) + 1, rng.choice(xs) - 1, xs[0] - 1, xs[-1] + 1))


_INSERTIONS = (
    Stratum("zero", lambda rng: (sorted([*signed(rng, rng.randint(3, 20)), -5, 3]), 0), 2),
    *lists(_insertion),
    Stratum("hundreds, to the end", lambda rng: (xs := sorted(lengths(rng, rng.randint(260, MOST))), xs[-1] + 1)),
    Stratum("hundreds, to the start", lambda rng: (xs := sorted(lengths(rng, rng.randint(260, MOST))), xs[0] - 1)),
    Stratum("hundreds, in between", lambda rng: (xs := sorted(lengths(rng, 290)), rng.choice(xs[120:280]) + 1)),
    Stratum("10 among digits", lambda rng: (sorted(rng.sample(range(2, 10), 5)), 10 ** rng.randint(1, 5))),
    Stratum("9 among tens", lambda rng: (sorted(rng.sample(range(10, 99), 9)), rng.randint(2, 9))),
    Stratum("equal ones", lambda rng: (xs := sorted(few(rng, rng.randint(20, 40))), rng.choice((xs[0], xs[-1])))),
    Stratum("many beyond 2^53", lambda rng: (xs := sorted(neighbours(rng, 12)), rng.choice(xs[2:10])), 2),
)

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
        domain=Domain(
            f"xs: a list of up to {MOST} {INTS}, in any order. It is put in ascending order itself, and returned.",
            _LISTS,
        ),
        comparator="exact+args",
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
        domain=Domain(
            f"xs, ys: ascending lists of {INTS}, either may be empty, up to {MOST} together. The answer is one "
            "ascending list of all their elements; what becomes of the two lists does not matter.",
            _PAIRS,
        ),
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
        domain=Domain(
            f"n: an int from 1 to 2000; xs: a list of up to {MOST} ints from 0 to n - 1. The answer is a list of the "
            "same ints in ascending order.",
            _COUNTED,
        ),
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
        domain=Domain(
            f"xs: a list of up to {MOST} {INTS}. The answer is whether no element is smaller than the one before it; "
            "True for none and for one.",
            _ORDERED,
        ),
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
        domain=Domain(
            f"xs: an ascending list of up to {MOST} {INTS}; x: such an int. The answer is a list of all of them and x "
            "in ascending order.",
            _INSERTIONS,
        ),
    ),
)
