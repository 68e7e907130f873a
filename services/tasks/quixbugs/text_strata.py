"""Strata of the programs about texts and expressions."""

from collections.abc import Sequence
from random import Random
from typing import Any

from services.tasks.domain import Stratum
from services.tasks.strata import ASTRAL, DIGITS, LETTERS, MARKS, OTHERS, SMALL, other_than, signed, text, texts, words


def _good(pairs: int) -> str:
    return "(" * pairs + ")" * pairs


BRACKETS = (
    Stratum("a hundred deep", lambda rng: (_good(rng.randint(104, 150)),)),
    Stratum("side by side", lambda rng: ("()" * rng.randint(104, 150),)),
    Stratum("deep, one not closed", lambda rng: ("(" + _good(rng.randint(7, 60)),)),
    Stratum("deep, one not opened", lambda rng: (_good(rng.randint(7, 60)) + ")",)),
    Stratum("hundreds, one not closed", lambda rng: (_good(60) + "(" + _good(rng.randint(50, 90)),)),
    Stratum("hundreds, one not opened", lambda rng: (_good(rng.randint(50, 90)) + ")" + _good(60),)),
    Stratum("closed before opened", lambda rng: (_good(rng.randint(1, 30)) + ")(" + _good(rng.randint(1, 30)),), 2),
    Stratum("turned round", lambda rng: (")" * (n := rng.randint(1, 60)) + "(" * n,)),
)


def _common(rng: Random, s: str, alphabet: Sequence[str]) -> tuple[Any, ...]:
    """Two texts of at most 60 characters with a piece of the given one in both."""
    piece = s[: rng.randint(0, 30)]
    return tuple(
        text(rng, rng.randint(0, 15), alphabet) + piece + text(rng, rng.randint(0, 15), alphabet) for _ in "ab"
    )


PIECES = (
    *texts(_common),
    Stratum("a long piece", lambda rng: ("ab" + (p := text(rng, 50, LETTERS)) + "cd", "x" + p)),
    Stratum(
        "a late piece",
        lambda rng: (text(rng, 24, "xyz") + (p := text(rng, 14, LETTERS)) + "1", text(rng, 22, "uvw") + p),
        2,
    ),
    Stratum("only case differs", lambda rng: ("WordWord", rng.choice(("wordword", "WORDWORD", "wORDwORD")))),
)


def _short_pair(rng: Random, alphabet: Sequence[str], most: int) -> tuple[str, str]:
    """Two short texts that share some of their characters."""
    few = rng.sample(list(alphabet), min(len(alphabet), 4))
    return text(rng, rng.randint(1, most), few), text(rng, rng.randint(1, most), few)


def short_pairs(most: int) -> tuple[Stratum, ...]:
    return (
        Stratum("letters", lambda rng: _short_pair(rng, LETTERS, most), 2),
        Stratum("digits", lambda rng: _short_pair(rng, DIGITS, most), 2),
        Stratum("marks", lambda rng: _short_pair(rng, MARKS, most), 2),
        Stratum("other scripts", lambda rng: _short_pair(rng, OTHERS, most), 2),
        Stratum("beyond 16 bits", lambda rng: _short_pair(rng, ASTRAL, most), 2),
        Stratum("nothing and hundreds", lambda rng: ("", text(rng, rng.randint(260, 300), LETTERS))),
        Stratum("hundreds and nothing", lambda rng: (text(rng, rng.randint(260, 300), LETTERS), "")),
        Stratum("blanks", lambda rng: (text(rng, 5, "ab  "), text(rng, 5, "ab  ")), 3),
        Stratum("six letters each", lambda rng: (text(rng, 6, "abcd"), text(rng, 6, "abcd")), 2),
        Stratum("one character of five", lambda rng: ("abcde", other_than(rng, "x", "abcdexyz"))),
        Stratum("only case differs", lambda rng: ("aBcA", rng.choice(("AbCa", "abca", "ABCA")))),
    )


