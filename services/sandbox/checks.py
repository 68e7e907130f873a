"""What a fixture's public checks ask of a jail and what its answers show, in the words of the task library."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from services.runtime.jail.session import Answer, Program, Transcript
from services.tasks import answers, comparators, feedback, oracle, values
from services.tasks.fixture import Example, Fixture, Outcome


@dataclass(frozen=True)
class Observation:
    """What the policy is told."""

    text: str
    passed: bool


def program_of(fixture: Fixture, tree: Mapping[str, str]) -> Program:
    """What the jail is asked to run. Raises program.NoEntry."""
    return answers.program_of(tree, fixture.entry, fixture.comparator, fixture.objects)


def calls(fixture: Fixture) -> list[tuple[Any, ...]]:
    """Arguments of the public checks, in order. They are sent as a copy, so that nothing needs to be copied here."""
    return [example.args for example in fixture.public_checks]


def observe(fixture: Fixture, transcript: Transcript) -> Observation:
    """The observation that a run of the public checks amounts to: the first failure, or "ok"."""
    if transcript.failure is not None:
        name, line = transcript.failure
        return Observation(f"{name} line {line}" if line else f"import raises {name}", False)
    if transcript.ending in ("log_flood", "reply_flood"):
        return Observation("too much output", False)
    if not transcript.ready:
        return Observation("import gives no answer", False)
    for index, example in enumerate(fixture.public_checks):
        if index >= len(transcript.answers):
            return Observation(feedback.failure_text(example.args, example.outcome(), None), False)
        text = _failure(fixture, example, transcript.answers[index])
        if text is not None:
            return Observation(text, False)
    if transcript.ending != "complete":
        return Observation("the checks did not end", False)
    return Observation("ok", True)


def _failure(fixture: Fixture, example: Example, answer: Answer) -> str | None:
    expected = example.outcome()
    try:
        got = answers.outcome_of(answer.kind, answer.text, fixture.comparator, fixture.objects)
    except values.ValueCodecError:
        want = feedback.failure_text(example.args, expected, None).removesuffix("no answer")
        return want + "got a value of another type"
    if _agrees(fixture, example.args, expected, got):
        return None
    return feedback.failure_text(example.args, expected, got)


def _agrees(fixture: Fixture, args: tuple[Any, ...], expected: Outcome, got: Outcome) -> bool:
    # A public example states no arguments after the call, so only the hidden checks can compare them.
    name = fixture.comparator
    if expected.args_after is None:
        name = name.replace("+args", "")
    predicate = comparators.parse(name).predicate
    if not predicate:
        return comparators.agree(name, expected, got)
    holds = oracle.unpinned(fixture.problem).predicate(predicate)
    return comparators.agree(name, expected, got, lambda value: holds(deepcopy(args), value))
