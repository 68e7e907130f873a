"""Draws for the references' generators: every kind of boundary in about a tenth of the draws or more.

A wrong program that fails on one such kind only survives a trial of n fresh inputs with probability (9/10)^n or less:
0.0005 at n = 72.
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
    """Two words of at most `most` characters: empty, equal, contained, unlike, edited, or made of the same letters."""
    letters = rng.choice(("ab", "abc", "abc", "xyZ1 "))
    one, other = word(rng, 1, most, letters), word(rng, (most + 1) // 2, most, letters)
    kind = rng.randrange(9)
    if kind == 0:
        return rng.choice((one, one, "")), ""
    if kind == 1:
        return "", one
    if kind == 2:
        return one, rng.choice((one, one[::-1]))
    if kind == 3:
        first = rng.randrange(len(one))
        return one, one[first : rng.randint(first, len(one))]
    if kind == 4:
        return one, word(rng, 1, most, "pq")
    if kind == 5:
        return _edited(rng, one, letters, most)
    return word(rng, (most + 1) // 2, most, letters), other


def _edited(rng: Random, one: str, letters: str, most: int) -> tuple[str, str]:
    place = rng.randrange(len(one))
    longer = (one[:place] + rng.choice(letters) + one[place:])[:most]
    return (one, longer) if rng.random() < 0.5 else (longer, one)
