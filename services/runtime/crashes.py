"""Remembers on which record a service crashed, so that one record cannot stop it for ever."""

from __future__ import annotations

import json
import os
from pathlib import Path

from services.runtime.core import Position


class CrashMemory:
    """How often in a row the process died while handling one position, in a small file beside the ready file.

    A crash count must outlive the process. Without a file (`path` None) nothing is remembered: the service then crashes
    on the same record until a person looks, which loses nothing.
    """

    def __init__(self, path: Path | None, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._position: Position | None = None
        self._count = 0
        if path is not None:
            try:
                stored = json.loads(path.read_text())
                self._position = Position(str(stored["topic"]), int(stored["partition"]), int(stored["offset"]))
                self._count = int(stored["count"])
            except FileNotFoundError:
                pass
            except (OSError, ValueError, KeyError, TypeError):
                self._count, self._position = 0, None

    def quarantined(self, position: Position) -> bool:
        """Whether this record has had its tries: it goes to the dead letters without being handled again."""
        return self._count >= self._limit and position == self._position

    def crashed(self, position: Position, error: BaseException) -> int:
        """Note a crash on a record before the process exits; returns how many in a row."""
        self._count = self._count + 1 if position == self._position else 1
        self._position = position
        if self._path is not None:
            entry = {**position._asdict(), "count": self._count, "error": f"{type(error).__name__}: {error}"[:1000]}
            temporary = self._path.with_name(self._path.name + ".new")
            try:
                self._path.parent.mkdir(mode=0o700, exist_ok=True)
                temporary.write_text(json.dumps(entry))
                os.replace(temporary, self._path)
            except OSError:
                return self._count  # a full disk: the crash itself is reported by the caller
        return self._count

    def committed(self, topic: str, partition: int, offset: int) -> None:
        """The group is past the record: forget it."""
        p = self._position
        if p is not None and (p.topic, p.partition) == (topic, partition) and offset > p.offset:
            self._position, self._count = None, 0
            if self._path is not None:
                self._path.unlink(missing_ok=True)
