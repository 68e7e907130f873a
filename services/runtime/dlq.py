"""Dead letters: the original record byte for byte with `dlq.*` headers, and the limit that stops a flood of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from schemas import codec
from services.runtime.core import Position
from services.runtime.producer import Encoded

PREFIX = "dlq."
_MAX_ERROR = 1000
_WINDOW = 1000
_BEGINNING = 64 * 1024
MAX_LETTER = codec.MAX_BYTES + 32 * 1024
"""Bytes of key, value and headers that every dead-letter topic takes."""


@dataclass(frozen=True)
class DeadLetterPolicy:
    """At either limit the service stops instead of dropping a flood. `max_ratio` applies from `min_records` on."""

    max_consecutive: int = 20
    max_ratio: float = 0.1
    min_records: int = 100


class DeadLetterLimit:
    """Counts good and bad records; old counts fade, so that a long good past does not buy a flood."""

    def __init__(self, policy: DeadLetterPolicy) -> None:
        self._policy = policy
        self._consecutive = 0
        self._bad = 0.0
        self._all = 0.0

    def good(self) -> None:
        self._consecutive = 0
        self._count(0)

    def bad(self) -> str | None:
        """Count a bad record; the reason to stop, or None when it may be dead-lettered."""
        self._consecutive += 1
        self._count(1)
        p = self._policy
        if self._consecutive > p.max_consecutive:
            return f"{self._consecutive} bad records in a row, over {p.max_consecutive}"
        if self._all >= p.min_records and self._bad / self._all > p.max_ratio:
            return f"{self._bad / self._all:.0%} of the last records are bad, over {p.max_ratio:.0%}"
        return None

    def crashes(self, in_a_row: int) -> str | None:
        """The reason to stop after so many crashes with no record handled between them; None while it may go on."""
        most = self._policy.max_consecutive
        return f"{in_a_row} crashes and no record handled, over {most}" if in_a_row > most else None

    def _count(self, bad: int) -> None:
        self._all += 1
        self._bad += bad
        if self._all >= _WINDOW:
            self._all /= 2
            self._bad /= 2


def headers(
    original: Sequence[tuple[str, bytes | None]],
    position: Position,
    timestamp_ms: int,
    *,
    reason: str,
    error: str,
    service: str,
) -> list[tuple[str, bytes]]:
    """A new list: the original headers in order, then ours; those of an earlier dead-lettering are replaced."""
    attempts = 1
    for name, value in original:
        if name == "dlq.attempts" and value and value[:9].isdigit():
            attempts = int(value[:9]) + 1
    ours = {
        "dlq.reason": reason,
        "dlq.error": error[:_MAX_ERROR],
        "dlq.source.topic": position.topic,
        "dlq.source.partition": str(position.partition),
        "dlq.source.offset": str(position.offset),
        "dlq.source.timestamp": str(timestamp_ms),
        "dlq.service": service,
        "dlq.attempts": str(attempts),
    }
    # The client sends no header without a value, though others may have.
    kept = [(name, value or b"") for name, value in original if not name.startswith(PREFIX)]
    return kept + [(name, value.encode()) for name, value in ours.items()]


def fitting(letter: Encoded) -> Encoded:
    """The letter as it is, or, where no topic would take it (its original came compressed), its beginning and the
    digest of the whole: a letter that cannot be sent would stop the service at every start."""
    size = letter.size + sum(len(name) + len(value or b"") for name, value in letter.headers)
    if letter.key is None and letter.value is None:
        return letter._replace(value=b"")  # the client sends no record without either
    if size <= MAX_LETTER:
        return letter
    value = letter.value or b""
    whole = [("dlq.size", str(len(value)).encode()), ("dlq.sha256", hashlib.sha256(value).hexdigest().encode())]
    ours = [(name, value) for name, value in letter.headers if name.startswith(PREFIX)]
    key = None if letter.key is None else letter.key[:_BEGINNING]
    return Encoded(letter.topic, key, value[:_BEGINNING], ours + whole)
