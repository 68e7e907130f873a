"""Reads and writes one-row record batches of a known schema straight from their bytes.

Arrow's own reader and writer build an object per column, which costs three times the rest of handling a small record.
A batch of one row under a fixed schema has a fixed metadata flatbuffer in which only three runs of numbers differ: the
body's length, the field nodes (length, null count), and the buffers (offset, length). This module takes those places
from a batch that Arrow wrote, and fills or reads them. Whatever it does not recognise is left to Arrow
(https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.metadata import HEADER, follow, table_field
from schemas.record import FieldSpec, RecordType

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_Q, _D, _II = struct.Struct("<q"), struct.Struct("<d"), struct.Struct("<ii")
_ZEROS = bytes(8)
_NULL_BIT = bytes(8)

Chunk = Any
"""Bytes, or a memory view of bytes."""


class _Body:
    """A record batch being written: nodes, buffers and the padded chunks of its body."""

    __slots__ = ("buffers", "chunks", "nodes", "size")

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self.buffers: list[int] = []
        self.chunks: list[Chunk] = []
        self.size = 0

    def add(self, chunk: Chunk, length: int) -> None:
        """One buffer, padded to eight bytes."""
        self.buffers += (self.size, length)
        if length:
            self.chunks.append(chunk)
            padding = -length & 7
            if padding:
                self.chunks.append(_ZEROS[:padding])
            self.size += length + padding


Write = Callable[[_Body, Any], None]


def _write_null(spec: FieldSpec) -> Callable[[_Body], None]:
    """A null of the column's type: validity bit 0, and buffers that hold nothing."""

    def write(body: _Body) -> None:
        body.nodes += (1, 1)
        body.add(_NULL_BIT, 8)
        if pa.types.is_string(spec.arrow) or pa.types.is_binary(spec.arrow):
            body.add(_ZEROS, 8)
            body.add(b"", 0)
        elif pa.types.is_list(spec.arrow):
            body.add(_ZEROS, 8)
            body.nodes += (0, 0)
            body.add(b"", 0)
            if pa.types.is_string(spec.arrow.value_type):
                body.add(_ZEROS, 8)
            body.add(b"", 0)
        else:
            body.add(_ZEROS, 8)

    return write


def _write_number(form: struct.Struct) -> Write:
    def write(body: _Body, value: Any) -> None:
        if isinstance(value, bool):
            raise TypeError("a truth value in a column of numbers")
        body.nodes += (1, 0)
        body.add(b"", 0)
        body.add(form.pack(value), 8)

    return write


def _write_bool(body: _Body, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} in a column of truth values")
    body.nodes += (1, 0)
    body.add(b"", 0)
    body.add(b"\x01" if value else b"\x00", 1)


def _write_bytes(body: _Body, value: Any) -> None:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} in a binary column")
    body.nodes += (1, 0)
    body.add(b"", 0)
    body.add(_II.pack(0, len(value)), 8)
    body.add(value, len(value))


def _write_text(body: _Body, value: Any) -> None:
    _write_bytes(body, value.encode())


def _write_array(dtype: type) -> Write:
    def write(body: _Body, value: Any) -> None:
        array: np.ndarray[Any, Any] = np.ascontiguousarray(value, dtype=dtype)
        if array.ndim != 1:
            raise ValueError(f"shape {array.shape}, not (n,)")
        count = len(array)
        body.nodes += (1, 0, count, 0)
        body.add(b"", 0)
        body.add(_II.pack(0, count), 8)
        body.add(b"", 0)
        body.add(array.view(np.uint8).data, 4 * count)

    return write


def _write_list(spec: FieldSpec) -> Write:
    """Lists of scalars go through Arrow for their items: they are few, and may hold nulls."""
    item = spec.arrow.value_type

    def write(body: _Body, value: Any) -> None:
        items = pa.array(list(value), item)
        found = items.buffers()
        count = len(items)
        body.nodes += (1, 0, count, items.null_count)
        body.add(b"", 0)
        body.add(_II.pack(0, count), 8)
        validity = found[0] if items.null_count else None
        body.add(b"" if validity is None else memoryview(validity), 0 if validity is None else validity.size)
        for buffer in found[1:]:
            size = 0 if buffer is None else buffer.size
            body.add(b"" if buffer is None else memoryview(buffer), size)

    return write


def _writer(spec: FieldSpec) -> Write:
    if spec.kind in ("ids", "floats"):
        return _write_array(np.int32 if spec.kind == "ids" else np.float32)
    if spec.kind == "list":
        return _write_list(spec)
    by_type: dict[Any, Write] = {
        pa.utf8(): _write_text,
        pa.int64(): _write_number(_Q),
        pa.float64(): _write_number(_D),
        pa.bool_(): _write_bool,
        pa.binary(): _write_bytes,
    }
    return by_type[spec.arrow]


