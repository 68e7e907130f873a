"""The tool grammar: what text of the policy is which action, and exactly what is wrong with text that is none."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

GRAMMAR_VERSION = "tools/1"
TOOLS = ("edit", "replace", "test", "read", "submit")
MAX_TEXT_CHARS = 4_000
ARROW = " => "

_EDIT = re.compile(r"edit ([1-9][0-9]{0,4}):(?: (.+))?", re.DOTALL)
_WORD = re.compile(r"[^\s:]{0,24}")
# An arrow inside the old text carries one more backslash than it stands for, so that the first bare arrow separates.
# Each begins where a run of backslashes begins, so that a long run is read once and not once from each of its places.
_ARROW_IN_OLD = re.compile(r"(?<!\\)(\\*)=>")
_ESCAPED_ARROW = re.compile(r"(?<!\\)\\(\\*=>)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class Edit:
    """Put `text` in the place of line `line` (from 1). Several lines in `text` are allowed; "" deletes the line."""

    line: int
    text: str


@dataclass(frozen=True)
class Replace:
    """Put `new` in the place of the one occurrence of `old`."""

    old: str
    new: str


@dataclass(frozen=True)
class Test:
    """Run the public checks."""

    __test__ = False  # the name is the grammar's word; it is no class of pytest


@dataclass(frozen=True)
class Read:
    """Show the current source."""


@dataclass(frozen=True)
class Submit:
    """End the trial with the current source."""


@dataclass(frozen=True)
class Malformed:
    """Text that is no action; `message` says what is wrong and is what the policy is told."""

    message: str


Action = Edit | Replace | Test | Read | Submit


def tool_of(action: Action) -> str:
    """Name of the tool that an action calls."""
    return type(action).__name__.lower()


def parse(text: str) -> Action | Malformed:
    """The action that `text` states, or what is wrong with it. Never raises; `render` of it gives `text` back."""
    if len(text) > MAX_TEXT_CHARS:
        return Malformed(f"longer than {MAX_TEXT_CHARS} characters")
    if not text:
        return Malformed("empty action")
    if _CONTROL.search(text):
        return Malformed("control character in action")
    word = _WORD.match(text)
    name = word.group() if word else ""
    reader = _READERS.get(name)
    if reader is None:
        return Malformed(f"no tool {name!r}; tools: {' '.join(TOOLS)}")
    return reader(text)


def _parse_edit(text: str) -> Action | Malformed:
    match = _EDIT.fullmatch(text)
    if match is None:
        return Malformed("write edit N: text")
    return Edit(int(match.group(1)), match.group(2) or "")


def _parse_replace(text: str) -> Action | Malformed:
    if not text.startswith("replace ") or ARROW not in text:
        return Malformed("write replace old => new")
    old, new = text[len("replace ") :].split(ARROW, 1)
    if not old:
        return Malformed("replace: old text is empty")
    plain = _ESCAPED_ARROW.sub(r"\1", old)
    if render(Replace(plain, new)) != text:
        return Malformed("replace: write an arrow inside old text as \\=>")
    return Replace(plain, new)


def _bare(action: Action) -> Callable[[str], Action | Malformed]:
    name = tool_of(action)

    def read(text: str) -> Action | Malformed:
        return action if text == name else Malformed(f"{name} takes nothing")

    return read


_READERS: dict[str, Callable[[str], Action | Malformed]] = {
    "edit": _parse_edit,
    "replace": _parse_replace,
    "test": _bare(Test()),
    "read": _bare(Read()),
    "submit": _bare(Submit()),
}


def render(action: Action) -> str:
    """The text that states an action; `parse` reads it back to an equal action."""
    match action:
        case Edit(line, text):
            return f"edit {line}: {text}" if text else f"edit {line}:"
        case Replace(old, new):
            return f"replace {_ARROW_IN_OLD.sub(lambda m: chr(92) + m.group(), old)}{ARROW}{new}"
        case _:
            return tool_of(action)
