"""The one way of text that others wrote to a screen, a page or a figure: visible escapes, bounded, without markup.

Records, task files, file names and a broker's answers are written by programs that nobody vouches for. What would move
the cursor, colour, hide or turn round text is shown as an escape (`\\x1b`, `\\u202e`); a house test holds that commands
print through here alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO, cast

from services.runtime.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

CELL_CHARS = 400
"""Characters of one cell that are shown; what is left out is counted."""
LINE_CHARS = 8_000
BLOCK_CHARS = 1_000_000
_MARKS_IN_A_ROW = 2
"""Combining marks on one letter that are shown as they are; a tower of more runs over its neighbours' lines."""
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that Unicode calls letters or marks, and that nobody sees."""
_MARKDOWN = re.compile(r"[\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""What has a meaning inside of a line; a cell never stands at the beginning of one."""
_LAST_MS = 253_402_300_799_999  # the year 9999


class Unwritable(UserError):
    """Nobody can read what a command says: its output is full or broken; the exit code is 1."""


class ReaderGone(Exception):
    """The other end of a pipe was closed: a command ends quietly, as others do."""


def cell(value: object, most: int = CELL_CHARS) -> str:
    """One line of at most about `most` characters of the text: line breaks and tabs are escapes, too."""
    text = str(value)
    shown = _visible(text[:most], "")
    return shown if len(text) <= most else f"{shown}… (+{len(text) - most})"


def block(value: object, most: int = BLOCK_CHARS) -> str:
    """Several lines as they are, everything else as in a cell."""
    text = str(value)
    shown = _visible(text[:most], "\n")
    return shown if len(text) <= most else f"{shown}… (+{len(text) - most})"


def _visible(text: str, allowed: str) -> str:
    bare = text.replace("\n", "") if "\n" in allowed else text
    if bare.isprintable() and bare.isascii():
        return text
    out: list[str] = []
    marks = 0
    for one in text:
        marks = marks + 1 if unicodedata.category(one) in ("Mn", "Me") else 0
        plain = (one.isprintable() and not _UNSEEN.match(one) and marks <= _MARKS_IN_A_ROW) or one in allowed
        out.append(one if plain else _escape(one))
    return "".join(out)


def _escape(one: str) -> str:
    number = ord(one)
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(one)
    return named or (
        f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"
    )


def markdown(value: object, most: int = CELL_CHARS) -> str:
    """One line that Markdown and HTML show as it is, in a table's cell too."""
    shown = _MARKDOWN.sub(r"\\\g<0>", cell(value, most))
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return shown.replace("://", ":&#47;&#47;").replace("www.", "www&#46;").replace("@", "&#64;")


def code(value: object, most: int = CELL_CHARS) -> str:
    """One line between backticks, inside of which Markdown knows no escapes: a backtick becomes an apostrophe."""
    return f"`{cell(value, most).replace('`', chr(39)).replace('|', '¦') or ' '}`"


def label(value: object, most: int = 60) -> str:
    """A text of a figure: `$` would begin a formula there."""
    return cell(value, most).replace("$", r"\$")


def to_json(value: object, indent: int | None = None) -> str:
    """JSON whose every character is printable ASCII."""
    return json.dumps(value, ensure_ascii=True, indent=indent)


def clock(ms: int, form: str = "%H:%M:%S.%f") -> str:
    """Local time of day with milliseconds, or of another strftime form; the number itself where it is no time."""
    if not 0 <= ms <= _LAST_MS:
        return f"({cell(ms)} ms)"
    shown = datetime.fromtimestamp(ms / 1000).strftime(form)
    return shown[:-3] if form.endswith("%f") else shown


# -- printing -------------------------------------------------------------------------------------------------------


def say(text: object = "", *, error: bool = False, to: TextIO | None = None, lines: bool = False) -> None:
    """Print one line (`lines`: several) on standard output, error, or `to`. Raises Unwritable and ReaderGone."""
    shown = block(text) if lines else cell(text, LINE_CHARS)
    _write(to or (sys.stderr if error else sys.stdout), shown + "\n")