class Form:
    """How one record type's batches look in bytes. Columns are read in the order of the type's fields."""

    def __init__(self, kind: RecordType, schema_bytes: bytes) -> None:
        self.kind = kind
        self.schema_bytes = schema_bytes
        example = pa.RecordBatch.from_arrays([pa.nulls(1, f.arrow) for f in kind.fields], schema=kind.schema)
        message = example.serialize().to_pybytes()
        (size,) = struct.unpack_from("<i", message, 4)
        self._head = message[: 8 + size]
        root = follow(self._head, 8)
        batch = follow(self._head, table_field(self._head, root, HEADER))
        nodes = follow(self._head, table_field(self._head, batch, 1))
        buffers = follow(self._head, table_field(self._head, batch, 2))
        (node_count,) = struct.unpack_from("<I", self._head, nodes)
        (buffer_count,) = struct.unpack_from("<I", self._head, buffers)
        runs = [(table_field(self._head, root, 3), 1), (nodes + 4, 2 * node_count), (buffers + 4, 2 * buffer_count)]
        self._length, self._nodes, self._buffers = ((at, struct.Struct(f"<{count}q")) for at, count in runs)
        edges = [0, *(e for at, count in sorted(runs) for e in (at, at + 8 * count)), len(self._head)]
        self._fixed = [(a, b, self._head[a:b]) for a, b in zip(edges[::2], edges[1::2], strict=True)]
        self._writers = [_writer(f) for f in kind.fields]
        self._null_writers = [_write_null(f) for f in kind.fields]
        places = _Places()
        self._readers = [_reader(f, places) for f in kind.fields]

    def message(self, values: Sequence[Any]) -> bytes:
        """The whole IPC stream of one row. Raises what the column writers raise for a value of the wrong type."""
        body = _Body()
        for spec, write, null, value in zip(self.kind.fields, self._writers, self._null_writers, values, strict=True):
            try:
                if value is None:
                    null(body)
                else:
                    write(body, value)
            except Exception as e:
                raise FieldError(spec.name, e) from e
        head = bytearray(self._head)
        self._length[1].pack_into(head, self._length[0], body.size)
        self._nodes[1].pack_into(head, self._nodes[0], *body.nodes)
        self._buffers[1].pack_into(head, self._buffers[0], *body.buffers)
        return b"".join((self.schema_bytes, head, *body.chunks, END))

    def values(self, raw: bytes) -> list[Any] | None:
        """The row's values in field order, None for null; or None when these bytes are not exactly of this form.

        Token lists alias `raw`. Everything is checked against the buffers' bounds; what fails is left to Arrow.
        """
        at = len(self.schema_bytes)
        if not raw.startswith(self.schema_bytes):
            return None
        for begin, end, wanted in self._fixed:
            if raw[at + begin : at + end] != wanted:
                return None
        try:
            (size,) = self._length[1].unpack_from(raw, at + self._length[0])
            nodes = self._nodes[1].unpack_from(raw, at + self._nodes[0])
            buffers = self._buffers[1].unpack_from(raw, at + self._buffers[0])
            body = at + len(self._head)
            if min(buffers) < 0 or min(nodes) < 0 or raw[body + size :] != END:
                return None
            # Buffers one after the other, each padded to eight bytes: anything else was not written by `message`.
            ends = itertools.accumulate([(length + 7) & -8 for length in buffers[1::2]])
            if (*buffers[2::2], size) != tuple(ends) or buffers[0]:
                return None
            end = body + size
            return [read(raw, body, end, nodes, buffers) for read in self._readers]
        except (struct.error, ValueError, _NotThisForm):
            return None


class FieldError(Exception):
    """A value that its column cannot hold."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"{name}: {error}")
        self.name = name
        self.error = error


class _NotThisForm(Exception):
    """Leave these bytes to the general reader."""


Read = Callable[[bytes, int, int, Sequence[int], Sequence[int]], Any]
"""(message, first byte of the body, its end, nodes, buffers) -> the column's one value, None for null."""


class _Places:
    """Hands out the places of nodes and buffers in the order in which Arrow lists them."""

    def __init__(self) -> None:
        self._node = self._buffer = 0

    def node(self) -> int:
        self._node += 2
        return self._node - 2

    def buffer(self) -> int:
        self._buffer += 2
        return self._buffer - 2


def _start(body: int, end: int, buffers: Sequence[int], at: int, wanted: int) -> int:
    """Position of a buffer's first byte; it must hold at least `wanted` bytes inside of the body."""
    start = body + buffers[at]
    if buffers[at + 1] < wanted or start + wanted > end:
        raise _NotThisForm
    return start


