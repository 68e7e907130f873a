"""Numbers: divisors, digits, powers and recurrences."""

import math
from random import Random
from typing import Any

from services.tasks.catalogue.problem import define
from services.tasks.domain import Domain, Stratum


def _two_numbers(rng: Random) -> tuple[Any, ...]:
    d = rng.choice((1, 1, 2, 3))
    return d * rng.randint(0, 9), d * rng.randint(0, 9)


def _digits(rng: Random) -> tuple[Any, ...]:
    return (rng.choice((0, rng.randint(1, 9), rng.randint(10, 99), rng.randint(100, 999))),)


def _small(rng: Random) -> tuple[Any, ...]:
    return (rng.randint(0, 30),)


def _number_and_base(rng: Random) -> tuple[Any, ...]:
    return rng.choice((0, rng.randint(1, 9), rng.randint(10, 99))), rng.randint(2, 9)


def _count(rng: Random) -> tuple[Any, ...]:
    return (rng.randint(0, 12),)


def _sized(rng: Random, digits: int) -> int:
    """An int of so many digits."""
    return rng.randint(10 ** (digits - 1), 10**digits - 1)


def _with_divisor(rng: Random, shared: int, least: int, most: int) -> tuple[Any, ...]:
    """Two multiples of one number, in either order."""
    return shared * rng.randint(least, most), shared * rng.randint(least, most)


def _late_euclid(rng: Random) -> tuple[Any, ...]:
    """Neighbours of a Fibonacci-like sequence, multiplied: no two numbers of their size take Euclid more rounds."""
    a, b, shared = rng.randint(1, 9), rng.randint(1, 9), rng.randint(1, 9)
    for _ in range(rng.randint(101, 140)):
        a, b = b, a + b
    return rng.choice(((a * shared, b * shared), (b * shared, a * shared)))


_PAIRS = (
    Stratum("two zeros", lambda rng: (0, 0)),
    Stratum("zero and one", lambda rng: rng.choice(((0, 1), (1, 0), (1, 1)))),
    Stratum("the second is zero", lambda rng: (rng.randint(2, 10**6), 0)),
    Stratum("the first is zero", lambda rng: (0, rng.randint(2, 10**6))),
    Stratum("equal", lambda rng: (n := _sized(rng, rng.randint(1, 20)), n)),
    Stratum("a multiple", lambda rng: (n := rng.randint(2, 999), n * rng.randint(2, 999))),
    Stratum("a divisor", lambda rng: ((n := rng.randint(2, 999)) * rng.randint(2, 999), n)),
    Stratum("two digits", lambda rng: _with_divisor(rng, rng.randint(2, 9), 2, 11), 3),
    Stratum("a large divisor", lambda rng: _with_divisor(rng, rng.randint(100, 9999), 2, 99), 2),
    Stratum("powers", lambda rng: (2 ** rng.randint(5, 90), 6 ** rng.randint(5, 30))),
    Stratum("no common divisor", lambda rng: (n := _sized(rng, rng.randint(3, 9)), n + 1)),
    Stratum("six digits", lambda rng: (rng.randint(10**5, 10**6), rng.randint(10**5, 10**6))),
    Stratum("around 2^31", lambda rng: _with_divisor(rng, rng.randint(2**16, 2**17), 2**15, 2**16)),
    Stratum("beyond 2^53", lambda rng: _with_divisor(rng, 10**18 + rng.randint(1, 99), 2, 10**4), 2),
    Stratum("thirty digits", lambda rng: _with_divisor(rng, _sized(rng, 12), 10**17, 10**18), 2),
    Stratum("many rounds", _late_euclid),
)

_SUMMED = (
    Stratum("zero", lambda rng: (0,)),
    Stratum("one digit", lambda rng: (rng.randint(1, 9),)),
    Stratum("two digits", lambda rng: (rng.randint(10, 99),)),
    Stratum("three digits", lambda rng: (rng.randint(100, 999),)),
    Stratum("four digits", lambda rng: (rng.randint(1000, 9999),), 2),
    Stratum("five to twelve digits", lambda rng: (_sized(rng, rng.randint(5, 12)),), 3),
    Stratum("tens of digits", lambda rng: (_sized(rng, rng.randint(17, 60)),), 2),
    Stratum("a hundred digits", lambda rng: (_sized(rng, rng.randint(101, 130)),)),
    Stratum("hundreds of digits", lambda rng: (_sized(rng, rng.randint(260, 300)),)),
    Stratum("zeros at the end", lambda rng: (rng.randint(1, 99) * 10 ** rng.randint(1, 40),)),
    Stratum("zeros inside", lambda rng: (rng.randint(1, 99) * 10 ** rng.randint(3, 40) + rng.randint(1, 9),)),
    Stratum("nines", lambda rng: (10 ** rng.randint(1, 30) - 1,)),
    Stratum("around 2^31", lambda rng: (2**31 + rng.randint(-2, 2),)),
    Stratum("beyond 2^53", lambda rng: (10**17 + rng.randint(1, 10**17) * 2 + 1,), 2),
)


