"""The 61-byte header of a record batch (message format 2): check, patch in place, walk, open when needed.

Layout: https://kafka.apache.org/documentation/#recordbatch. Base offset and leader epoch lie outside the checksum, so
the broker assigns both without touching (or decompressing) the records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c
from kafka import codec

from infra.broker.errors import Code, Rejected
from schemas.opening import SNAPPY, opened

Buffer = bytes | bytearray | memoryview

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size  # 61
OVERHEAD = 12  # base offset and length, not counted by the length field
CRC_FROM = 21  # the checksum covers everything from the attributes on
MAGIC = 2
CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
_LENGTH = struct.Struct(">i")
_BASE = struct.Struct(">q")


class Header(NamedTuple):
    """Header fields in wire order; timestamps are milliseconds since the epoch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


def parse(buffer: Buffer, position: int = 0) -> Header:
    """Read the header at `position`; raises struct.error when fewer than 61 bytes remain."""
    return Header._make(HEADER.unpack_from(buffer, position))


def checksum_ok(batch: Buffer, header: Header) -> bool:
    """Compare the stored CRC-32C with the one computed over `batch` (exactly one batch)."""
    return bool(crc32c(memoryview(batch)[CRC_FROM:]) == header.crc)


def check_produced(batch: Buffer, max_bytes: int) -> Header:
    """Validate what a producer sent for one partition: exactly one whole, intact batch.

    Raises Rejected with the code that Apache Kafka answers in the same case.
    """
    if len(batch) < HEADER_SIZE:
        raise Rejected(Code.CORRUPT_MESSAGE, f"{len(batch)} bytes are too few for a record batch")
    header = parse(batch)
    if header.magic != MAGIC:
        raise Rejected(Code.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"message format {header.magic} is not served, only 2")
    if header.length < HEADER_SIZE - OVERHEAD:
        raise Rejected(Code.CORRUPT_MESSAGE, f"batch length {header.length} is too small for its header")
    if header.size != len(batch):
        raise Rejected(Code.INVALID_RECORD, "a produce request holds exactly one record batch per partition")
    if header.size > max_bytes:
        raise Rejected(Code.MESSAGE_TOO_LARGE, f"batch of {header.size} bytes is over max.message.bytes={max_bytes}")
    if not checksum_ok(batch, header):
        raise Rejected(Code.CORRUPT_MESSAGE, "record batch checksum does not match")
    if header.records < 1 or header.records != header.last_offset_delta + 1:
        raise Rejected(
            Code.INVALID_RECORD, f"{header.records} records with last offset delta {header.last_offset_delta}"
        )
    if header.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
        raise Rejected(Code.INVALID_RECORD, "control and transactional batches are not served")
    if header.codec > 4:
        raise Rejected(Code.INVALID_RECORD, f"unknown compression codec {header.codec}")
    return header


def assign(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; both are outside the checksum."""
    _BASE.pack_into(batch, 0, base_offset)
    _LENGTH.pack_into(batch, OVERHEAD, leader_epoch)


def stamp_append_time(batch: memoryview, now_ms: int) -> None:
    """Set log-append time: timestamp type bit and maximum timestamp, then the checksum anew."""
    attributes = struct.unpack_from(">h", batch, 21)[0]
    struct.pack_into(">h", batch, 21, attributes | LOG_APPEND_TIME_BIT)
    struct.pack_into(">q", batch, 35, now_ms)
    struct.pack_into(">I", batch, 17, crc32c(batch[CRC_FROM:]))


def walk(buffer: Buffer) -> Iterator[tuple[int, Header]]:
    """Yield (position, header) of every whole batch; stops at a cut or impossible length."""
    position, end = 0, len(buffer)
    while end - position >= HEADER_SIZE:
        header = parse(buffer, position)
        if header.length < HEADER_SIZE - OVERHEAD or position + header.size > end:
            return
        yield position, header
        position += header.size


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Decode one zig-zag varint (up to 64 bits); returns (value, next position)."""
    shift = value = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("varint over 64 bits")


@dataclass(frozen=True, slots=True)
class Record:
    """One record as the broker needs it: where it is, its key, and whether it has a value."""

    offset: int
    timestamp: int
    key: bytes | None
    tombstone: bool
    raw: memoryview


def _payload(batch: Buffer, header: Header) -> memoryview:
    body = memoryview(batch)[HEADER_SIZE : header.size]
    if header.codec == 0:
        return body
    if header.codec == SNAPPY:
        raw = codec.snappy_decode(body.tobytes())
    else:
        raw = opened(header.codec, body.tobytes())
    return memoryview(raw)


def records(batch: Buffer, header: Header) -> Iterator[Record]:
    """Open a batch (decompress if needed) and yield its records.

    Raises ValueError (or what the codec raises) when the records do not parse.
    """
    body, position = _payload(batch, header), 0
    append_time = header.attributes & LOG_APPEND_TIME_BIT
    for _ in range(header.records):
        start = position
        length, position = read_varint(body, position)
        end = position + length
        if length < 0 or end > len(body):
            raise ValueError("record runs over its batch")
        ts_delta, at = read_varint(body, position + 1)
        offset_delta, at = read_varint(body, at)
        key_length, at = read_varint(body, at)
        key = None
        if key_length >= 0:
            key = bytes(body[at : at + key_length])
            at += key_length
        value_length, _ = read_varint(body, at)
        timestamp = header.max_timestamp if append_time else header.first_timestamp + ts_delta
        yield Record(header.base_offset + offset_delta, timestamp, key, value_length < 0, body[start:end])
        position = end


def rebuild(batch: Buffer, header: Header, kept: list[Record]) -> bytes:
    """A batch with only `kept` of its records; offsets, times, sequence and codec stay as they were."""
    body = b"".join(record.raw for record in kept)
    if header.codec == 1:
        body = codec.gzip_encode(body)
    elif header.codec == 2:
        body = codec.snappy_encode(body)
    elif header.codec == 3:
        body = codec.lz4_encode(body)
    elif header.codec == 4:
        body = codec.zstd_encode(body)
    out = bytearray(HEADER_SIZE + len(body))
    fields = header._replace(length=len(out) - OVERHEAD, records=len(kept))
    HEADER.pack_into(out, 0, *fields)
    out[HEADER_SIZE:] = body
    struct.pack_into(">I", out, 17, crc32c(memoryview(out)[CRC_FROM:]))
    return bytes(out)
