"""Records byte for byte, many in one object: the form in which both backups and the recorder keep topics."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas import codec

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
    """The records of a segment. Raises codec.ContractViolation for bytes that are none."""
    try:
        table = pa.ipc.open_stream(segment).read_all()
        if table.schema != _SCHEMA:
            raise codec.ContractViolation("segment", "another schema")
        columns = [column.to_pylist() for column in table.columns]
    except (pa.ArrowInvalid, OSError) as e:
        raise codec.ContractViolation("segment", f"not an archived segment: {e}") from e
    for offset, timestamp, key, value, names, values in zip(*columns, strict=True):
        yield Raw(offset, timestamp, key, value, tuple(zip(names, values, strict=True)))
