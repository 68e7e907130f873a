"""Strata of the programs about lists."""

from random import Random
from typing import Any

from services.tasks.domain import Stratum
from services.tasks.strata import LETTERS, OTHERS, alike, ascending, lengths, lists, neighbours, signed, text


def _alone(rng: Random, xs: list[int]) -> tuple[Any, ...]:
    return (xs,)


def _below(rng: Random, count: int, k: int) -> tuple[Any, ...]:
    xs = [*rng.choices(range(k), k=count), k - 1]
    rng.shuffle(xs)
    return xs, k


ANY = lists(_alone)

BUCKETS = (
    Stratum("empty", lambda rng: ([], rng.randint(1, 300))),
    Stratum("only zeros", lambda rng: ([0] * rng.randint(1, 20), 1)),
    Stratum("seven to twelve", lambda rng: _below(rng, rng.randint(4, 20), rng.randint(7, 12)), 2),
    Stratum("tens", lambda rng: _below(rng, rng.randint(12, 40), rng.randint(13, 99)), 2),
    Stratum("hundreds", lambda rng: _below(rng, rng.randint(260, 300), rng.randint(260, 999)), 2),
    Stratum("few of thousands", lambda rng: _below(rng, rng.randint(3, 20), rng.randint(1025, 2000))),
    Stratum("one value a hundred times", lambda rng: ([(k := rng.randint(20, 90)) - 1] * rng.randint(104, 200), k)),
)


def _moved(rng: Random, xs: list[int], k: int) -> tuple[Any, ...]:
    """Distinct ints, in blocks of k + 1 that are turned round."""
    xs = sorted(set(xs))
    return [x for first in range(0, len(xs), k + 1) for x in xs[first : first + k + 1][::-1]], k


MOVED = (
    *lists(lambda rng, xs: _moved(rng, xs, rng.choice((1, 2, 5, len(xs) + 1)))),
    Stratum("hundreds, far moved", lambda rng: _moved(rng, ascending(rng, 300), rng.randint(258, 290))),
    Stratum("hundreds, not moved", lambda rng: _moved(rng, lengths(rng, 300), 0)),
)


def _searched(rng: Random, xs: list[int]) -> tuple[Any, ...]:
    xs = sorted(xs)
    if not xs:
        return xs, rng.randint(-9, 9)
    return xs, rng.choice((rng.choice(xs), rng.choice(xs), xs[-1], xs[0] - 1, xs[-1] + 1, rng.choice(xs) + 1))


SORTED = (
    *lists(_searched),
    Stratum("hundreds, near the end", lambda rng: (xs := sorted(lengths(rng, 300)), rng.choice(xs[265:])), 2),
    Stratum("hundreds, near the start", lambda rng: (xs := sorted(lengths(rng, 300)), rng.choice(xs[:40])), 2),
    Stratum("zero among them", lambda rng: (sorted({*signed(rng, rng.randint(3, 30)), -7, 0, 8}), 0), 2),
    Stratum("above all of hundreds", lambda rng: (xs := sorted(signed(rng, 280)), xs[-1] + rng.randint(1, 10**12))),
    Stratum("one of many beyond 2^53", lambda rng: (xs := sorted(neighbours(rng, 12)), rng.choice(xs[3:])), 2),
    Stratum("beside many beyond 2^53", lambda rng: ([2 * x for x in sorted(neighbours(rng, 12))], 2 * 10**18 + 1)),
    Stratum("one of many alike modulo 2^64", lambda rng: (xs := sorted(alike(rng, 9)), rng.choice(xs)), 2),
    Stratum("a long run of equal ones", lambda rng: (sorted([*signed(rng, 40), *[100] * 40, *range(101, 140)]), 100)),
)


def _placed(rng: Random, xs: list[int]) -> tuple[Any, ...]:
    return xs, rng.choice((0, len(xs) - 1, rng.randrange(len(xs)), rng.randrange(len(xs))))


PLACED = (
    *lists(_placed, least=1),
    Stratum("hundreds, one of the highest", lambda rng: (lengths(rng, 300), rng.randint(265, 299))),
    Stratum("hundreds, one of the lowest", lambda rng: (lengths(rng, 300), rng.randint(0, 30))),
    Stratum("one of many beyond 2^53", lambda rng: (neighbours(rng, 12), rng.randint(2, 11)), 2),
)


def _nested(rng: Random, items: list[Any], depth: int) -> list[Any]:
    """The items in their order, in lists in lists."""
    for _ in range(depth):
        first = rng.randint(0, len(items))
        items = [*items[:first], items[first : first + rng.randint(1, 9)], *items[first + 9 :]]
    return items


