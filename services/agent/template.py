"""The prompt: the numbered source and what went wrong, nothing else (every token is paid for in every trial)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

TEMPLATE_VERSION = "repair/1"


class Task(Protocol):
    """What the harness needs to see of a fixture; `services.tasks.fixture.Fixture` is one."""

    @property
    def base_tree(self) -> Mapping[str, str]: ...

    @property
    def allowed_globs(self) -> Sequence[str]: ...

    @property
    def tools(self) -> Sequence[str]: ...

    @property
    def first_failure(self) -> str: ...


def editable_path(task: Task) -> str:
    """The file that `edit` and `replace` work on: the first path in order that the fixture allows to change.

    Raises ValueError when the fixture allows none.
    """
    for path in sorted(task.base_tree):
        if any(fnmatchcase(path, pattern) for pattern in task.allowed_globs):
            return path
    raise ValueError(f"no file of {sorted(task.base_tree)} matches the allowed globs {list(task.allowed_globs)}")


def numbered(source: str) -> str:
    """Every line with its number from 1 and a space before it."""
    return "\n".join(f"{number} {line}" for number, line in enumerate(source.splitlines(), 1))


def prompt_text(task: Task) -> str:
    """The first turn's text."""
    return f"{numbered(task.base_tree[editable_path(task)])}\n{task.first_failure}"


def indented_like(old_line: str, text: str) -> str:
    """`text` with the indentation of the line that it replaces, unless it brings its own."""
    if not text or text[0] in " \t":
        return text
    return old_line[: len(old_line) - len(old_line.lstrip())] + text
