"""What the editing tools do to a text: pure functions over the source that lies outside the jail."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

MAX_SOURCE_CHARS = 64 * 1024
MAX_TEXT_CHARS = 8_192
MAX_RAW_CHARS = 256 * 1024
"""Of a command's arguments as JSON: two texts of which every character is escaped, and room."""
_MAX_COUNTED = 9
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Refusal(Exception):
    """The operation is refused; the message says why and is what the policy is told."""


def arguments(raw: str, allowed: Mapping[str, type]) -> dict[str, Any]:
    """Named arguments of a command. Raises Refusal for anything but an object of the allowed names and types."""
    if len(raw) > MAX_RAW_CHARS:
        raise Refusal(f"arguments longer than {MAX_RAW_CHARS} characters")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise Refusal("arguments are not JSON") from None
    if not isinstance(found, dict):
        raise Refusal("arguments are not an object")
    for name, value in found.items():
        kind = allowed.get(name)
        if kind is None:
            raise Refusal(f"no argument {name[:24]!r}; arguments: {' '.join(allowed) or 'none'}")
        if type(value) is not kind:
            raise Refusal(f"argument {name} is no {'text' if kind is str else 'number'}")
        if isinstance(value, str):
            _check(value)
    return found


def required(found: Mapping[str, Any], *names: str) -> None:
    """Raises Refusal naming the first argument that is not there."""
    for name in names:
        if name not in found:
            raise Refusal(f"argument {name} is missing")


def _check(text: str) -> None:
    if len(text) > MAX_TEXT_CHARS:
        raise Refusal(f"text longer than {MAX_TEXT_CHARS} characters")
    if _CONTROL.search(text):
        raise Refusal("control character in text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refusal("text is not UTF-8") from None


def edit_line(source: str, line: int, text: str) -> str:
    """Replace line `line` (from 1) by `text`; "" deletes the line. Raises Refusal.

    A first line of `text` without indentation takes that of the old line, and the lines after it are moved with it.
    """
    lines = source.split("\n")
    count = len(lines) - (lines[-1] == "")
    if not 1 <= line <= count:
        raise Refusal(f"line {line} is out of range 1..{count}")
    if text == "":
        del lines[line - 1]
        return _bounded("\n".join(lines))
    old = lines[line - 1]
    indent = old[: len(old) - len(old.lstrip(" \t"))]
    new = text.split("\n")
    if new[0][:1] not in (" ", "\t"):
        new = [indent + part if part else part for part in new]
    lines[line - 1 : line] = new
    return _bounded("\n".join(lines))


def replace_text(source: str, old: str, new: str) -> str:
    """Replace the one occurrence of `old` by `new`. Raises Refusal when there is none or more than one."""
    if not old:
        raise Refusal("old text is empty")
    found = _occurrences(source, old)
    if found == 0:
        raise Refusal("old text is not in the source")
    if found > 1:
        more = f"more than {_MAX_COUNTED}" if found > _MAX_COUNTED else found
        raise Refusal(f"old text occurs {more} times; give more of it")
    return _bounded(source.replace(old, new, 1))


def _occurrences(source: str, old: str) -> int:
    count, at = 0, source.find(old)
    while at >= 0 and count <= _MAX_COUNTED:
        count += 1
        at = source.find(old, at + 1)  # overlapping ones count: which of them was meant is not known
    return count


def _bounded(source: str) -> str:
    if len(source) > MAX_SOURCE_CHARS:
        raise Refusal(f"source longer than {MAX_SOURCE_CHARS} characters")
    return source


def numbered(source: str, first: int, last: int | None) -> str:
    """Lines `first`..`last` (from 1, both included) as "N text"."""
    lines = source.split("\n")
    if lines[-1] == "":
        lines.pop()
    chosen = lines[max(0, first - 1) : last]
    return "\n".join(f"{number} {line}" for number, line in enumerate(chosen, max(1, first)))
