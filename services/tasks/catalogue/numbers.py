"""Numbers: divisors, digits, powers and recurrences."""

from random import Random
from typing import Any

from services.tasks.catalogue.problem import define


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
    ),
)