def _wrapped(rng: Random, s: str, alphabet: Sequence[str]) -> tuple[Any, ...]:
    """Words of one to seven characters of the alphabet, up to 300 characters, and nine columns or more."""
    kept = [char for char in s if char != " "]
    pieces = ["".join(kept[at : at + rng.randint(1, 7)]) for at in range(0, len(kept), 7)]
    return " ".join(pieces), rng.choice((9, 10, 13, 17, 40, 80, 300))


WRAPPED = (
    *texts(_wrapped),
    Stratum("one word of hundreds", lambda rng: (text(rng, rng.randint(260, 300), LETTERS), rng.randint(3, 99))),
    Stratum("sentences", lambda rng: (words(rng).replace("  ", " "), rng.randint(9, 30)), 2),
    Stratum(
        "tens of lines",
        lambda rng: (" ".join(text(rng, rng.randint(1, 4), SMALL) for _ in range(50)), rng.randint(5, 7)),
    ),
    Stratum("a hundred lines", lambda rng: (" ".join(text(rng, 2, SMALL) for _ in range(rng.randint(90, 105))), 3)),
    Stratum("more than a hundred lines", lambda rng: (" ".join(text(rng, rng.randint(120, 150), LETTERS)), 2), 2),
    Stratum(
        "many blanks in a line", lambda rng: (" ".join(text(rng, 2, SMALL) for _ in range(90)), rng.randint(40, 80))
    ),
    Stratum(
        "hundreds of columns", lambda rng: (" ".join(text(rng, 2, SMALL) for _ in range(106)), rng.randint(258, 300))
    ),
    Stratum("wider than the text", lambda rng: (words(rng), rng.randint(300, 999))),
    Stratum("far wider than the text", lambda rng: (words(rng), rng.randint(70_000, 10**6)), 3),
)


def _chained(rng: Random, count: int, operators: str) -> list[Any]:
    out: list[Any] = [float(rng.randint(1, 99))]
    for _ in range(count):
        out += [float(rng.randint(1, 99)), rng.choice(operators)]
    return out


POSTFIX = (
    Stratum("a chain of tens", lambda rng: (_chained(rng, rng.randint(12, 40), "+-"),)),
    Stratum("a chain of a hundred", lambda rng: (_chained(rng, rng.randint(104, 130), "+-"),)),
    Stratum("all waiting", lambda rng: ([*map(float, signed(rng, n := rng.randint(12, 110))), *"+" * (n - 1)],)),
    Stratum("products and quotients", lambda rng: (_chained(rng, rng.randint(3, 9), "*/"),), 2),
    Stratum("divided by a zero that was worked out", lambda rng: ([9.0, x := float(rng.randint(1, 9)), x, "-", "/"],)),
    Stratum("large", lambda rng: ([rng.uniform(1e15, 1e18), rng.uniform(1e15, 1e18), rng.choice("+*")],)),
    Stratum("zeros", lambda rng: ([0.0, x := float(rng.randint(1, 99)), rng.choice("+-*/"), x, "-"],), 2),
    Stratum("negative", lambda rng: ([-float(rng.randint(1, 99)), -float(rng.randint(1, 99)), rng.choice("+-*/")],), 2),
)


def _infix(rng: Random, count: int, operators: str, high: int = 60) -> tuple[Any, ...]:
    out: list[Any] = [rng.randint(-9, high)]
    for _ in range(count):
        out += [rng.choice(operators), rng.randint(-9, high)]
    return (out,)


INFIX = (
    Stratum("tens", lambda rng: _infix(rng, rng.randint(12, 40), "+-*/"), 2),
    Stratum("a hundred", lambda rng: _infix(rng, rng.randint(104, 120), "+-*/")),
    Stratum("of one rank", lambda rng: _infix(rng, rng.randint(5, 30), rng.choice(("+-", "*/"))), 2),
    Stratum("beyond 2^53", lambda rng: _infix(rng, rng.randint(3, 9), "+-*/", 10**18)),
)
