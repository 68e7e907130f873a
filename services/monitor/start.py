"""Where a reader begins: the grammar of `--from`, parsed once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from services.runtime.errors import UserError

_AGO = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FIRST_TIME = 10**11
"""A bare number from here on is a time in Unix milliseconds (1973 and later), below it an offset."""


@dataclass(frozen=True)
class Start:
    """`value` is an offset, a count of last records per partition, or Unix milliseconds, as `kind` says."""

    kind: Literal["earliest", "latest", "offset", "last", "time"]
    value: int = 0


def parse_start(text: str | int, now_ms: int) -> Start:
    """`earliest`, `latest`, an offset, `-N` (the last N per partition), Unix ms, an ISO time, or an age such as `5m`.

    Raises UserError that states this grammar.
    """
    word = str(text).strip().lower()
    if word == "earliest":
        return Start("earliest")
    if word == "latest":
        return Start("latest")
    if re.fullmatch(r"-\d{1,18}", word):
        return Start("last", int(word[1:]))
    if re.fullmatch(r"\d{1,18}", word):
        number = int(word)
        return Start("time", number) if number >= _FIRST_TIME else Start("offset", number)
    if age := _AGO.fullmatch(word):
        return Start("time", now_ms - int(float(age[1]) * _UNIT_MS[age[2]]))
    try:
        return Start("time", int(datetime.fromisoformat(str(text).strip()).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise UserError(
            f"{text!r} is no place to start from",
            "--from",
            "earliest, latest, an offset (120), the last N of each partition (-20), an age (5m, 2h), "
            "a time (2026-01-31T12:00:00), or Unix milliseconds",
        ) from None
