"""The shipped catalogue: small functions by family, written for this project, each with its inputs and comparator."""

from functools import lru_cache

from services.tasks.catalogue import dynamic, graphs, numbers, parsing, searching, sorting, strings
from services.tasks.catalogue.problem import Problem

TRAIN_FAMILIES = ("searching", "sorting", "strings", "numbers", "graphs")
HELD_OUT_FAMILIES = ("parsing", "dynamic")


class UnknownProblem(KeyError):
    """No problem of the catalogue has this key."""


@lru_cache(maxsize=1)
def problems() -> dict[str, Problem]:
    """Every problem by key, families in order, problems in the order of their module."""
    modules = (searching, sorting, strings, numbers, graphs, parsing, dynamic)
    return {problem.key: problem for module in modules for problem in module.PROBLEMS}


def problem(key: str) -> Problem:
    """The problem with this key. Raises UnknownProblem."""
    if key not in problems():
        raise UnknownProblem(key)
    return problems()[key]
