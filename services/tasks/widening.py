"""Longer and larger arguments than given ones, of the same shape: what fixed cases do not show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

LONGER = (12, 60, 120, 260)
LARGER = (11, 90, 300, 1100, 70_000, 2 * 10**6, 2**31, 2**53 + 1)
_DIGITS = re.compile(r"[0-9]+")


def widened(args: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """`args` with one argument longer, or with larger numbers in it; what is sorted stays so, and signs stay."""
    for at, value in enumerate(args):
        for other in _widened(value):
            yield (*args[:at], other, *args[at + 1 :])


def _widened(value: Any) -> Iterator[Any]:
    if type(value) in (list, tuple, str) and len(value):
        for count in LONGER:
            longer = (value * (count // len(value) + 1))[: max(count, len(value) + 1)]
            yield sorted(longer) if type(value) is list and _in_order(value) else longer
    if type(value) is str and _DIGITS.search(value):
        for count in (2, 4, 10, 18):
            yield _DIGITS.sub(partial(_longer, count), value)
    for amount in LARGER:
        changed = _mapped(value, partial(_larger, amount))
        if changed != value:
            yield changed


def _longer(count: int, digits: re.Match[str]) -> str:
    return (digits[0] * count)[:count]


def _larger(amount: int, x: int) -> int:
    return x + amount if x >= 0 else x - amount


def _in_order(value: list[Any]) -> bool:
    try:
        return len(value) > 1 and value == sorted(value)
    except TypeError:
        return False


def _mapped(value: Any, change: Callable[[int], int]) -> Any:
    if type(value) is int:
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, change) for item in value)
    return value
