"""Partition logs with a clock that stands still, and batches for them."""

from __future__ import annotations

from pathlib import Path

from kafka.record.default_records import DefaultRecordBatch

from infra.broker import batch as batches
from infra.broker.configs import TopicConfig
from infra.broker.log import PartitionLog
from tests.contract.broker.raw import batch

NOW = 1_800_000_000_000


class Clock:
    """Milliseconds that move only when told."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def open_log(path: Path, clock: Clock | None = None, epoch: int = 0, **config: str) -> PartitionLog:
    overrides = {key.replace("_", "."): value for key, value in config.items()}
    return PartitionLog(path, TopicConfig.of(overrides), epoch, clock or Clock())


def append(log: PartitionLog, data: bytes) -> int:
    """Append an encoded batch; returns its base offset."""
    return log.append(memoryview(bytearray(data))).base_offset


def values(log: PartitionLog, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record from `start` on, read as a client reads."""
    out: list[tuple[int, bytes | None]] = []
    offset = log.log_start if start is None else start
    while offset < log.log_end:
        data = log.read(offset, 4096, True)
        if not data:
            break
        for at, header in batches.walk(data):
            opened = DefaultRecordBatch(data[at : at + header.size])
            assert opened.validate_crc()
            out += [(record.offset, record.value) for record in opened if record.offset >= offset]
            offset = header.last_offset + 1
    return out


def stamped(values_: list[bytes], **options: object) -> bytes:
    """A batch whose records carry the standing clock's time."""
    return batch(values_, timestamps=[NOW] * len(values_), **options)  # type: ignore[arg-type]  # passed through
