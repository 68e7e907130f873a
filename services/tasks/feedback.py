"""What a person or a policy is told about one failed check: short text over plain values."""

from typing import Any

from services.tasks.comparators import Outcome

MAX_VALUE_CHARS = 60


def compact(value: Any, limit: int = MAX_VALUE_CHARS) -> str:
    """Python literal of `value` without the spaces after commas, cut at `limit` characters."""
    text = _literal(value)
    return text if len(text) <= limit else text[: limit - 2] + ".."


def _literal(value: Any) -> str:
    kind = type(value)
    if kind is list:
        return "[" + ",".join(map(_literal, value)) + "]"
    if kind is tuple:
        return "(" + ",".join(map(_literal, value)) + ("," if len(value) == 1 else "") + ")"
    if kind is dict:
        return "{" + ",".join(f"{_literal(key)}:{_literal(item)}" for key, item in value.items()) + "}"
    if kind in (set, frozenset):
        members = "{" + ",".join(sorted(map(_literal, value))) + "}"
        return members if value else "set()"
    return repr(value)


def arguments(args: tuple[Any, ...]) -> str:
    """The arguments of a call as they would be written between its brackets."""
    return ",".join(compact(arg) for arg in args)


def failure_text(args: tuple[Any, ...], expected: Outcome, got: Outcome | None) -> str:
    """Text `FAIL <args> want X got Y`; `… raises E` where the call raised; `… no answer` where `got` is None."""
    want = f"raise {expected.error}" if expected.error is not None else compact(expected.value)
    if got is None:
        found = "no answer"
    elif got.error is not None:
        found = f"raises {got.error}"
    else:
        found = f"got {compact(got.value)}"
    return f"FAIL {arguments(args)} want {want} {found}"
