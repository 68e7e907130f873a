"""Parsing (a held-out family): from text to numbers, fields and truth."""

from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define


def _brackets(rng: Random) -> tuple[Any, ...]:
    if rng.random() < 0.5:
        return (draws.word(rng, 0, 6, "()"),)
    s = ""
    for _ in range(rng.randint(0, 3)):
        s = rng.choice(("(" + s + ")", s + "()", "()" + s))
    return (s,)


def _number_text(rng: Random) -> tuple[Any, ...]:
    s = rng.choice(("", "-")) + str(rng.choice((0, rng.randint(1, 9), rng.randint(10, 99))))
    return (s + "x" if rng.random() < 0.15 else s,)


def _fields(rng: Random) -> tuple[Any, ...]:
    return draws.word(rng, 0, 6, "ab,"), ","


def _sum_text(rng: Random) -> tuple[Any, ...]:
    s = str(rng.randint(0, 9))
    for _ in range(rng.randint(0, 3)):
        s += rng.choice("+-") + str(rng.randint(0, 9))
    return (s,)


PROBLEMS = (
    define(
        "parsing",
        """
def balanced(s):
    n = 0
    for c in s:
        n += 1 if c == '(' else -1
        if n < 0:
            return False
    return n == 0
""",
        _brackets,
    ),
    define(
        "parsing",
        """
def read_int(s):
    n = 0
    for c in s.lstrip('-'):
        if not c.isdigit():
            raise ValueError(s)
        n = n * 10 + int(c)
    return -n if s[0] == '-' else n
""",
        _number_text,
        raises=("ValueError",),
    ),
    define(
        "parsing",
        """
def fields(s, p):
    out = ['']
    for c in s:
        if c == p:
            out.append('')
        else:
            out[-1] += c
    return out
""",
        _fields,
    ),
    define(
        "parsing",
        """
def read_sum(s):
    t = int(s[0])
    for i in range(1, len(s), 2):
        x = int(s[i + 1])
        t += x if s[i] == '+' else -x
    return t
""",
        _sum_text,
    ),
)
