"""What recovery cuts off a damaged log is set aside beside it, so that a repair can still read what is whole in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kafka.record import MemoryRecords

from infra.broker import batch as batches
from infra.broker.batch import HEADER_SIZE, MAGIC, OVERHEAD
from infra.broker.files import sync_directory

FOLDER = "aside"
_MAGIC_AT = 16


class Found(NamedTuple):
    """One record that lies in what was set aside. Time is Unix milliseconds."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def whole_batches(data: bytes) -> Iterator[tuple[int, int]]:
    """(position, size) of every intact batch in bytes that may be damaged anywhere."""
    view = memoryview(data)
    position, end = 0, len(data)
    while position + HEADER_SIZE <= end:
        header = batches.parse(view, position)
        if (
            header.magic == MAGIC
            and header.length >= HEADER_SIZE - OVERHEAD
            and position + header.size <= end
            and batches.checksum_ok(view[position : position + header.size], header)
        ):
            yield position, header.size
            position += header.size
        else:
            magic = data.find(bytes([MAGIC]), position + _MAGIC_AT + 1)
            if magic < 0:
                return
            position = magic - _MAGIC_AT


def keep_cut(path: Path, position: int, offset: int) -> bool:
    """Copy the bytes of `path` from `position` on to the folder beside it, if a whole batch lies in them.

    `offset` is where the log is cut. A torn end (half a batch after a power cut) is nobody's loss and is not kept.
    Raises OSError.
    """
    with path.open("rb") as file:
        file.seek(position)
        rest = file.read()
    if next(whole_batches(rest), None) is None:
        return False
    target = _free_name(path.parent, offset)
    with target.open("xb") as out:
        out.write(rest)
        out.flush()
        os.fsync(out.fileno())
    sync_directory(target.parent)
    return True


def keep_file(path: Path, offset: int) -> None:
    """Move a whole segment file to the folder beside it. Raises OSError."""
    target = _free_name(path.parent, offset)
    os.replace(path, target)
    sync_directory(target.parent)


def _free_name(directory: Path, offset: int) -> Path:
    folder = directory / FOLDER
    folder.mkdir(exist_ok=True)
    number = 0
    while (target := folder / f"{offset:020d}.{number}.cut").exists():
        number += 1
    return target


def partitions(data: Path) -> dict[tuple[str, int], Path]:
    """(topic, partition) -> folder of what was set aside, for every partition of a broker's data directory."""
    found = {}
    for folder in sorted((data / "topics").glob(f"*@*/*/{FOLDER}")):
        topic = folder.parent.parent.name.rpartition("@")[0]
        if folder.parent.name.isdigit() and any(folder.iterdir()):
            found[topic, int(folder.parent.name)] = folder
    return found


def holes(data: Path) -> Iterator[tuple[str, int, int, int]]:
    """(topic, partition, first, end) of the offsets between two segments of a partition that neither holds.

    From file names and headers alone. A compacted topic has such holes by right.
    """
    for folder in sorted((data / "topics").glob("*@*/*")):
        topic = folder.parent.name.rpartition("@")[0]
        bases = sorted(int(path.stem) for path in folder.glob("*.log"))
        for base, following in pairwise(bases):
            end = _end_of(folder / f"{base:020d}.log", base)
            if end < following:
                yield topic, int(folder.name), end, following


def _end_of(path: Path, base: int) -> int:
    end = base
    with path.open("rb") as file:
        position = 0
        while len(head := file.read(HEADER_SIZE)) == HEADER_SIZE:
            header = batches.parse(head)
            if header.magic != MAGIC or header.length < HEADER_SIZE - OVERHEAD:
                break
            end = header.last_offset + 1
            position += header.size
            file.seek(position)
    return end


def read(folder: Path) -> dict[int, Found]:
    """Offset -> record of everything that is whole in a partition's set-aside files; the newest file wins."""
    found: dict[int, Found] = {}
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        for base, position, size in _placed(data, int(path.name.partition(".")[0])):
            for batch in MemoryRecords(data[position : position + size]):
                for record in batch:
                    offset = record.offset - batch.base_offset + base
                    found[offset] = Found(offset, record.timestamp, record.key, record.value, tuple(record.headers))
    return found


def _placed(data: bytes, offset: int) -> Iterator[tuple[int, int, int]]:
    """(base offset, position, size) of the whole batches of a cut that began at `offset`.

    A base offset lies outside the checksum, so it may be what was damaged: right behind a whole batch it can only be
    the next number, and behind damage it cannot be further than the damaged bytes could have held records.
    """
    end = 0
    for position, size in whole_batches(data):
        header = batches.parse(data, position)
        base = offset if position == end else header.base_offset
        if 0 <= base - offset <= position - end:
            yield base, position, size
            offset, end = base + header.last_offset_delta + 1, position + size
