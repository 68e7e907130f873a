"""Trusted references: answers and fresh inputs of a problem that we know, pinned by digest."""

import marshal
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any, Protocol

from services.tasks import catalogue, values
from services.tasks.comparators import Outcome
from services.tasks.domain import Domain

Predicate = Callable[[tuple[Any, ...], Any], bool]
"""Says whether a returned value is a right answer for a call's arguments; named by its `__name__`."""


_RAISING_DRAWS = 64


class OracleMismatch(ValueError):
    """A check set was made with another reference or generator than this catalogue's."""


class ReferenceFault(RuntimeError):
    """The trusted reference did something it did not declare; the check set is wrong, not the candidate."""


class Known(Protocol):
    """A problem of the catalogue, or a program of the benchmark, with what an oracle needs of it."""

    @property
    def key(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def raises(self) -> tuple[str, ...]: ...

    @property
    def generate(self) -> Callable[[Random], tuple[Any, ...]]: ...

    @property
    def domain(self) -> Domain: ...

    @property
    def predicates(self) -> tuple[Predicate, ...]: ...

    def function(self) -> Callable[..., Any]: ...


class Oracle:
    """The reference and the input generator of one problem; runs in the trusted process only."""

    def __init__(self, problem: Known) -> None:
        self._problem = problem
        self._entry = problem.function()

    def generate(self, rng: Random) -> tuple[Any, ...]:
        """Fresh arguments inside the problem's precondition."""
        return self._problem.generate(rng)

    @property
    def domain(self) -> Domain:
        """What may be asked, in words and in strata."""
        return self._problem.domain

    def raising(self, rng: Random) -> tuple[Any, ...] | None:
        """Fresh arguments for which the call must raise; None where the contract has no such or none came up."""
        if self._problem.raises:
            for _ in range(_RAISING_DRAWS):
                args = self._problem.generate(rng)
                if self.answer(args).error is not None:
                    return args
        return None

    def answer(self, args: tuple[Any, ...]) -> Outcome:
        """What the reference does on a copy of `args`. Raises ReferenceFault for an exception it does not declare."""
        given = _copied(args)
        try:
            value = self._entry(*given)
        except Exception as error:
            names = values.exception_names(error)
            # What is wanted is what the contract says, not which kind of it this reference happens to raise.
            wanted = [name for name in self._problem.raises if values.catches(name, names)]
            if not wanted:
                raise ReferenceFault(f"{self._problem.key}: {names[0]} on {args!r}") from error
            exact = [name for name in wanted if name in names]
            return Outcome(error=(exact or wanted)[0], args_after=given)
        # A copy, because the answer of an in-place function is the argument itself; both, since they may share nodes.
        value, given = _copied((value, given))
        return Outcome(value=value, args_after=given)

    def predicate(self, name: str) -> Predicate:
        """The problem's predicate of that name. Raises ReferenceFault when there is none."""
        for function in self._problem.predicates:
            if function.__name__ == name:
                return function
        raise ReferenceFault(f"{self._problem.key} has no predicate {name!r}")


def _copied(of: tuple[Any, ...]) -> tuple[Any, ...]:
    """A deep copy in which who is who is kept; several times quicker where everything in it is plain."""
    try:
        copied: tuple[Any, ...] = marshal.loads(marshal.dumps(of))
        return copied
    except ValueError:  # linked nodes
        return deepcopy(of)


@cache
def oracle(key: str, digest: str) -> Oracle:
    """The oracle of a problem. Raises UnknownProblem, or OracleMismatch when `digest` is not this catalogue's."""
    problem = _known(key)
    if problem.digest != digest:
        raise OracleMismatch(
            f"check set of {key} pins {digest[:19]}…, this catalogue has {problem.digest[:19]}…: "
            "build the task set again"
        )
    return Oracle(problem)


@cache
def unpinned(key: str) -> Oracle:
    """The oracle of a problem as it stands here: for what is shown, never for a verdict. Raises UnknownProblem."""
    return Oracle(_known(key))


def _known(key: str) -> Known:
    from services.tasks.quixbugs.problems import problems

    return problems().get(key) or catalogue.problem(key)