def _prime(least: int, most: int, rng: Random) -> int:
    """A prime of the range, which holds one."""
    while True:
        n = rng.randint(least, most)
        if n > 1 and all(n % i for i in range(2, int(n**0.5) + 1)):
            return n


_PSEUDOPRIMES = (341, 561, 645, 1105, 1387, 1729, 2047, 2465, 2821, 3277, 4033, 4681, 6601, 8321, 15841, 29341)
"""Composite numbers that Fermat's test (to base 2, or to every base) or Miller's to base 2 takes for primes."""

_TESTED = (
    Stratum("zero", lambda rng: (0,)),
    Stratum("one", lambda rng: (1,)),
    Stratum("two to ten", lambda rng: (rng.randint(2, 10),), 2),
    Stratum("primes to thirty", lambda rng: (_prime(2, 30, rng),)),
    Stratum("primes above thirty", lambda rng: (_prime(31, 99, rng),), 2),
    Stratum("primes of three digits", lambda rng: (_prime(100, 999, rng),), 2),
    Stratum("primes of four digits", lambda rng: (_prime(1000, 9999, rng),)),
    Stratum("primes of five digits", lambda rng: (_prime(33000, 40000, rng),)),
    Stratum("to a hundred", lambda rng: (rng.randint(31, 100),), 2),
    Stratum("to forty thousand", lambda rng: (rng.randint(1000, 40000),)),
    Stratum("squares of small primes", lambda rng: (_prime(2, 13, rng) ** 2,)),
    Stratum("squares of primes", lambda rng: (_prime(17, 199, rng) ** 2,)),
    Stratum("two primes of two digits", lambda rng: (_prime(37, 99, rng) * _prime(37, 99, rng),), 2),
    Stratum("two primes of three digits", lambda rng: (_prime(101, 199, rng) * _prime(101, 199, rng),), 2),
    Stratum("three primes", lambda rng: (_prime(11, 31, rng) * _prime(11, 31, rng) * _prime(11, 31, rng),)),
    Stratum("twice a prime", lambda rng: (2 * _prime(50, 20000, rng),)),
    Stratum("odd, with a small divisor", lambda rng: (rng.choice((3, 5, 7)) * (2 * rng.randint(20, 3000) + 1),)),
    Stratum("taken for primes by some tests", lambda rng: (rng.choice(_PSEUDOPRIMES),), 3),
)


def _power(rng: Random, below: bool) -> tuple[Any, ...]:
    """A power of a base that floats take for less than it is, or one below a power that they take for the power."""
    while True:
        b, k = rng.randint(2, 12), rng.randint(3, 40)
        n = b**k - (not below)
        if (math.log(n) / math.log(b) < k) == below:
            return n, b


