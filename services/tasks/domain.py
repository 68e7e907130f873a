"""The domain of a problem: what its arguments may be, in words for people, and in strata for the checks."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any


@dataclass(frozen=True)
class Stratum:
    """One kind of arguments inside the precondition ("empty", "hundreds", "beyond 2^53", "reversed").

    Every check run asks `draws` fresh ones of it, so that a program that is wrong on this kind meets it every time.
    """

    name: str
    draw: Callable[[Random], tuple[Any, ...]]
    draws: int = 1


@dataclass(frozen=True)
class Domain:
    """What a caller may pass and what the answer is: `statement` in plain words with types, ranges and what must raise.

    The statement is public; the strata are what the hidden checks draw, all of them inside the statement.
    """

    statement: str
    strata: tuple[Stratum, ...]

    def inputs(self, rng: Random) -> list[tuple[Any, ...]]:
        """Fresh arguments of every stratum, as many of each as it declares."""
        return [stratum.draw(rng) for stratum in self.strata for _ in range(stratum.draws)]


UNSTATED = Domain("", ())
"""For problems that are asked what their own draws give."""
