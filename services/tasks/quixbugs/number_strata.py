"""Strata of the programs about numbers."""

import math
from random import Random
from typing import Any

from services.tasks.domain import Stratum


def _sized(rng: Random, digits: int) -> int:
    return rng.randint(10 ** (digits - 1), 10**digits - 1)


def _bits(rng: Random, count: int) -> tuple[Any, ...]:
    """An int of so many bits."""
    return (rng.getrandbits(count) | 1 << count - 1,)


BITS = (
    Stratum("zero", lambda rng: (0,)),
    Stratum("9 bits", lambda rng: _bits(rng, 9), 2),
    Stratum("17 bits", lambda rng: _bits(rng, 17), 2),
    Stratum("33 bits", lambda rng: _bits(rng, 33), 2),
    Stratum("65 bits", lambda rng: _bits(rng, 65), 2),
    Stratum("a hundred bits", lambda rng: _bits(rng, 110), 2),
    Stratum("hundreds of bits", lambda rng: _bits(rng, 300), 2),
    Stratum("all bits", lambda rng: (2 ** rng.randint(5, 99) - 1,), 2),
    Stratum("hundreds of bits, all of them", lambda rng: (2 ** rng.randint(260, 299) - 1,)),
    Stratum("one bit", lambda rng: (2 ** rng.randint(5, 290),), 2),
)


def _multiples(rng: Random, shared: int, most: int) -> tuple[Any, ...]:
    return shared * rng.randint(2, most), shared * rng.randint(2, most)


DIVIDED = (
    Stratum("zeros", lambda rng: rng.choice(((0, 0), (0, rng.randint(1, 10**20)), (rng.randint(1, 10**20), 0)))),
    Stratum("six digits", lambda rng: _multiples(rng, rng.randint(2, 999), 999), 2),
    Stratum("around 2^31", lambda rng: _multiples(rng, rng.randint(2**16, 2**17), 2**15), 2),
    Stratum("beyond 2^53", lambda rng: _multiples(rng, 10**18 + rng.randint(1, 99), 10**4), 2),
    Stratum("thirty digits", lambda rng: _multiples(rng, _sized(rng, 12), 10**18), 2),
    Stratum("neighbours", lambda rng: (n := _sized(rng, rng.randint(3, 20)), n + 1)),
)

_PRIMES = [n for n in range(101, 1000) if all(n % d for d in range(2, 32))]

FACTORED = (
    Stratum("one", lambda rng: (1,)),
    Stratum("a prime of three digits", lambda rng: (rng.choice(_PRIMES),), 2),
    Stratum("a prime beyond 2^16", lambda rng: (rng.choice((65537, 70001, 99991, 104729, 109987)),), 2),
    Stratum("two primes", lambda rng: (rng.choice(_PRIMES) * rng.choice(_PRIMES),), 2),
    Stratum("a square of a prime", lambda rng: (rng.choice(_PRIMES) ** 2,)),
    Stratum("a power of two", lambda rng: (2 ** rng.randint(5, 60),)),
    Stratum("many small ones, beyond 2^53", lambda rng: (math.prod(rng.choices((2, 3, 5, 7, 11, 13), k=24)),), 2),
    Stratum("a hundred factors", lambda rng: (2 ** rng.randint(52, 70) * 3 ** rng.randint(52, 70),)),
)

SIEVED = (
    Stratum("below four", lambda rng: (rng.randint(1, 3),)),
    Stratum("a prime", lambda rng: (rng.choice((31, 37, 97, 101, 499, 997)),)),
    Stratum("a square of a prime", lambda rng: (rng.choice((121, 169, 289, 361, 529, 841, 961)),)),
    Stratum("hundreds", lambda rng: (rng.randint(550, 1000),)),
)

TRIANGLES = (
    Stratum("one", lambda rng: (1,)),
    Stratum("to twelve", lambda rng: (rng.randint(9, 12),)),
    Stratum("twenty", lambda rng: (rng.randint(17, 30),)),
    Stratum("beyond 2^31", lambda rng: (rng.randint(36, 42),)),
    Stratum("beyond 2^53", lambda rng: (rng.randint(58, 62),)),
)

TOWERS = (
    Stratum("none", lambda rng: (0, *rng.sample((1, 2, 3), 2))),
    Stratum("eight or nine", lambda rng: (rng.randint(8, 9), *rng.sample((1, 2, 3), 2))),
    Stratum("from 1 to 2", lambda rng: (rng.randint(2, 5), 1, 2)),
    Stratum("from 1 to 3", lambda rng: (rng.randint(2, 5), 1, 3)),
    Stratum("from 2 to 1", lambda rng: (rng.randint(2, 5), 2, 1)),
    Stratum("from 2 to 3", lambda rng: (rng.randint(2, 5), 2, 3)),
    Stratum("from 3 to 1", lambda rng: (rng.randint(2, 5), 3, 1)),
    Stratum("from 3 to 2", lambda rng: (rng.randint(2, 5), 3, 2)),
)

