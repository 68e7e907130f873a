"""Looks into the metadata flatbuffer of an Arrow message, for what must be known before Arrow opens it.

https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

import struct

HEADER, _BUFFERS, _COMPRESSION = 2, 2, 3
"""Fields of Arrow's tables: Message.header, RecordBatch.buffers and .compression."""
_Q = struct.Struct("<q")


def table_field(raw: bytes, table: int, index: int) -> int:
    """Position of a flatbuffer table's field; 0 when it is absent."""
    (back,) = struct.unpack_from("<i", raw, table)
    vtable = table - back
    (size,) = struct.unpack_from("<H", raw, vtable)
    if 4 + 2 * index >= size:
        return 0
    (offset,) = struct.unpack_from("<H", raw, vtable + 4 + 2 * index)
    return table + offset if offset else 0


def follow(raw: bytes, position: int) -> int:
    """The position that an offset leads to."""
    (offset,) = struct.unpack_from("<I", raw, position)
    return int(position + offset)


def is_compressed(metadata: bytes) -> bool:
    """Whether the body of a record batch message is said to be compressed, from its verified metadata flatbuffer.

    Raises struct.error where that points outside of itself.
    """
    batch = follow(metadata, table_field(metadata, follow(metadata, 0), HEADER))
    return bool(table_field(metadata, batch, _COMPRESSION))


def unpacked_bytes(metadata: bytes, body: memoryview) -> int:
    """Bytes that a record batch message claims to hold once its body is opened: its buffers' own sizes, where they are
    not compressed, else what each says before its compressed bytes. Raises struct.error for a claim outside of it."""
    if not is_compressed(metadata):
        return len(body)
    batch = follow(metadata, table_field(metadata, follow(metadata, 0), HEADER))
    buffers = follow(metadata, table_field(metadata, batch, _BUFFERS))
    (count,) = struct.unpack_from("<I", metadata, buffers)
    total = 0
    for offset, length in struct.iter_unpack("<qq", metadata[buffers + 4 : buffers + 4 + 16 * count]):
        claimed = _Q.unpack_from(body, offset)[0] if length else 0
        total += length if claimed < 0 else claimed
    return total
