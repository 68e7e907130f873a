"""How large what a record claims may be: declared beside each field's type, checked for who writes and who reads.

Bounds are no part of the wire form (no fingerprint holds them). They say what no honest producer exceeds, with room;
what can be compared with a plan is compared where it matters. A value outside is a contract violation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeVar


@dataclass(frozen=True)
class Between:
    """A number within low..high, both included; NaN never is."""

    low: float
    high: float


@dataclass(frozen=True)
class AtMost:
    """So many characters of a text, bytes, or items of a list."""

    count: int


@dataclass(frozen=True)
class Unbounded:
    """Every value of the type, NaN and infinities included: measurements that only people look at."""


INT32 = 2**31 - 1
YEAR_2200_MS = 7_258_118_400_000
TURNS = 65_536
MEMBERS = 10_000
"""As many as the grammar of trial ids has numbers for."""
TASKS = 100_000
"""Tasks of one evaluation: as many as a message can list."""

# -- texts ------------------------------------------------------------------------------------------------------------
Id = Annotated[str, AtMost(512)]
Word = Annotated[str, AtMost(256)]
Digest = Annotated[str, AtMost(256)]
Text = Annotated[str, AtMost(4 * 1024 * 1024)]

# -- numbers ----------------------------------------------------------------------------------------------------------
Count = Annotated[int, Between(0, INT32)]
Turns = Annotated[int, Between(0, TURNS)]
"""Model calls, operations or actions of one attempt; attempts of one trial."""
Member = Annotated[int, Between(0, MEMBERS - 1)]
GroupSize = Annotated[int, Between(1, MEMBERS)]
Version = Annotated[int, Between(0, INT32)]
Sampled = Annotated[int, Between(-1, INT32)]
"""A policy version; -1: nothing was sampled."""
Lag = Annotated[int, Between(-INT32 - 1, INT32)]
Seed = Annotated[int, Between(-(2**63), 2**63 - 1)]
Size = Annotated[int, Between(0, 2**50)]
"""Bytes."""
Time = Annotated[int, Between(0, YEAR_2200_MS)]
"""Unix milliseconds. From 1970 on: a clock that stands at its beginning is wrong and harms no arithmetic."""
Millis = Annotated[int, Between(-YEAR_2200_MS, YEAR_2200_MS)]
"""A duration; negative where a clock was set back meanwhile."""
Seconds = Annotated[float, Between(0, 1e9)]
Score = Annotated[float, Between(-100, 100)]
"""Rewards and their components, which closure compares with what its settings allow, and shares."""
Coefficient = Annotated[float, Between(-1e6, 1e6)]
Temperature = Annotated[float, Between(0, 1e6)]
Measured = Annotated[float, Unbounded()]

# -- lists ------------------------------------------------------------------------------------------------------------
T = TypeVar("T")
PerMember = Annotated[tuple[T, ...], AtMost(MEMBERS)]
PerTask = Annotated[tuple[T, ...], AtMost(TASKS)]
PerTurn = Annotated[tuple[T, ...], AtMost(2 * TURNS)]
Few = Annotated[tuple[T, ...], AtMost(4096)]