NESTED = (
    Stratum("empty", lambda rng: ([],)),
    Stratum("hundreds in one list", lambda rng: (lengths(rng, rng.randint(260, 300)),)),
    Stratum("hundreds of lists", lambda rng: ([[x] for x in signed(rng, rng.randint(260, 300))],)),
    Stratum("hundreds of empty lists", lambda rng: ([*([] for _ in range(rng.randint(104, 260))), 1],)),
    Stratum("twelve deep", lambda rng: ([1, [2, [3, [4, [5, [6, [7, [8, [9, [10, [11, rng.randint(12, 99)]]]]]]]]]]],)),
    Stratum("tens, nested", lambda rng: (_nested(rng, signed(rng, rng.randint(12, 40)), rng.randint(3, 9)),), 3),
    Stratum("beyond 2^53", lambda rng: (_nested(rng, neighbours(rng, 12), 4),)),
    Stratum("beyond 2^64", lambda rng: (_nested(rng, [2**64, 2**64 + 1, 2**65, -(2**64), rng.randint(0, 9)], 2),)),
    Stratum("texts", lambda rng: (_nested(rng, [text(rng, 3, OTHERS + LETTERS) for _ in range(15)], 4),)),
    Stratum("equal ones", lambda rng: ([[7, 7], 7, [[7]] * 2, *[7] * rng.randint(1, 9)],)),
)


def _distinct(rng: Random, xs: list[int]) -> tuple[Any, ...]:
    return (list(dict.fromkeys(xs)),)


def _woven(rng: Random, rise: int) -> tuple[Any, ...]:
    low, high = sorted(rng.sample(range(-500, 500), rise)), sorted(rng.sample(range(600, 9999), rise))
    return ([y for x in low for y in (x, high.pop())],)


RISING = (
    *lists(_distinct, most=150),
    Stratum("above a hundred that rise", lambda rng: (sorted(rng.sample(range(-999, 999), rng.randint(104, 130))),)),
    Stratum("a rise of tens and falls", lambda rng: _woven(rng, rng.randint(12, 40)), 2),
    Stratum("a rise of a hundred and falls", lambda rng: _woven(rng, rng.randint(66, 74))),
    Stratum("beyond 2^53, rising", lambda rng: (sorted(neighbours(rng, rng.randint(8, 16))),)),
)


def _permuted(rng: Random, xs: list[int], still: int) -> tuple[Any, ...]:
    """Distinct ints of which the last `still` fall, behind one that is lower than the first of these."""
    xs = sorted(set(xs))
    rng.shuffle(xs)
    front, back = xs[: len(xs) - still - 1], sorted(xs[len(xs) - still - 1 :])
    pivot = back.pop(rng.randrange(len(back) - 1))
    return ([*front, pivot, *back[::-1]],)


PERMUTED = (
    Stratum("two", lambda rng: (sorted(rng.sample(range(-99, 99), 2)),)),
    Stratum("three to six", lambda rng: _permuted(rng, rng.sample(range(-9, 9), 6), rng.randint(1, 4)), 3),
    Stratum("tens", lambda rng: _permuted(rng, lengths(rng, rng.randint(20, 40)), rng.randint(1, 12)), 2),
    Stratum("tens, the first moves", lambda rng: _permuted(rng, list(range(n := rng.randint(12, 40))), n - 1)),
    Stratum("a hundred", lambda rng: _permuted(rng, rng.sample(range(-999, 999), 110), rng.randint(1, 105))),
    Stratum("in order", lambda rng: (list(range(rng.randint(-9, 0), rng.randint(5, 40))),)),
    Stratum("beyond 2^53", lambda rng: _permuted(rng, neighbours(rng, 12), rng.randint(1, 8)), 2),
    Stratum("alike modulo 2^32 or 2^64", lambda rng: _permuted(rng, alike(rng, 9), rng.randint(1, 5)), 2),
    Stratum("alike modulo 2^64", lambda rng: _permuted(rng, alike(rng, 9, 64), rng.randint(1, 5)), 2),
)