def _null(nodes: Sequence[int], at: int, buffers: Sequence[int], validity: int) -> int:
    """Whether the column's one value is null: then, and only then, it comes with a validity bitmap."""
    null = nodes[at + 1]
    if nodes[at] != 1 or null > 1 or bool(buffers[validity + 1]) != bool(null):
        raise _NotThisForm
    return null


def _read_number(places: _Places, form: struct.Struct) -> Read:
    node, validity, data = places.node(), places.buffer(), places.buffer()
    unpack = form.unpack_from

    def read(raw: bytes, body: int, end: int, nodes: Sequence[int], buffers: Sequence[int]) -> Any:
        if _null(nodes, node, buffers, validity):
            return None
        return unpack(raw, _start(body, end, buffers, data, 8))[0]

    return read


def _read_truth(places: _Places) -> Read:
    node, validity, data = places.node(), places.buffer(), places.buffer()

    def read(raw: bytes, body: int, end: int, nodes: Sequence[int], buffers: Sequence[int]) -> Any:
        if _null(nodes, node, buffers, validity):
            return None
        return bool(raw[_start(body, end, buffers, data, 1)] & 1)

    return read


def _read_bytes(places: _Places, text: bool) -> Read:
    node, validity, offsets, data = places.node(), places.buffer(), places.buffer(), places.buffer()
    unpack = _II.unpack_from

    def read(raw: bytes, body: int, end: int, nodes: Sequence[int], buffers: Sequence[int]) -> Any:
        if _null(nodes, node, buffers, validity):
            return None
        first, last = unpack(raw, _start(body, end, buffers, offsets, 8))
        if not 0 <= first <= last:
            raise _NotThisForm
        start = _start(body, end, buffers, data, last)
        found = raw[start + first : start + last]
        return found.decode() if text else found

    return read


def _read_array(places: _Places, dtype: type) -> Read:
    node, validity, offsets = places.node(), places.buffer(), places.buffer()
    child, _, data = places.node(), places.buffer(), places.buffer()

    def read(raw: bytes, body: int, end: int, nodes: Sequence[int], buffers: Sequence[int]) -> Any:
        if _null(nodes, node, buffers, validity):
            return None
        first, last = _II.unpack_from(raw, _start(body, end, buffers, offsets, 8))
        count = nodes[child]
        if nodes[child + 1] or not 0 <= first <= last <= count:
            raise _NotThisForm
        return np.frombuffer(raw, dtype, last - first, _start(body, end, buffers, data, 4 * count) + 4 * first)

    return read


def _read_items(places: _Places, item: pa.DataType, at_most: int | None) -> Read:
    """A list of scalars; one that holds nulls is left to Arrow, and so is one that is too long: it is refused there."""
    node, validity, offsets = places.node(), places.buffer(), places.buffer()
    child, _, data = places.node(), places.buffer(), places.buffer()
    letter = "q" if pa.types.is_int64(item) else "d"
    text = places.buffer() if pa.types.is_string(item) else None

    def read(raw: bytes, body: int, end: int, nodes: Sequence[int], buffers: Sequence[int]) -> Any:
        if _null(nodes, node, buffers, validity):
            return None
        count = nodes[child]
        if at_most is not None and count > at_most:
            raise _NotThisForm
        if nodes[child + 1] or _II.unpack_from(raw, _start(body, end, buffers, offsets, 8)) != (0, count):
            raise _NotThisForm
        if not count:
            return ()
        if text is None:
            return struct.unpack_from(f"<{count}{letter}", raw, _start(body, end, buffers, data, 8 * count))
        edges = struct.unpack_from(f"<{count + 1}i", raw, _start(body, end, buffers, data, 4 * (count + 1)))
        start = _start(body, end, buffers, text, edges[-1])
        if edges[0] or any(a > b for a, b in itertools.pairwise(edges)):
            raise _NotThisForm
        return tuple(raw[start + a : start + b].decode() for a, b in itertools.pairwise(edges))

    return read


def _reader(spec: FieldSpec, places: _Places) -> Read:
    if spec.kind in ("ids", "floats"):
        return _read_array(places, np.int32 if spec.kind == "ids" else np.float32)
    if spec.kind == "list":
        return _read_items(places, spec.arrow.value_type, spec.at_most)
    if pa.types.is_boolean(spec.arrow):
        return _read_truth(places)
    if pa.types.is_string(spec.arrow) or pa.types.is_binary(spec.arrow):
        return _read_bytes(places, text=pa.types.is_string(spec.arrow))
    return _read_number(places, _Q if pa.types.is_int64(spec.arrow) else _D)
