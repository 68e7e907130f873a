"""Draws for strata: ints of every size, sign and number of digits, lists in every order, texts of every alphabet.

Each draw is made so that a program that is wrong on its kind is wrong on nearly every draw, not now and then.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from typing import Any

from services.tasks.domain import Stratum

MOST = 320
"""Items of the longest lists and texts: recursion with up to three frames for each is within Python's limit."""
_BASES = (2**60, 10**18, 2**63, 10**20, 10**30)

Shape = Callable[[Random, list[int]], tuple[Any, ...]]
"""Makes a problem's arguments of a list of ints, which it may change."""


def signed(rng: Random, count: int) -> list[int]:
    """Ints from -99 to 99."""
    return rng.choices(range(-99, 100), k=count)


def permutation(rng: Random, count: int) -> list[int]:
    """The ints of range(count) in random order; several times quicker than to sample them."""
    return sorted(range(count), key=lambda _: rng.random())


def ascending(rng: Random, count: int) -> list[int]:
    """Distinct ints from about -9000 to 9000, in order."""
    return list(accumulate(rng.choices(range(1, 18000 // count), k=count), initial=rng.randint(-9000, -8000)))[1:]


def lengths(rng: Random, count: int) -> list[int]:
    """Ints of one to six digits of both signs, 9 and 10 among them: as texts they stand in another order."""
    signs = rng.choices((-1, 1), k=count - 2)
    found = [sign * (10 ** (k % 6) + int(rng.random() * 9 * 10 ** (k % 6))) for k, sign in enumerate(signs)]
    found += (9, 10)
    rng.shuffle(found)
    return found


def alike(rng: Random, count: int, bits: int = 0) -> list[int]:
    """Distinct ints around 0 and far beyond 2^31 and 2^63 that are one and the same modulo 2^32 or modulo 2^64."""
    low, step = rng.randint(-99, 99), 2 ** (bits or rng.choice((32, 64)))
    return [low + step * k for k in rng.sample(range(-count, count), count - 1) if k] + [low]


def last_digits_alike(rng: Random, count: int) -> list[int]:
    """Distinct ints of one sign that end in the same six digits."""
    low, step = rng.randint(0, 9), rng.choice((-1, 1)) * 10**6
    return [low * (1 if step > 0 else -1) + step * k for k in rng.sample(range(2 * count), count)]


def another(x: int) -> int:
    """An equal int that is another object (where Python keeps no single one): `is` does not find it."""
    return x + 1 - 1


def neighbours(rng: Random, count: int, sign: int = 0) -> list[int]:
    """Distinct ints so close to each other and so large that floats cannot tell them apart."""
    base = (sign or rng.choice((-1, 1))) * rng.choice(_BASES)
    return [base + offset for offset in rng.sample(range(2 * count), count)]


def far_below(rng: Random, count: int) -> list[int]:
    """Ints below anything that a program could take for minus infinity."""
    return [-(10**20) - rng.randint(0, 10**20) for _ in range(count)]


def few(rng: Random, count: int) -> list[int]:
    """Three different values again and again."""
    values = (rng.randint(-200, -1), rng.randint(0, 99), rng.randint(100, 9999))
    return rng.choices(values, k=count)


def any_int(rng: Random) -> int:
    """One int of any sign and size."""
    return rng.choice((0, rng.randint(-9, 9), rng.randint(-999, 999), rng.choice(neighbours(rng, 4))))


ORDERS: dict[str, Callable[[list[int]], list[int]]] = {
    "in order": lambda xs: xs,
    "in reverse": lambda xs: xs[::-1],
    "all equal": lambda xs: xs[:1] * len(xs),
    "organ pipe": lambda xs: xs[::2] + xs[1::2][::-1],
    "alternating": lambda xs: [x for pair in zip(xs, xs[::-1], strict=True) for x in pair][: len(xs)],
}
"""Orders that some algorithms are bad at, each made from an ascending list."""


def lists(shape: Shape, least: int = 0, most: int = MOST, without: tuple[str, ...] = ()) -> tuple[Stratum, ...]:
    """The strata that every list of ints has, from the empty one to `most` items, but for those named in `without`."""
    sizes: dict[str, Callable[[Random], list[int]]] = {
        "one": lambda rng: [any_int(rng)],
        "two or three": lambda rng: signed(rng, rng.randint(2, 3)),
        "tens": lambda rng: signed(rng, rng.randint(12, 48)),
        "above a hundred": lambda rng: signed(rng, rng.randint(104, 120)),
        "hundreds": lambda rng: lengths(rng, rng.randint(most - most // 9, most)),
        "few values": lambda rng: few(rng, rng.randint(20, 40)),
        "one to six digits": lambda rng: lengths(rng, rng.randint(9, 15)),
        "alike modulo 2^32": lambda rng: alike(rng, rng.randint(8, 16), 32),
        "alike modulo 2^64": lambda rng: alike(rng, rng.randint(8, 16), 64),
        "alike in their last digits": lambda rng: last_digits_alike(rng, rng.randint(8, 16)),
        "beyond 2^53": lambda rng: neighbours(rng, rng.randint(9, 17)),
        "far below zero": lambda rng: far_below(rng, rng.randint(3, 9)),
    }
    if least == 0:
        sizes = {"empty": lambda rng: [], **sizes}
    return (
        *(Stratum(name, _shaped(shape, draw)) for name, draw in sizes.items() if name not in without),
        *(Stratum(name, _shaped(shape, _ordered(arrange))) for name, arrange in ORDERS.items()),
    )


def _shaped(shape: Shape, draw: Callable[[Random], list[int]]) -> Callable[[Random], tuple[Any, ...]]:
    return lambda rng: shape(rng, draw(rng))


def _ordered(arrange: Callable[[list[int]], list[int]]) -> Callable[[Random], list[int]]:
    return lambda rng: arrange(sorted(signed(rng, rng.randint(20, 40))))


SMALL = "abc"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = "0123456789"
MARKS = " .,;:!?*+-_/\\|()[]{}^$&#%'\"<>=~"
OTHERS = "äößéñçøšžλΩДжяאبนक日本語한글ſİı"
ASTRAL = "😀🐍𝔘𐍈é\u0301\u200d"
EVERY = LETTERS + DIGITS + MARKS + OTHERS + ASTRAL
"""No line breaks: what separates lines is no character of these problems' texts."""


def text(rng: Random, count: int, alphabet: Sequence[str] = SMALL) -> str:
    """`count` characters of an alphabet."""
    return "".join(rng.choices(alphabet, k=count))


def words(rng: Random) -> str:
    """Words of both cases and numbers with blanks between, two of them side by side here and there."""
    found = [
        text(rng, rng.randint(1, 4), part) for part in rng.choices((LETTERS, "abc", "ABC", DIGITS), k=rng.randint(4, 8))
    ]
    return " ".join([*found, "Aa", "11", "", text(rng, 2, LETTERS)])


def other_than(rng: Random, char: str, alphabet: Sequence[str]) -> str:
    """A character of the alphabet that is not `char`."""
    return rng.choice([one for one in alphabet if one != char])


Spell = Callable[[Random, str, Sequence[str]], tuple[Any, ...]]
"""Makes a problem's arguments of a text and the alphabet that it is of."""


def texts(spell: Spell) -> tuple[Stratum, ...]:
    """The strata that every text has, from the empty one to `MOST` characters."""
    sizes: dict[str, tuple[int, int, Sequence[str]]] = {
        "empty": (0, 0, SMALL),
        "one": (1, 1, LETTERS),
        "two or three": (2, 3, SMALL),
        "tens": (12, 48, SMALL),
        "above a hundred": (104, 130, "xy"),
        "hundreds": (MOST - 60, MOST, SMALL),
        "hundreds of many letters": (MOST - 60, MOST, LETTERS),
        "letters": (6, 20, LETTERS),
        "digits": (6, 20, DIGITS),
        "marks": (8, 30, MARKS),
        "other scripts": (6, 20, OTHERS),
        "beyond 16 bits": (5, 12, ASTRAL),
        "all mixed": (20, 40, EVERY),
    }
    return (
        *(Stratum(name, _spelt(spell, *size)) for name, size in sizes.items()),
        Stratum("words", lambda rng: spell(rng, words(rng), EVERY)),
    )


def _spelt(spell: Spell, least: int, most: int, alphabet: Sequence[str]) -> Callable[[Random], tuple[Any, ...]]:
    return lambda rng: spell(rng, text(rng, rng.randint(least, most), alphabet), alphabet)


TEXT = f"up to {MOST} characters of any script (letters, digits, blanks, marks; no line breaks), each taken as it is"
INTS = "ints of either sign with up to 31 digits"
