"""Records byte for byte, many in one object: the form in which both backups and the recorder keep topics."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas import codec
from schemas.metadata import unpacked_bytes

MAX_UNPACKED = 256 * 1024 * 1024
"""Bytes: the recorder closes a segment at 32 MiB of records at the latest, and one of them may be large."""
MAX_ITEMS = 4_000_000
_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("header_names", pa.list_(pa.utf8()), nullable=False),
        pa.field("header_values", pa.list_(pa.binary()), nullable=False),
    ]
)


@dataclass(frozen=True)
class Raw:
    """One record byte for byte. Time is Unix milliseconds."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def size(self) -> int:
        return len(self.value or b"") + len(self.key or b"") + sum(len(v or b"") for _, v in self.headers) + 64


def pack(records: Sequence[Raw]) -> bytes:
    """A segment: one Arrow IPC stream, compressed."""
    columns = [
        pa.array([r.offset for r in records], pa.int64()),
        pa.array([r.timestamp_ms for r in records], pa.int64()),
        pa.array([r.key for r in records], pa.binary()),
        pa.array([r.value for r in records], pa.binary()),
        pa.array([[name for name, _ in r.headers] for r in records], pa.list_(pa.utf8())),
        pa.array([[value for _, value in r.headers] for r in records], pa.list_(pa.binary())),
    ]
    out = io.BytesIO()
    batch = pa.record_batch(columns, schema=_SCHEMA)
    with pa.ipc.new_stream(out, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    return out.getvalue()


def unpack(segment: bytes) -> Iterator[Raw]:
    """The records of a segment. Raises codec.ContractViolation for bytes that are none, or that unpack to more than any
    segment holds: what they claim is added up before anything is opened."""
    try:
        batch = _batch(segment)
        batch.validate(full=True)
        columns = [column.to_pylist() for column in batch.columns]
    except (pa.ArrowException, OSError, ValueError, StopIteration, struct.error) as e:
        if isinstance(e, codec.ContractViolation):
            raise
        raise codec.ContractViolation("segment", f"not an archived segment: {e}") from e
    for offset, timestamp, key, value, names, values in zip(*columns, strict=True):
        if len(names) != len(values):
            raise codec.ContractViolation("segment", f"{len(names)} header names and {len(values)} values")
        yield Raw(offset, timestamp, key, value, tuple(zip(names, values, strict=True)))


def _batch(segment: bytes) -> pa.RecordBatch:
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(segment))
    schema = pa.ipc.read_schema(messages.read_next_message())
    if schema != _SCHEMA:
        raise codec.ContractViolation("segment", "another schema")
    message = messages.read_next_message()
    if message.type != "record batch" or next(iter(messages), None) is not None:
        raise codec.ContractViolation("segment", "not exactly one record batch")
    size = unpacked_bytes(message.metadata.to_pybytes(), memoryview(message.body))
    if size > MAX_UNPACKED:
        raise codec.ContractViolation("segment", f"it would unpack to {size} bytes, over {MAX_UNPACKED}")
    batch = pa.ipc.read_record_batch(message, schema)
    items = max(batch.num_rows, *(len(column.values) for column in batch.columns[4:]))
    if items > MAX_ITEMS:
        raise codec.ContractViolation("segment", f"{items} records or headers, over {MAX_ITEMS}")
    return batch
