"""Hand-made decoding and encoding of the two hot requests, Produce 3-8 and Fetch 4-11, and of request headers.

kafka-python's generated classes serve every other request; here they would copy each record batch twice.
Layouts: https://kafka.apache.org/protocol (the non-flexible versions: big-endian, strings with 16-bit lengths).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple, ParamSpec, TypeVar

from infra.broker.errors import Code, ProtocolViolation

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")
_FETCH_V4 = struct.Struct(">iiiib")
_SESSION = struct.Struct(">ii")
_INDEX_LENGTH = struct.Struct(">ii")
_PART_V4 = struct.Struct(">iqi")
_PART_V5 = struct.Struct(">iqqi")
_PART_V9 = struct.Struct(">iiqqi")
MAX_ARRAY = 100_000
P = ParamSpec("P")
T = TypeVar("T")


class RequestHead(NamedTuple):
    """The fixed part of a request header; `body` is where the rest starts (before tagged fields, if flexible)."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    body: int


def request_head(frame: memoryview) -> RequestHead:
    """Parse the header of one frame (without its length); raises ProtocolViolation."""
    try:
        api_key, version, correlation_id, length = _HEAD.unpack_from(frame)
    except struct.error as error:
        raise ProtocolViolation(f"a frame of {len(frame)} bytes holds no request header") from error
    end = 10 + max(length, 0)
    if end > len(frame):
        raise ProtocolViolation("client id runs over the frame")
    client_id = str(frame[10:end], "utf-8", "replace") if length > 0 else ""
    return RequestHead(api_key, version, correlation_id, client_id, end)


def _decoder(decode: Callable[P, T]) -> Callable[P, T]:
    """A decoder whose every complaint about its bytes is a ProtocolViolation."""

    @functools.wraps(decode)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return decode(*args, **kwargs)
        except (struct.error, ValueError) as error:
            raise ProtocolViolation(f"{decode.__name__} does not decode: {error}") from error

    return checked


def _string(frame: memoryview, at: int) -> tuple[str, int]:
    length = _I16.unpack_from(frame, at)[0]
    at += 2
    if length < 0:
        return "", at
    if at + length > len(frame):
        raise ProtocolViolation("string runs over the frame")
    return str(frame[at : at + length], "utf-8"), at + length


def _count(frame: memoryview, at: int) -> tuple[int, int]:
    count = _I32.unpack_from(frame, at)[0]
    if count > MAX_ARRAY:
        raise ProtocolViolation(f"array of {count} entries")
    return count, at + 4


class ProduceRequest(NamedTuple):
    """acks (0, 1, -1) and, per topic, (partition, record bytes or None)."""

    transactional: bool
    acks: int
    topics: list[tuple[str, list[tuple[int, memoryview | None]]]]


@_decoder
def produce_request(frame: memoryview, at: int) -> ProduceRequest:
    """Decode Produce 3-8 from `at`; record bytes are views into the frame. Raises ProtocolViolation."""
    transactional = _I16.unpack_from(frame, at)[0]
    at += 2 + max(transactional, 0)
    acks = _I16.unpack_from(frame, at)[0]
    count, at = _count(frame, at + 6)  # acks and the timeout, which has no meaning with one replica
    topics = []
    for _ in range(count):
        name, at = _string(frame, at)
        parts, at = _count(frame, at)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(parts):
            index, length = _INDEX_LENGTH.unpack_from(frame, at)
            at += 8
            if length < 0:
                partitions.append((index, None))
                continue
            if at + length > len(frame):
                raise ProtocolViolation("records run over the frame")
            partitions.append((index, frame[at : at + length]))
            at += length
        topics.append((name, partitions))
    if at != len(frame):
        raise ProtocolViolation(f"{len(frame) - at} bytes after a produce request")
    return ProduceRequest(transactional > 0, acks, topics)


class Produced(NamedTuple):
    """The answer for one partition."""

    partition: int
    code: Code
    base_offset: int = -1
    append_time_ms: int = -1
    log_start: int = -1
    message: str | None = None