CHANGE = (
    Stratum("nothing", lambda rng: (rng.sample(range(1, 99), 4), 0)),
    Stratum("less than nothing", lambda rng: (rng.sample(range(1, 9), 3), -rng.choice((1, 50, 10**20)))),
    Stratum("ones and twos", lambda rng: (rng.choice(([1, 2], [2, 1])), rng.randint(40, 140))),
    Stratum("ones", lambda rng: ([1], rng.randint(104, 300))),
    Stratum("money", lambda rng: ([1, 5, 10, 25], rng.randint(40, 100))),
    Stratum("coins of two digits", lambda rng: (rng.sample(range(10, 60), 4), rng.randint(100, 240)), 2),
    Stratum("six to nine coins", lambda rng: (rng.sample(range(3, 20), rng.randint(6, 9)), rng.randint(20, 36)), 2),
    Stratum("nine coins", lambda rng: (xs := sorted(rng.sample(range(6, 30), 9)), xs[-1] + xs[-2]), 2),
    Stratum("eight coins", lambda rng: (xs := sorted(rng.sample(range(5, 30), 8)), xs[-1] + rng.choice(xs)), 2),
    Stratum("hundreds of ways", lambda rng: ([2, 5, 10], rng.randint(258, 300)), 2),
    Stratum(
        "a coin of hundreds",
        lambda rng: ([c := rng.randint(3, 9), x := rng.randint(256, 270)], x + c * rng.randint(0, 3)),
        5,
    ),
    Stratum("coins above the sum", lambda rng: ([10**20, 2, 3, 77], rng.randint(10, 60))),
)

CHOSEN = (
    Stratum("one at a time", lambda rng: (a := rng.randint(-9, 9), a + rng.randint(12, 120), 1)),
    Stratum("nearly all", lambda rng: (a := rng.randint(-99, 9), a + 10, rng.randint(8, 10))),
    Stratum("pairs", lambda rng: (a := rng.randint(-9, 9), a + rng.randint(9, 16), 2)),
    Stratum("ten and more of two digits", lambda rng: (a := rng.randint(10, 60), a + 12, rng.randint(10, 11)), 2),
    Stratum("to zero", lambda rng: (-rng.randint(4, 8), 0, rng.randint(1, 4))),
    Stratum("more than fifty", lambda rng: (a := rng.randint(-9, 9), a + rng.randint(8, 9), 3), 2),
    Stratum("more than a hundred", lambda rng: (a := rng.randint(-9, 9), a + 10, rng.randint(3, 4)), 2),
    Stratum("far from zero", lambda rng: (a := rng.choice((-1, 1)) * 10**4, a + 6, 3)),
    Stratum("beyond 2^53", lambda rng: (a := rng.choice((-1, 1)) * 10**18, a + 6, 3)),
    Stratum("too few", lambda rng: (a := rng.randint(-9, 9), a + rng.randint(-99, 2), 3)),
)

ROOTS = (
    Stratum("one", lambda rng: (1, rng.choice((0.5, 0.01)))),
    Stratum("squares", lambda rng: (rng.randint(2, 1000) ** 2, 0.01), 2),
    Stratum("six digits", lambda rng: (rng.randint(10**5, 10**6), rng.choice((0.1, 0.001)))),
    Stratum("close", lambda rng: (rng.uniform(1, 99), 1e-9), 2),
    Stratum("fractions", lambda rng: (rng.uniform(1, 1000), 0.001)),
)

BASED = (
    Stratum("binary", lambda rng: (rng.randint(128, 10**6), 2)),
    Stratum("tens of digits", lambda rng: (_sized(rng, rng.randint(17, 60)), rng.randint(2, 36)), 2),
    Stratum("hundreds of digits", lambda rng: (2 ** rng.randint(260, 300) + rng.randint(0, 9), 2)),
    Stratum("letters", lambda rng: (rng.randint(10**5, 10**12), rng.randint(17, 36)), 3),
    Stratum("the last letter", lambda rng: (36 ** rng.randint(1, 9) - 1, 36)),
    Stratum("powers", lambda rng: ((b := rng.randint(2, 36)) ** rng.randint(7, 20), b), 2),
    Stratum("one below powers", lambda rng: ((b := rng.randint(2, 36)) ** rng.randint(7, 20) - 1, b), 2),
    Stratum("beyond 2^53", lambda rng: (10**18 + rng.randint(1, 10**6), rng.randint(2, 36)), 2),
)
