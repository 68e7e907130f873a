"""Remembers on which records a service crashed, so that no record can stop it for ever."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from services.runtime.core import Position

MAX_REMEMBERED = 10_000
"""Positions; the oldest are forgotten first."""


class CrashMemory:
    """How often the process died on account of each position, in a small file beside the ready file.

    A crash count must outlive the process. Without a file (`path` None) nothing is remembered: the service then crashes
    on the same record until a person looks, which loses nothing.
    """

    def __init__(self, path: Path | None, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._counts: dict[Position, int] = {}
        self.in_a_row = 0
        """Crashes without one record handled between them: such a service is broken, whatever its records say."""
        if path is not None:
            try:
                stored = json.loads(path.read_text())
                self.in_a_row = int(stored["in_a_row"])
                for entry in stored["crashes"]:
                    position = Position(str(entry["topic"]), int(entry["partition"]), int(entry["offset"]))
                    self._counts[position] = int(entry["count"])
            except FileNotFoundError:
                pass
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                self._counts.clear()

    def quarantined(self, position: Position) -> bool:
        """Whether this record has had its tries: it goes to the dead letters without being handled again."""
        return bool(self._counts) and self._counts.get(position, 0) >= self._limit

    def crashed(self, positions: Sequence[Position], error: BaseException) -> int:
        """Note a crash on account of these records before the process exits; returns the count of the last."""
        self.in_a_row += 1
        for position in positions:
            self._counts[position] = self._counts.pop(position, 0) + 1
        while len(self._counts) > MAX_REMEMBERED:
            del self._counts[next(iter(self._counts))]
        self._store(f"{type(error).__name__}: {error}"[:1000])
        return self._counts[positions[-1]]

    def _store(self, error: str) -> None:
        if self._path is None:
            return
        entries = [{**position._asdict(), "count": count} for position, count in self._counts.items()]
        temporary = self._path.with_name(self._path.name + ".new")
        try:
            if not entries:
                self._path.unlink(missing_ok=True)
                return
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            temporary.write_text(json.dumps({"crashes": entries, "in_a_row": self.in_a_row, "error": error}))
            os.replace(temporary, self._path)
        except OSError:
            return  # a full disk: the crash itself is reported by the caller

    def committed(self, topic: str, partition: int, offset: int) -> None:
        """The group is past these records: forget them."""
        if not self._counts:
            return
        past = [p for p in self._counts if (p.topic, p.partition) == (topic, partition) and offset > p.offset]
        for position in past:
            del self._counts[position]
        if past:
            self._store("")