_BASED = (
    Stratum("zero", lambda rng: (0, rng.randint(2, 40))),
    Stratum("below the base", lambda rng: (rng.randint(1, (b := rng.randint(3, 99)) - 1), b)),
    Stratum("the base itself", lambda rng: (b := rng.randint(2, 99), b)),
    Stratum("two digits", lambda rng: (rng.randint(b := rng.randint(2, 9), b * b - 1), b), 2),
    Stratum("three to seven digits", lambda rng: _digits_in(rng, rng.randint(2, 9), rng.randint(3, 7)), 2),
    Stratum("eight to twelve digits", lambda rng: _digits_in(rng, rng.randint(2, 9), rng.randint(8, 12)), 2),
    Stratum("tens of digits", lambda rng: _digits_in(rng, rng.randint(2, 9), rng.randint(17, 60))),
    Stratum("above a hundred digits", lambda rng: _digits_in(rng, rng.randint(2, 9), rng.randint(104, 130))),
    Stratum("hundreds of digits", lambda rng: _digits_in(rng, rng.randint(2, 9), rng.randint(260, 300))),
    Stratum("base two", lambda rng: (rng.randint(128, 10**6), 2)),
    Stratum("base ten", lambda rng: (_sized(rng, rng.randint(2, 30)), 10)),
    Stratum("bases of two digits", lambda rng: _digits_in(rng, rng.randint(11, 36), rng.randint(2, 9)), 2),
    Stratum("bases above 36", lambda rng: _digits_in(rng, rng.randint(37, 1000), rng.randint(2, 9)), 2),
    Stratum("a base beyond 2^16", lambda rng: _digits_in(rng, rng.randint(70_000, 10**6), rng.randint(2, 5))),
    Stratum("a base beyond 2^31", lambda rng: _digits_in(rng, rng.randint(10**10, 10**12), rng.randint(2, 5))),
    Stratum("powers of the base", lambda rng: ((b := rng.randint(2, 12)) ** rng.randint(3, 40), b), 2),
    Stratum("one below a power", lambda rng: ((b := rng.randint(2, 12)) ** rng.randint(3, 40) - 1, b), 2),
    Stratum("powers whose logarithm is low", lambda rng: _power(rng, below=True), 2),
    Stratum("one below powers whose logarithm is not", lambda rng: _power(rng, below=False), 2),
    Stratum("zeros inside", lambda rng: ((b := rng.randint(2, 12)) ** rng.randint(5, 40) + 1, b)),
    Stratum("around 2^31", lambda rng: (2**31 + rng.randint(-1, 1), rng.randint(2, 16))),
    Stratum("beyond 2^53", lambda rng: (10**18 + rng.randint(1, 10**6), rng.randint(2, 16)), 2),
)


def _digits_in(rng: Random, base: int, count: int) -> tuple[Any, ...]:
    """An int of so many digits in a base, and the base."""
    return rng.randint(base ** (count - 1), base**count - 1), base


_COUNTED = (
    Stratum("zero", lambda rng: (0,)),
    Stratum("one", lambda rng: (1,)),
    Stratum("two", lambda rng: (2,)),
    Stratum("three to twelve", lambda rng: (rng.randint(3, 12),), 3),
    Stratum("thirteen to twenty-five", lambda rng: (rng.randint(13, 25),), 2),
    Stratum("to 46, below 2^31", lambda rng: (rng.randint(26, 46),), 2),
    Stratum("47 to 70, beyond 2^31", lambda rng: (rng.randint(47, 70),), 2),
    Stratum("79 to 99, beyond 2^53", lambda rng: (rng.randint(79, 99),), 2),
    Stratum("above a hundred", lambda rng: (rng.randint(101, 140),), 2),
    Stratum("hundreds", lambda rng: (rng.randint(260, 300),)),
)

PROBLEMS = (
    define(
        "numbers",
        """
def gcd(a, b):
    while b > 0:
        a, b = b, a % b
    return a
""",
        _two_numbers,
        domain=Domain(
            "a, b: ints from 0 to 10^31. The answer is their greatest common divisor; that of 0 and n is n, of 0 and "
            "0 it is 0.",
            _PAIRS,
        ),
    ),
    define(
        "numbers",
        """
def digit_sum(n):
    t = 0
    while n > 0:
        t += n % 10
        n //= 10
    return t
""",
        _digits,
        domain=Domain(
            "n: an int from 0 up, of at most 300 decimal digits. The answer is the sum of its digits.",
            _SUMMED,
        ),
    ),
    define(
        "numbers",
        """
def is_prime(n):
    i = 2
    while i * i <= n:
        if n % i == 0:
            return False
        i += 1
    return n > 1
""",
        _small,
        domain=Domain(
            "n: an int from 0 to 40000. The answer is whether n is a prime number; 0 and 1 are none.",
            _TESTED,
        ),
    ),
    define(
        "numbers",
        """
def to_base(n, b):
    out = []
    while n >= b:
        out.append(n % b)
        n //= b
    out.append(n)
    return out[::-1]
""",
        _number_and_base,
        domain=Domain(
            "n: an int from 0 up, of at most 300 digits in base b; b: an int from 2 to 10^12. The answer is the list "
            "of the digits of n in base b, as ints from 0 to b - 1, the highest first and not 0, but for [0] where n "
            "is 0.",
            _BASED,
        ),
    ),
    define(
        "numbers",
        """
def fib(n):
    a = 0
    b = 1
    for i in range(n):
        a, b = b, a + b
    return a
""",
        _count,
        domain=Domain(
            "n: an int from 0 to 300. The answer is the Fibonacci number with the index n, exactly: 0 for 0, 1 for 1, "
            "and the sum of the two before from there on.",
            _COUNTED,
        ),
    ),
)
