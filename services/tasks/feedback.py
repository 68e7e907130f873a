"""What a person or a policy is told about one failed check: short text over plain values."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from services.tasks.comparators import Outcome

MAX_VALUE_CHARS = 60


def compact(value: Any, limit: int = MAX_VALUE_CHARS) -> str:
    """Python literal of `value` without the spaces after commas, cut at `limit` characters; what is cut off is not
    written out first (but the members of sets, which have no order of their own)."""
    text = ""
    for piece in _literal(value):
        text += piece
        if len(text) > limit:
            return text[: limit - 2] + ".."
    return text


def _literal(value: Any) -> Iterator[str]:
    kind = type(value)
    if kind is list:
        yield from _joined("[", map(_literal, value), "]")
    elif kind is tuple:
        yield from _joined("(", map(_literal, value), ",)" if len(value) == 1 else ")")
    elif kind is dict:
        yield from _joined("{", (chain(_literal(key), ":", _literal(item)) for key, item in value.items()), "}")
    elif kind in (set, frozenset):
        members = sorted("".join(_literal(item)) for item in value)
        yield from _joined("{", members, "}") if members else ("set()",)
    else:
        yield repr(value)


def _joined(opening: str, items: Iterable[Iterable[str]], closing: str) -> Iterator[str]:
    yield opening
    for number, item in enumerate(items):
        if number:
            yield ","
        yield from item
    yield closing


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
