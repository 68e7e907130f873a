"""What a backup's manifest may say: every count fits its segments and every name is ours, before anything is put."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.topics import ALL, dead_letter
from services.runtime.archive import MAX_FILLED
from services.runtime.store import checked_key, content_key

MAX_OFFSET = 2**60
MAX_PARTITIONS = 10_000
_KEYED = frozenset(topic.name for topic in ALL if topic.compacted)
_NAMES = frozenset(name for topic in ALL for name in (topic.name, dead_letter(topic)) if name)


def check(document: Mapping[str, Any]) -> None:
    """Raises ValueError, with what is wrong and where, for a manifest that no backup wrote."""
    ends = {
        (name, _number(number, MAX_PARTITIONS, name)): _partition(name, number, part)
        for name, partitions in document["topics"].items()
        for number, part in partitions.items()
    }
    for group, topics in document["groups"].items():
        for name, offsets in topics.items():
            for number, offset in offsets.items():
                end = ends.get((name, _number(number, MAX_PARTITIONS, name)))
                if end is None or not 0 <= _count(offset, group) <= end:
                    raise ValueError(f"group {group} has read {name}[{number}] to {offset}, which is not there")
    for key, content in document["objects"].items():
        _content(content)
        if checked_key(key).startswith("sha256/") and key != content:
            raise ValueError(f"object {key} is to hold {content}")
    if not isinstance(document["settings"], str):
        raise ValueError("its settings are no text")


def _partition(name: str, number: str, part: Mapping[str, Any]) -> int:
    """The end of a partition whose segments account for all that it holds."""
    where = f"{name}[{number}]"
    if name not in _NAMES:
        raise ValueError(f"{name!r} is no topic of ours")
    first, end = _count(part["first"], where), _count(part["end"], where)
    if first > end or first > MAX_FILLED:
        raise ValueError(f"{where} begins at {first} and ends at {end}; more than {MAX_FILLED} are not filled up")
    at = first
    for segment in part["segments"]:
        low, high, count = (_count(segment[key], where) for key in ("first", "last", "count"))
        _content(segment["key"])
        if not at <= low <= high < end or not 1 <= count <= high - low + 1:
            raise ValueError(f"{where}: a segment of {count} records from {low} to {high} does not fit in {at}..{end}")
        if name not in _KEYED and (low != at or count != high - low + 1):
            raise ValueError(f"{where}: records are missing before or in the segment from {low} to {high}")
        at = high + 1
    missing = end - at if name not in _KEYED else 0
    filled = end - first - sum(segment["count"] for segment in part["segments"])
    if (missing and part["segments"]) or (not part["segments"] and first != end) or filled > MAX_FILLED:
        raise ValueError(f"{where} is said to end at {end}, but its segments end at {at}")
    return end


def _count(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_OFFSET:
        raise ValueError(f"{where}: {str(value)[:40]!r} is no count")
    return value


def _number(text: str, limit: int, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) < limit):
        raise ValueError(f"{where}: {text[:40]!r} is no partition")
    return int(text)


def _content(key: Any) -> str:
    if not isinstance(key, str) or content_key(key.rpartition("/")[2]) != checked_key(key):
        raise ValueError(f"{str(key)[:80]!r} names no content")
    return key
