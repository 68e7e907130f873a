"""One segment file of a partition: whole batches back to back, with a sparse index of (offset, position, time).

The file is the truth; the index is rebuilt by reading headers and is stored beside the file (`.index`) only once the
segment is closed and synced, so a valid index also says that the file was complete at that size.
"""

from __future__ import annotations

import json
import os
from array import array
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c

from infra.broker import aside
from infra.broker import batch as batches
from infra.broker.batch import HEADER_SIZE, Buffer, Header
from infra.broker.files import replace_atomically, write_at

INDEX_EVERY = 16 * 1024  # bytes of log per index entry
SCAN_CHUNK = 1 << 20


class Segment:
    """Batches from `base` (inclusive) to `next_offset` (exclusive) in one file of `size` bytes."""

    def __init__(self, directory: Path, base: int, suffix: str = ".log") -> None:
        self.base = base
        self.path = directory / f"{base:020d}{suffix}"
        self.index_path = directory / f"{base:020d}.index"
        self.size = 0
        self.next_offset = base
        self.max_timestamp = -1
        self.opened_ms = 0  # wall clock of the first append, 0 while empty
        self.epochs: list[tuple[int, int]] = []  # (leader epoch, first offset written under it)
        self.indexed = False  # the index file is stored: the segment is closed, synced and complete
        self.name_synced = False  # the directory entry was synced
        self.used = False  # read or written since housekeeping last looked
        self._offsets = array("q")
        self._positions = array("q")
        self._times = array("q")  # highest timestamp before the entry's position
        self._last_entry = -INDEX_EVERY
        self._last = (base, 0)
        self._fd = -1
        self._torn = False
        self._linked = False

    def fd(self) -> int:
        """The open file; created when missing. A link (somebody looks at another's log) is opened for reading only."""
        self.used = True
        if self._fd < 0:
            self._linked = self.path.is_symlink()
            flags = os.O_RDONLY if self._linked else os.O_RDWR | os.O_CREAT
            self._fd = os.open(self.path, flags, 0o644)
        return self._fd

    def release(self) -> None:
        """Close the file descriptor; the next use opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, batch: Buffer, header: Header) -> None:
        """Write one batch whose offsets are assigned; on OSError the file is cut back to what it was."""
        fd = self.fd()
        try:
            if self._torn:
                os.ftruncate(fd, self.size)
                self._torn = False
            write_at(fd, batch, self.size)
        except OSError:
            self._torn = True
            try:
                os.ftruncate(fd, self.size)
                self._torn = False
            except OSError:
                pass  # the next append, or recovery, cuts it
            raise
        self._note(header, self.size)

    def _note(self, header: Header, position: int) -> None:
        if position - self._last_entry >= INDEX_EVERY:
            self._offsets.append(header.base_offset)
            self._positions.append(position)
            self._times.append(self.max_timestamp)
            self._last_entry = position
        self._last = (header.base_offset, position)
        self.size = position + header.size
        self.next_offset = header.last_offset + 1
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
        if not self.epochs or self.epochs[-1][0] != header.leader_epoch:
            self.epochs.append((header.leader_epoch, header.base_offset))

    # -- reading -------------------------------------------------------------------------------------------------

    def locate(self, offset: int) -> int:
        """Position of the first batch whose last offset is at least `offset`; `size` when there is none."""
        if offset >= self.next_offset:
            return self.size
        if offset >= self._last[0]:
            return self._last[1]
        entry = bisect_right(self._offsets, offset) - 1
        if entry < 0:
            return 0
        position = self._positions[entry]
        if self._offsets[entry] == offset:
            return position
        return self._scan_to(position, offset)

    def _scan_to(self, position: int, offset: int) -> int:
        while position < self.size:
            chunk = os.pread(self.fd(), INDEX_EVERY + HEADER_SIZE, position)
            moved = 0
            while len(chunk) - moved >= HEADER_SIZE:
                header = batches.parse(chunk, moved)
                if header.last_offset >= offset:
                    return position + moved
                moved += header.size
            if moved == 0:
                raise OSError(5, f"segment ends inside a batch at {position}")
            position += moved
        return self.size

    def end_of(self, position: int, max_bytes: int, whole: bool) -> int:
        """End of the longest run of whole batches from `position` within `max_bytes`; at least one when `whole`."""
        limit = position + max_bytes
        if limit >= self.size:
            return self.size
        entry = bisect_right(self._positions, limit) - 1
        if entry >= 0 and self._positions[entry] > position:
            return self._positions[entry]
        end = position
        while end < self.size:
            header = batches.parse(os.pread(self.fd(), HEADER_SIZE, end))
            if end + header.size > limit and not (whole and end == position):
                return end
            end += header.size
            if end >= limit:
                return end
        return end

    def read(self, position: int, end: int) -> bytes:
        """Bytes from `position` up to `end`; raises OSError when the file is shorter than it should be."""
        data = os.pread(self.fd(), end - position, position)
        if len(data) != end - position:
            raise OSError(5, f"short read of {self.path}: {len(data)} of {end - position} bytes")
        return data

    def time_position(self, timestamp: int) -> int:
        """A position before which every batch is older than `timestamp`."""
        entry = bisect_right(self._times, timestamp - 1) - 1
        return self._positions[entry] if entry >= 0 else 0

    # -- recovery ------------------------------------------------------------------------------------------------

    def scan(self, on_batch: Callable[[Header], None], contiguous: bool = False) -> int:
        """Read every batch with its checksum, rebuild the index, cut whatever does not parse off the tail.

        Calls `on_batch` with each header in order; returns the bytes cut. Afterwards the file holds exactly the whole,
        intact batches of before; whole batches behind a damaged one are set aside. `contiguous`: a number left out is
        damage, too (base offsets lie outside the checksum). A file that is a link stays as it is, and only what is
        intact is read.
        """
        fd = self.fd()
        state = os.fstat(fd)
        total, self.opened_ms = state.st_size, int(state.st_mtime * 1000)
        position, chunk = 0, SCAN_CHUNK
        while position < total:
            data = os.pread(fd, chunk, position)
            start, good = position, True
            for at, header in batches.walk(data):
                good = (
                    header.magic == batches.MAGIC
                    and header.base_offset >= self.next_offset
                    and (not contiguous or header.base_offset == self.next_offset)
                    and header.last_offset_delta >= 0
                    and batches.checksum_ok(memoryview(data)[at : at + header.size], header)
                )
                if not good:
                    break
                self._note(header, start + at)
                on_batch(header)
                position = start + at + header.size
            if not good or (position == start and len(data) < chunk):
                break
            if position == start:  # a batch larger than the chunk: read on only as far as the file goes
                chunk *= 2
            else:
                chunk = SCAN_CHUNK
        if self.size < total and not self._linked:
            aside.keep_cut(self.path, self.size, self.next_offset)
            os.ftruncate(fd, self.size)
        return total - self.size

    def store_index(self) -> None:
        """Write the index file of a closed, synced segment."""
        body = json.dumps(
            {
                "size": self.size,
                "next": self.next_offset,
                "max": self.max_timestamp,
                "epochs": self.epochs,
                "last": self._last,
                "offsets": self._offsets.tolist(),
                "positions": self._positions.tolist(),
                "times": self._times.tolist(),
            }
        ).encode()
        replace_atomically(self.index_path, b"%08x" % crc32c(body) + body, sync=False)
        self.indexed = True

    def load_index(self) -> bool:
        """Take the stored index when it is intact and matches the file's size; False means scan."""
        try:
            raw = self.index_path.read_bytes()
            if int(raw[:8], 16) != crc32c(raw[8:]):
                return False
            stored = json.loads(raw[8:])
            if stored["size"] != self.path.stat().st_size:
                return False
        except (OSError, ValueError, KeyError):
            return False
        self.size, self.next_offset = stored["size"], stored["next"]
        self.max_timestamp = stored["max"]
        self.epochs = [(a, b) for a, b in stored["epochs"]]
        self._last = (stored["last"][0], stored["last"][1])
        self._offsets, self._positions = array("q", stored["offsets"]), array("q", stored["positions"])
        self._times = array("q", stored["times"])
        self.indexed = True
        return True

    def adopt(self) -> None:
        """Turn a written `.cleaned` file into the segment of its base, replacing the one that was there."""
        self.index_path.unlink(missing_ok=True)
        final = self.path.with_suffix(".log")
        os.replace(self.path, final)
        self.path = final

    def remove(self) -> None:
        """Delete the file and its index."""
        self.release()
        self.path.unlink(missing_ok=True)
        self.index_path.unlink(missing_ok=True)
