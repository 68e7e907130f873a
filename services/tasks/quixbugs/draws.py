"""Draws for the references' generators: every kind of boundary in at least an eighth of the draws.

A wrong program that fails on one such kind only survives a trial of n fresh inputs with probability (7/8)^n or less:
0.00056 at n = 56.
"""

from random import Random


def size(rng: Random, least: int = 0, most: int = 7) -> int:
    """A length: `least`, the next two, small, and far beyond `most`, each in a fifth or a sixth of the draws."""
    return rng.choice(
        (least, least + 1, least + 2, rng.randint(least + 3, most), rng.randint(least + 3, most), _large(rng, most))
    )


def _large(rng: Random, most: int) -> int:
    return rng.randint(3 * most, 8 * most)


def integers(rng: Random, least: int = 0, most: int = 7) -> list[int]:
    """Integers in no order, in order, in reverse; few distinct, negative, or of seven digits."""
    count = size(rng, least, most)
    low, high = rng.choice(((0, 3), (-9, 9), (-9, 9), (0, 99), (-(10**6), 10**6)))
    found = [rng.randint(low, high) for _ in range(count)]
    order = rng.randrange(6)
    return sorted(found) if order == 0 else sorted(found, reverse=True) if order == 1 else found


def distinct(rng: Random, least: int = 0, most: int = 7) -> list[int]:
    """Distinct integers, with negatives among them, in random order."""
    count = size(rng, least, most)
    low = rng.choice((0, 1, -count, -1000))
    return rng.sample(range(low, low + rng.choice((count, 2 * count + 1, 5000))), count)


def word(rng: Random, least: int, most: int, letters: str) -> str:
    """A word of `least` to `most` characters."""
    return "".join(rng.choice(letters) for _ in range(rng.randint(least, most)))


def pair_of_words(rng: Random, most: int) -> tuple[str, str]:
    """Two words that are empty, equal, contained, unlike, or share pieces; of at most `most` characters each."""
    letters = rng.choice(("ab", "ab", "abc", "xyZ1 "))
    one = word(rng, 1, most, letters)
    kind = rng.randrange(8)
    if kind == 0:
        pair = (one, "")
    elif kind == 1:
        pair = (one, one)
    elif kind == 2:
        first = rng.randrange(len(one))
        pair = (one, one[first : rng.randint(first, len(one))])
    elif kind == 3:
        pair = (one, word(rng, 1, most, "pq"))
    else:
        pair = (one, word(rng, 1, most, letters))
    return pair if rng.random() < 0.5 else (pair[1], pair[0])