def _nullable(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()[:32767]
    return _I16.pack(len(raw)) + raw


def produce_response(correlation_id: int, version: int, topics: Iterable[tuple[str, list[Produced]]]) -> bytes:
    """Encode a framed Produce 3-8 response."""
    topics = list(topics)
    out = [b"", _I32.pack(correlation_id), _I32.pack(len(topics))]
    for name, partitions in topics:
        out.append(_nullable(name))
        out.append(_I32.pack(len(partitions)))
        for part in partitions:
            out.append(struct.pack(">ihqq", part.partition, part.code, part.base_offset, part.append_time_ms))
            if version >= 5:
                out.append(struct.pack(">q", part.log_start))
            if version >= 8:
                out.append(b"\0\0\0\0" + _nullable(part.message))
    out.append(b"\0\0\0\0")
    out[0] = _I32.pack(sum(map(len, out)))
    return b"".join(out)


class FetchPartition(NamedTuple):
    """One partition of a fetch: leader epoch known to the client (-1 = none), first offset, byte limit."""

    partition: int
    epoch: int
    offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """A decoded Fetch 4-11 request; `session` is not 0 when the client believes in a session."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session: int
    topics: list[tuple[str, list[FetchPartition]]]


@_decoder
def fetch_request(frame: memoryview, at: int, version: int) -> FetchRequest:
    """Decode Fetch 4-11 from `at`; raises ProtocolViolation."""
    _, max_wait, min_bytes, max_bytes, _ = _FETCH_V4.unpack_from(frame, at)
    at += _FETCH_V4.size
    session = 0
    if version >= 7:
        session, _ = _SESSION.unpack_from(frame, at)
        at += 8
    count, at = _count(frame, at)
    topics = []
    for _ in range(count):
        name, at = _string(frame, at)
        parts, at = _count(frame, at)
        partitions = []
        for _ in range(parts):
            epoch = -1
            if version >= 9:
                index, epoch, offset, _, limit = _PART_V9.unpack_from(frame, at)
                at += _PART_V9.size
            elif version >= 5:
                index, offset, _, limit = _PART_V5.unpack_from(frame, at)
                at += _PART_V5.size
            else:
                index, offset, limit = _PART_V4.unpack_from(frame, at)
                at += _PART_V4.size
            partitions.append(FetchPartition(index, epoch, offset, limit))
        topics.append((name, partitions))
    return FetchRequest(max_wait, min_bytes, max_bytes, session, topics)


class Fetched(NamedTuple):
    """The answer for one partition; the high watermark is the log's end."""

    partition: int
    code: Code
    high_watermark: int = -1
    log_start: int = -1
    records: bytes = b""


_ANSWER_V4 = struct.Struct(">ihqqii")
_ANSWER_V5 = struct.Struct(">ihqqqii")
_ANSWER_V11 = struct.Struct(">ihqqqiii")


def fetch_response(
    correlation_id: int, version: int, topics: Iterable[tuple[str, list[Fetched]]], code: Code = Code.NONE
) -> bytes:
    """Encode a framed Fetch 4-11 response, always outside a fetch session (session id 0)."""
    topics = list(topics)
    out = [b"", _I32.pack(correlation_id), b"\0\0\0\0"]
    if version >= 7:
        out.append(struct.pack(">hi", code, 0))
    out.append(_I32.pack(len(topics)))
    for name, partitions in topics:
        out.append(_nullable(name))
        out.append(_I32.pack(len(partitions)))
        for index, error, end, start, data in partitions:
            if version >= 11:
                out.append(_ANSWER_V11.pack(index, error, end, end, start, 0, -1, len(data)))
            elif version >= 5:
                out.append(_ANSWER_V5.pack(index, error, end, end, start, 0, len(data)))
            else:
                out.append(_ANSWER_V4.pack(index, error, end, end, 0, len(data)))
            out.append(data)
    out[0] = _I32.pack(sum(map(len, out)))
    return b"".join(out)
