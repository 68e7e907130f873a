"""What a long test says while it goes on, and the table of what it measured at the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

BEGAN = time.monotonic()
"""When this process began to test; every line says how long ago that was."""
_lock = threading.Lock()


def say(text: str) -> None:
    """One line with its time, past pytest's capture."""
    with _lock:
        print(f"[{time.monotonic() - BEGAN:5.0f} s] {text}", file=sys.__stderr__, flush=True)


@contextmanager
def timed(what: str) -> Iterator[Callable[[], float]]:
    """Say when it begins and how long it took; what it yields tells the seconds so far."""
    began = time.monotonic()
    say(what)
    yield lambda: time.monotonic() - began
    say(f"{what}: {time.monotonic() - began:.1f} s")


COLUMNS = ("apply to ready", "roll", "SIGTERM to gone", "lag before", "lag peak", "recovered after")


@dataclass
class Table:
    """Figures by service, and lines that belong to none."""

    figures: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def put(self, service: str, column: str, value: str) -> None:
        """Note one figure. Raises KeyError for a column that the table does not have."""
        if column not in COLUMNS:
            raise KeyError(column)
        self.figures.setdefault(service, {})[column] = value

    def note(self, line: str) -> None:
        """Note a line, and say it at once."""
        self.notes.append(line)
        say(line)

    def lines(self) -> list[str]:
        """The table as text, columns aligned; empty columns stay empty."""
        if not self.figures:
            return list(self.notes)
        head = ["service", *COLUMNS]
        rows = [[name, *(row.get(column, "") for column in COLUMNS)] for name, row in self.figures.items()]
        widths = [max(len(line[n]) for line in (head, *rows)) for n in range(len(head))]
        ruled = [head, ["-" * width for width in widths], *rows]
        return [*("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in ruled),
                *self.notes]  # fmt: skip
