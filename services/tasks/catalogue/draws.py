"""Small random arguments that reach the boundaries often: empty, single, equal, first, last, absent."""

from random import Random


def length(rng: Random, least: int = 0, most: int = 6) -> int:
    """A length: `least` in a tenth of the draws, and beyond `most` in another tenth.

    Short lists suit a visible example; what holds for them only must be caught by longer ones.
    """
    chance = rng.random()
    if chance < 0.1:
        return least
    if chance > 0.9:
        return rng.randint(most, most + 3)
    return rng.randint(least + 1, most)


def ints(rng: Random, least: int = 0, most: int = 6, low: int = 0, high: int = 9) -> list[int]:
    """Integers in [low, high]; in one of four draws from a narrow range, so that equal ones meet."""
    if rng.random() < 0.25:
        high = min(high, low + 2)
    return [rng.randint(low, high) for _ in range(length(rng, least, most))]


def member(rng: Random, xs: list[int], share: float = 0.6, low: int = 0, high: int = 9) -> int:
    """An element of `xs` in `share` of the draws (the ends more often than the middle), else any number."""
    if xs and rng.random() < share:
        return rng.choice([xs[0], xs[-1], rng.choice(xs)])
    return rng.randint(low, high)


def word(rng: Random, least: int = 0, most: int = 6, letters: str = "abc") -> str:
    """A word over few letters, so that equal neighbours and repeats are common."""
    return "".join(rng.choice(letters) for _ in range(length(rng, least, most)))


def graph(rng: Random, least: int = 1, most: int = 5) -> list[list[int]]:
    """A directed graph as lists of neighbours; sparse, so that unreachable nodes are common."""
    size = rng.randint(least, most)
    return [sorted(rng.sample(range(size), min(size, rng.choice((0, 1, 1, 2))))) for _ in range(size)]