def complain(error: UserError) -> None:
    """Print a person's error on standard error; only its own layout makes lines that begin at the margin."""
    parts = ["\n  ".join(block(error.what, LINE_CHARS).split("\n"))]
    parts += [f"where: {cell(error.where, LINE_CHARS)}"] if error.where else []
    parts += [f"what to do: {cell(error.do, LINE_CHARS)}"] if error.do else []
    say("rollstream: " + "\n  ".join(parts), error=True, lines=True)


def say_json(value: object, indent: int | None = None, to: TextIO | None = None) -> None:
    """Print one JSON document. Raises as `say` does."""
    _write(to or sys.stdout, to_json(value, indent) + "\n")


def _write(stream: TextIO, text: str) -> None:
    try:
        if text:
            stream.write(text)
        stream.flush()
    except BrokenPipeError as error:  # not passed on as it is: rich would end the process by itself
        raise ReaderGone from error
    except OSError as error:
        raise Unwritable(f"the output cannot be written: {error.strerror or error}") from error


def _as_text(text: object) -> str:
    """As a text stream refuses bytes: libraries try with b"" which kind of stream it is."""
    if not isinstance(text, str):
        raise TypeError(f"write() argument must be str, not {type(text).__name__}")
    return text


class _Raw:
    """A stream whose every byte passes, rich's colours too; a full or broken one is said as `say` says it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        _write(self._stream, _as_text(text))
        return len(text)

    def flush(self) -> None:
        self.write("")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(stream: TextIO | None = None, *, error: bool = False) -> Console:
    """A console that takes text as text: no markup, no emoji names, no highlighting. Cells are not escaped by it."""
    from rich.console import Console

    chosen = stream or (sys.stderr if error else sys.stdout)
    raw = cast(TextIO, _Raw(chosen._stream if isinstance(chosen, _Raw | _Walled) else chosen))
    return Console(file=raw, markup=False, emoji=False, highlight=False, soft_wrap=False)


def grid(headings: Sequence[str], rows: Iterable[Sequence[object]], **options: Any) -> Table:
    """A table whose every cell is text, escaped and bounded; `options` are rich's (box, padding, title, …)."""
    from rich.table import Table
    from rich.text import Text

    table = Table(**options)
    for heading in headings:
        table.add_column(Text(cell(heading)))
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    return table


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], **options: Any) -> None:
    """Print such a table on standard output."""
    console().print(grid(headings, rows, **options))


def styled(lines: Iterable[tuple[str, str]], stream: TextIO) -> None:
    """Print (text, style) lines: coloured on a terminal, plain elsewhere; a line stays one line."""
    if not stream.isatty():
        for text, _ in lines:
            _write(stream, cell(text, BLOCK_CHARS) + "\n")
        return
    from rich.text import Text

    terminal = console(stream)
    for text, style in lines:
        terminal.print(Text(cell(text, BLOCK_CHARS)), style=style or None, soft_wrap=True)


# -- the process's own streams ----------------------------------------------------------------------------------------


class _Walled:
    """Standard error of a command: what libraries, warnings and tracebacks write there is escaped on the way."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):  # nobody reads it, and there is no other place to say so
            self._stream.write(_visible(_as_text(text), "\n"))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        return False  # colours would be escaped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard_streams() -> None:
    """Once at the start of a command: any text can be printed in any locale, and standard error is escaped."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # closed by whoever started us
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            cast(Any, stream).reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = cast(TextIO, _Raw(sys.stdout)), cast(TextIO, _Walled(sys.stderr))


def flush_output() -> None:
    """Raises Unwritable and ReaderGone for what only now turns out not to be written."""
    _write(sys.stdout, "")


def drop_output() -> None:
    """Nobody reads any more: what is still buffered goes nowhere, or the interpreter complains at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def reader_is_gone(stream: TextIO) -> bool:
    """Whether `stream` is a pipe or terminal whose other end is closed; asked while there is nothing to write."""
    try:
        watch = select.poll()
        watch.register(stream.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in watch.poll(0))
    except (OSError, ValueError, AttributeError):
        return False
