"""One catalogue problem: reference source, input generator, comparator and the exceptions it may raise."""

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from services.tasks import strata
from services.tasks.catalogue import draws
from services.tasks.domain import UNSTATED, Domain
from services.tasks.fixture import content_digest

Generate = Callable[[Random], tuple[Any, ...]]


@dataclass(frozen=True)
class Problem:
    """A function that we know to be right, with fresh inputs inside its precondition.

    `source` is one function as `ast.unparse` prints it, so that a change of one expression is a change of one line.
    `generate` draws small arguments, for what a policy sees and for bugs; `domain` is all that it must answer.
    `raises` names the exceptions that are part of the contract for some inputs. `predicates` take the arguments and a
    returned value, for the comparator "predicate:NAME" of problems with more than one right answer.
    """

    family: str
    entry: str
    source: str
    generate: Generate
    comparator: str = "exact"
    raises: tuple[str, ...] = ()
    predicates: tuple[Callable[[tuple[Any, ...], Any], bool], ...] = ()
    domain: Domain = UNSTATED

    @property
    def key(self) -> str:
        """The key `family/entry`."""
        return f"{self.family}/{self.entry}"

    def function(self) -> Callable[..., Any]:
        """The reference, made from its source."""
        namespace: dict[str, Any] = {}
        exec(compile(self.source, f"<reference {self.key}>", "exec"), namespace)
        function: Callable[..., Any] = namespace[self.entry]
        return function

    @cached_property
    def digest(self) -> str:
        """Content digest over everything that decides an answer or an input; draws by the text of their modules."""
        drawn = (draws, strata, inspect.getmodule(self.generate))
        document = {
            "source": self.source,
            "draws": [inspect.getsource(module) for module in drawn if module is not None],
            "comparator": self.comparator,
            "raises": list(self.raises),
        }
        if self.predicates:
            document["predicates"] = [inspect.getsource(predicate) for predicate in self.predicates]
        return content_digest(document)


def define(
    family: str,
    source: str,
    generate: Generate,
    comparator: str = "exact",
    raises: tuple[str, ...] = (),
    domain: Domain = UNSTATED,
) -> Problem:
    """A problem from its source text; the entry is the function that the text defines, printed by `ast.unparse`."""
    tree = ast.parse(source)
    (function,) = tree.body
    if not isinstance(function, ast.FunctionDef):
        raise TypeError(f"{family}: a problem is one function")
    return Problem(family, function.name, ast.unparse(tree) + "\n", generate, comparator, raises, domain=domain)
