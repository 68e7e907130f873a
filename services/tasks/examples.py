"""Visible examples: drawn from a problem's generator so that the first one shows the bug."""

from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any

from services.tasks import catalogue, comparators, feedback, values
from services.tasks.comparators import Outcome
from services.tasks.fixture import Example, Fixture
from services.tasks.guard import LONG_TICKS, Guarded, Overgrown
from services.tasks.oracle import Oracle

VISIBLE = 4
# A small policy reads the examples as text: arguments and answer of a visible one stay this short.
MAX_EXAMPLE_CHARS = 26
MAX_ITEMS = 6
_TRIES = 400


@lru_cache(maxsize=1024)
def _guarded(source: str, entry: str) -> Guarded:
    return Guarded(source, entry)


@lru_cache(maxsize=128)
def _oracle(key: str) -> Oracle:
    return Oracle(catalogue.problem(key))


def example_of(args: tuple[Any, ...], expected: Outcome) -> Example:
    """The example of one call with its trusted answer."""
    return Example(args, values.ExceptionName(expected.error) if expected.error is not None else expected.value)


def is_short(args: tuple[Any, ...], expected: Outcome) -> bool:
    """Whether the text of a call and its answer fits a visible example."""
    answer = expected.error or feedback.compact(expected.value)
    if any(len(arg) > MAX_ITEMS for arg in args if isinstance(arg, str | list)):
        return False
    return len(feedback.arguments(args)) + len(answer) <= MAX_EXAMPLE_CHARS


def first_failure(source: str, entry: str, key: str, checks: tuple[Example, ...]) -> str | None:
    """What one of our own functions does on the first check that it fails, in the words of `feedback` (None: passes).

    Runs in this process: for functions made by the bug generator, never for a policy's text. A value that outgrows the
    guard counts as no answer.
    """
    function, oracle, comparator = _guarded(source, entry), _oracle(key), catalogue.problem(key).comparator
    for check in checks:
        expected = oracle.answer(check.args)
        try:
            got = function.ask(check.args, LONG_TICKS)
        except Overgrown:
            got = None
        if got is None or not comparators.agree(comparator, expected, got):
            return feedback.failure_text(check.args, expected, got)
    return None


def draw(key: str, source: str, rng: Random, count: int = VISIBLE) -> tuple[Example, ...]:
    """`count` distinct short examples of a problem with at least two answers, the first of which `source` fails.

    Raises ValueError where no draw shows the bug within a few hundred tries.
    """
    problem, oracle = catalogue.problem(key), _oracle(key)
    function = _guarded(source, problem.entry)
    failing: Example | None = None
    others: dict[str, Example] = {}
    for _ in range(_TRIES):
        args = problem.generate(rng)
        expected = oracle.answer(args)
        if not is_short(args, expected):
            continue
        example = example_of(args, expected)
        if failing is None and _fails(function, args, expected, problem.comparator):
            failing = example
            others.pop(values.dumps(args), None)
            continue
        if failing is None or args != failing.args:
            others[values.dumps(args)] = example
        if failing is not None and len(others) >= count - 1:
            chosen = (failing, *list(others.values())[1 - count :])
            if len({values.dumps(shown.expected) for shown in chosen}) > 1:
                return chosen
    raise ValueError(f"{key}: no short example shows the bug, or all short ones have one answer")


def _fails(function: Guarded, args: tuple[Any, ...], expected: Outcome, comparator: str) -> bool:
    """Whether the function visibly fails on `args`; an input on which it outgrows the guard is no example."""
    try:
        got = function.ask(args, LONG_TICKS)
    except Overgrown:
        return False
    return got is None or not comparators.agree(comparator, expected, got)


def make_example_draws(fixture: Fixture, rng: Random) -> tuple[Example, ...]:
    """Other visible examples for a catalogue fixture than its own, the first of which the bug fails."""
    (source,) = fixture.base_tree.values()
    return draw(fixture.problem, source, rng, len(fixture.public_checks))


def redraw(fixture: Fixture, rng: Random) -> Fixture:
    """The fixture with other visible examples, for supervised traces; its digest differs, its check set does not."""
    checks = make_example_draws(fixture, rng)
    (source,) = fixture.base_tree.values()
    failure = first_failure(source, fixture.entry, fixture.problem, checks)
    assert failure is not None
    return replace(fixture, public_checks=checks, first_failure=failure)
