"""Deterministic draws: every choice of a run is a function of its seed and of what the choice is for."""

from __future__ import annotations

import hashlib
import json


def _hash(parts: tuple[str | int, ...]) -> int:
    text = json.dumps(parts, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def unit(*parts: str | int) -> float:
    """A number in [0, 1), uniform over different `parts`."""
    return (_hash(parts) >> 11) / 2**53


def seed(*parts: str | int) -> int:
    """A seed in [0, 2**63), as fits a signed 64-bit column."""
    return _hash(parts) >> 1
