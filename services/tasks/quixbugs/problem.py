"""One program's contract: our own reference, fresh inputs inside its precondition, and how answers are compared."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from services.tasks import strata
from services.tasks.domain import UNSTATED, Domain
from services.tasks.fixture import content_digest
from services.tasks.quixbugs import draws

FAMILY = "quixbugs"


def _any(*args: Any) -> bool:
    return True


@dataclass(frozen=True)
class Problem:
    """A function of the benchmark as its definition states it.

    `reference` bears the program's name and answers positional arguments. `raises`: exceptions that are part of the
    contract for some inputs. `fits`: whether a case of the file is asked in each trial: inside the
    definition, and cheap enough for every right program (several of the benchmark's are exponential).
    """

    reference: Callable[..., Any]
    generate: Callable[[Random], tuple[Any, ...]]
    comparator: str = "exact"
    raises: tuple[str, ...] = ()
    fits: Callable[..., bool] = _any
    predicates: tuple[Callable[[tuple[Any, ...], Any], bool], ...] = ()
    domain: Domain = UNSTATED

    @property
    def entry(self) -> str:
        """The program's name."""
        return str(self.reference.__name__)

    @property
    def key(self) -> str:
        """The key `quixbugs/name`."""
        return f"{FAMILY}/{self.entry}"

    def function(self) -> Callable[..., Any]:
        """The reference."""
        return self.reference

    @cached_property
    def digest(self) -> str:
        """Content digest over everything that decides an answer or an input: the text of whole modules."""
        drawn = {inspect.getmodule(stratum.draw) or self.reference for stratum in self.domain.strata}
        return content_digest(
            {
                "module": inspect.getsource(inspect.getmodule(self.reference) or self.reference),
                "draws": inspect.getsource(draws),
                "strata": sorted(map(inspect.getsource, {strata, *drawn})),
                "entry": self.entry,
                "comparator": self.comparator,
                "raises": list(self.raises),
            }
        )
