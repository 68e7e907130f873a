"""Strings: scanning, counting and rewriting short words."""

from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define


def _word(rng: Random) -> tuple[Any, ...]:
    return (draws.word(rng),)


def _nearly_palindrome(rng: Random) -> tuple[Any, ...]:
    half = draws.word(rng, 0, 2)
    s = half + rng.choice(("", "a", "b")) + half[::-1]
    if s and rng.random() < 0.7:
        i = rng.randrange(len(s))
        s = s[:i] + rng.choice("abc") + s[i + 1 :]
    return (s,)


def _word_and_part(rng: Random) -> tuple[Any, ...]:
    return draws.word(rng, 0, 6, "ab"), draws.word(rng, 1, 3, "ab")[:2]


def _two_words(rng: Random) -> tuple[Any, ...]:
    stem = draws.word(rng, 0, 4)
    return stem + draws.word(rng, 0, 2), stem + draws.word(rng, 0, 2)


def _word_and_shift(rng: Random) -> tuple[Any, ...]:
    return draws.word(rng, 0, 4, "abcmxyz"), rng.randint(0, 9)


PROBLEMS = (
    define(
        "strings",
        """
def is_palindrome(s):
    i = 0
    j = len(s) - 1
    while i < j:
        if s[i] != s[j]:
            return False
        i += 1
        j -= 1
    return True
""",
        _nearly_palindrome,
    ),
    define(
        "strings",
        """
def count_part(s, p):
    n = 0
    for i in range(len(s) - len(p) + 1):
        if s[i:i + len(p)] == p:
            n += 1
    return n
""",
        _word_and_part,
    ),
    define(
        "strings",
        """
def common_prefix(s, p):
    i = 0
    while i < len(s) and i < len(p) and s[i] == p[i]:
        i += 1
    return s[:i]
""",
        _two_words,
    ),
    define(
        "strings",
        """
def squeeze(s):
    out = s[:1]
    for c in s[1:]:
        if c != out[-1]:
            out += c
    return out
""",
        _word,
    ),
    define(
        "strings",
        """
def shift(s, n):
    out = ''
    for c in s:
        out += chr((ord(c) - 97 + n) % 26 + 97)
    return out
""",
        _word_and_shift,
    ),
)
