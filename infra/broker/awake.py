"""How long this data directory had no broker: age retention does not count that time."""

from __future__ import annotations

import json
from pathlib import Path

from infra.broker.files import replace_atomically


class Awake:
    """The time that passed while a broker ran. A run's folder that is opened a month later still has its records.

    Apache Kafka counts wall time instead, since a cluster is never off; a folder is off most of its life. What is kept
    is kept for longer by as much as was slept, nothing is kept shorter.
    """

    def __init__(self, data: Path, now_ms: int) -> None:
        self._path = data / "awake"
        try:
            found = json.loads(self._path.read_bytes())
            seen, slept = int(found["seen_ms"]), int(found["slept_ms"])
        except (OSError, ValueError, KeyError, TypeError):  # a new directory, or one that wrote no such file
            seen, slept = _last_change_ms(data) or now_ms, 0
        self.slept_ms = slept + max(0, now_ms - seen)

    def mark(self, now_ms: int) -> None:
        """Remember that the broker still ran then. Raises OSError."""
        body = json.dumps({"seen_ms": now_ms, "slept_ms": self.slept_ms}).encode()
        replace_atomically(self._path, body, sync=False)


def _last_change_ms(data: Path) -> int | None:
    times = [path.stat().st_mtime_ns for path in data.rglob("*.log")]
    return max(times) // 1_000_000 if times else None