PALINDROMIC = (
    Stratum("one digit", lambda rng: ([rng.randint(0, 9)],), 2),
    Stratum("nines", lambda rng: ([9] * rng.randint(2, 12),)),
    Stratum("tens of nines", lambda rng: ([9] * rng.randint(17, 60),)),
    Stratum("hundreds of nines", lambda rng: ([9] * rng.randint(260, 300),)),
    Stratum("six nines but for the middle", lambda rng: ([9, 9, 9, rng.randint(0, 8), 9, 9, 9],)),
    Stratum(
        "nines but for the middle", lambda rng: ([*[9] * (n := rng.randint(1, 4)), rng.randint(0, 8), *[9] * n],), 3
    ),
    Stratum("eight to ten digits", lambda rng: (_mirrored(rng, rng.randint(8, 10)),), 3),
    Stratum("a nine in the middle", lambda rng: ([*(f := _mirrored(rng, 4)[:2]), 9, *f[::-1]],)),
    Stratum("two nines in the middle", lambda rng: ([*(f := _mirrored(rng, 4)[:2]), 9, 9, *f[::-1]],)),
    Stratum("nines but for the ends", lambda rng: ([d := rng.randint(1, 8), *[9] * rng.randint(1, 7), d],)),
)


def _mirrored(rng: Random, count: int) -> list[int]:
    half = [rng.randint(1, 9), *rng.choices(range(10), k=count // 2 - 1)]
    return [*half, *rng.choices(range(9), k=count % 2), *half[::-1]]


def _packed(rng: Random, count: int, worth: int) -> tuple[Any, ...]:
    items = [[rng.randint(1, 60), rng.randint(1, worth)] for _ in range(count)]
    return sum(rng.sample([weight for weight, _ in items], count // 2)), items


def _packed_heavily(rng: Random) -> tuple[Any, ...]:
    """A capacity of hundreds that binds, and items whose worth is about their weight."""
    items = [[weight, weight + rng.randint(0, 9)] for weight in (rng.randint(60, 120) for _ in range(12))]
    return rng.randint(400, 700), items


PACKED = (
    Stratum("no items", lambda rng: (rng.randint(0, 99), [])),
    Stratum("no capacity", lambda rng: (0, [[rng.randint(1, 9), rng.randint(1, 9)] for _ in range(4)])),
    Stratum("ten to twelve items", lambda rng: _packed(rng, rng.randint(10, 12), 99), 3),
    Stratum("twelve heavy items", _packed_heavily, 8),
    Stratum("worth beyond 2^53", lambda rng: _packed(rng, rng.randint(6, 10), 10**18), 2),
    Stratum("one that is too heavy", lambda rng: (9, [[10**20, 5], [rng.randint(2, 9), 3], [10, 99]])),
    Stratum("all fit", lambda rng: (900, [[rng.randint(1, 60), rng.randint(1, 999)] for _ in range(9)])),
    Stratum("equal items", lambda rng: (rng.randint(20, 70), [[7, 10]] * rng.randint(3, 9))),
)

SUBSETS = (
    Stratum("empty", lambda rng: ([],)),
    Stratum("eight", lambda rng: (rng.sample(range(-50, 50), 8),)),
    Stratum("beyond 2^53", lambda rng: (neighbours(rng, 4),)),
    Stratum("alike modulo 2^64", lambda rng: (alike(rng, 4, 64),)),
    Stratum("texts of both cases and scripts", lambda rng: (["A", "a", rng.choice(OTHERS), rng.choice("ÉΩЖ"), "Z"],)),
    Stratum("texts", lambda rng: (rng.sample([*LETTERS, *OTHERS, "", "ab"], 5),)),
)


def _around(rng: Random, best: list[int], before: int, behind: int) -> tuple[Any, ...]:
    return ([*(-rng.randint(50, 90) for _ in range(before)), *best, *(-rng.randint(50, 90) for _ in range(behind))],)


SUMMED = (
    *lists(_alone, most=120),
    Stratum("all positive, above a hundred", lambda rng: ([rng.randint(1, 9) for _ in range(rng.randint(104, 120))],)),
    Stratum("a long part in the middle", lambda rng: _around(rng, [rng.randint(1, 9) for _ in range(90)], 9, 9)),
    Stratum("the start", lambda rng: _around(rng, [rng.randint(5, 9) for _ in range(12)], 0, rng.randint(5, 30))),
    Stratum("the end", lambda rng: _around(rng, [rng.randint(5, 9) for _ in range(12)], rng.randint(5, 30), 0)),
    Stratum("two parts, a small loss between", lambda rng: ([-9, *[5] * 9, -rng.randint(1, 40), *[6] * 9, -9],)),
    Stratum("beyond 2^53, gains and losses", lambda rng: ([x * (-1) ** k for k, x in enumerate(neighbours(rng, 14))],)),
)
