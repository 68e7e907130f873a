"""References and inputs of the programs about numbers."""

import math
from functools import reduce
from itertools import combinations
from random import Random
from typing import Any

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def bitcount(n: int) -> int:
    """Ones in the binary notation."""
    return bin(n).count("1")


def _bitcount(rng: Random) -> tuple[Any, ...]:
    power = 1 << rng.randint(0, 80)
    return (rng.choice((0, power, power - 1, rng.randint(1, 15), rng.getrandbits(30), rng.getrandbits(100))),)


def gcd(a: int, b: int) -> int:
    """Greatest common divisor; 0 for two zeros."""
    return math.gcd(a, b)


def _gcd(rng: Random) -> tuple[Any, ...]:
    one, other, shared = rng.randint(1, 40), rng.randint(1, 40), rng.choice((1, 2, 3, 6, 25))
    large = rng.randint(10**4, 10**5)
    return rng.choice(
        (
            (0, one),
            (one, 0),
            (one, one),
            (one, one * shared),
            (one * shared, other * shared),
            (other * shared, one * shared),
            (large * rng.randint(1, 3), large * rng.randint(1, 3)),
            (large, rng.randint(1, 10**5)),
            rng.choice(((0, 0), (1, one), (one, 1))),
        )
    )


def get_factors(n: int) -> list[int]:
    """Prime factors in order, with repetition."""
    found: list[int] = []
    divisor = 2
    while n > 1:
        while n % divisor == 0:
            found.append(divisor)
            n //= divisor
        divisor = divisor + 1 if divisor * divisor <= n else n
    return found


def _get_factors(rng: Random) -> tuple[Any, ...]:
    prime, other = rng.choice(_PRIMES), rng.choice(_PRIMES)
    return (
        rng.choice(
            (
                1,
                prime,
                prime**2,
                prime ** rng.randint(3, 5),
                prime * other,
                rng.choice((2, 6, 30)) * rng.choice((101, 211, 997)),
                rng.randint(2, 5000),
                rng.choice((7919, 104729, 1009 * 1013, 2 * 7919)),
            )
        ),
    )


def sieve(maximum: int) -> list[int]:
    """Every prime up to and with `maximum`."""
    return [n for n in range(2, maximum + 1) if all(n % divisor for divisor in range(2, math.isqrt(n) + 1))]


def _sieve(rng: Random) -> tuple[Any, ...]:
    prime = rng.choice(_PRIMES)
    small = rng.choice((1, 2, prime, prime - 1, prime + 1, rng.choice((4, 9, 25, 49, 121))))
    # 341 is the first number that Fermat's test to base two takes for a prime.
    return (rng.choice((small, small, small, rng.randint(121, 250), rng.randint(341, 500))),)


def pascal(n: int) -> list[list[int]]:
    """The first `n` rows of Pascal's triangle."""
    return [[math.comb(row, column) for column in range(row + 1)] for row in range(n)]


def _pascal(rng: Random) -> tuple[Any, ...]:
    return (rng.choice((1, 2, 3, rng.randint(4, 7), rng.randint(8, 12), rng.randint(13, 16))),)


def hanoi(height: int, start: int, end: int) -> list[tuple[int, int]]:
    """The moves of the one shortest solution.

    Numbering moves m from 1: the disk goes from peg (m & (m-1)) mod 3 to peg ((m | (m-1)) + 1) mod 3, with the pegs
    counted start, helper, end for an odd height and start, end, helper for an even one.
    """
    helper = 6 - start - end
    pegs = (start, helper, end) if height % 2 else (start, end, helper)
    return [(pegs[(m & (m - 1)) % 3], pegs[((m | (m - 1)) + 1) % 3]) for m in range(1, 2**height)]


def _hanoi(rng: Random) -> tuple[Any, ...]:
    start, end = rng.sample((1, 2, 3), 2)
    return rng.choice((0, 1, 2, 3, 4, rng.randint(5, 9))), start, end


def possible_change(coins: list[int], total: int) -> int:
    """Multisets of `coins` that add up to `total`."""
    if total < 0:
        return 0
    ways = [1] + [0] * total
    for coin in coins:
        for amount in range(coin, total + 1):
            ways[amount] += ways[amount - coin]
    return ways[total]


def _possible_change(rng: Random) -> tuple[Any, ...]:
    coins = rng.sample((1, 2, 3, 4, 5, 7, 10), rng.randint(1, 4))
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice((coins, coins, [])), 0
    if kind == 1:
        return coins, -rng.randint(1, 9)
    if kind == 2:
        return [], rng.randint(1, 9)
    if kind == 3:
        return [coins[0]], coins[0] * rng.randint(1, 5) + rng.choice((0, 0, 1))
    return coins, rng.randint(1, 24)


def subsequences(a: int, b: int, k: int) -> list[list[int]]:
    """Ascending sequences of `k` integers from range(a, b), in lexicographic order."""
    return [list(chosen) for chosen in combinations(range(a, b), k)]


def _subsequences(rng: Random) -> tuple[Any, ...]:
    a, k = rng.randint(-6, 9), rng.randint(1, 4)
    span = rng.choice((k, k + 1, k + 2, rng.randint(1, 7), rng.randint(1, 7), rng.randint(-3, k - 1)))
    return a, a + span, k


def sqrt(x: float, epsilon: float) -> float:
    """The square root; an answer may be off by `epsilon`."""
    del epsilon
    return math.sqrt(x)


def near_root(args: tuple[Any, ...], value: Any) -> bool:
    """Whether `value` is a number at most epsilon away from the root (and a rounding error)."""
    x, epsilon = args
    return type(value) in (int, float) and abs(value - math.sqrt(x)) <= epsilon * (1 + 1e-9)


def _sqrt(rng: Random) -> tuple[Any, ...]:
    x = rng.choice((1, rng.randint(2, 99), rng.randint(1, 40) ** 2, rng.uniform(1, 9), rng.uniform(100, 9999)))
    return x, rng.choice((0.5, 0.3, 0.01, 0.001, 1e-6))


def to_base(num: int, b: int) -> str:
    """Digits of `num` in base `b`."""
    found = []
    while num:
        num, digit = divmod(num, b)
        found.append(_DIGITS[digit])
    return "".join(reversed(found))


def _to_base(rng: Random) -> tuple[Any, ...]:
    base = rng.choice((2, 3, 10, 16, 36, rng.randint(2, 9), rng.randint(11, 36)))
    power = base ** rng.randint(1, 6)
    return rng.choice((rng.randint(1, base - 1), power, power - 1, power + 1, rng.randint(1, 10**4), 7**25)), base


def max_sublist_sum(xs: list[int]) -> int:
    """Largest sum of a contiguous part; the empty part counts."""
    sums = reduce(lambda seen, x: [*seen, seen[-1] + x], xs, [0])
    return max(sums[j] - min(sums[: j + 1]) for j in range(len(sums)))


def _max_sublist_sum(rng: Random) -> tuple[Any, ...]:
    xs = [rng.randint(-9, 9) for _ in range(rng.randint(3, 9))]
    kind = rng.randrange(7)
    if kind == 0:
        return ([-abs(x) - 1 for x in xs],)
    if kind == 1:
        return ([abs(x) for x in xs],)
    if kind == 2:
        return (rng.choice(([], [xs[0]], [-7])),)
    if kind == 3:
        return ([rng.randint(-99, 99) for _ in range(rng.randint(20, 50))],)
    if kind == 4:
        return ([-rng.randint(1, 9), *xs, -rng.randint(1, 9)],)
    return (xs,)
