"""What a consumer gets of a record batch that cannot be opened: one record without key and value, at its last offset.

The Kafka client opens a batch before anybody sees its records: one that holds gigabytes, or whose inside is no list of
records, would end every reader of its partition at every start. So the batch is opened within bounds, and what cannot
be is handed on as a record that breaks the contract: it is dead-lettered like any other, and the partition goes on. A
batch whose checksum is wrong was damaged where it lies: that still ends the reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka.record import default_records
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

from schemas.opening import opened


def _records(batch: Any) -> Iterator[Any]:
    try:
        batch._maybe_uncompress()
    except MemoryError:
        raise
    except Exception:  # each codec raises its own kinds
        yield _stand_in(batch)
        return
    while True:
        try:
            record = next(batch)
        except StopIteration:
            return
        except Exception:
            yield _stand_in(batch)
            return
        yield record


def _stand_in(batch: Any) -> Any:
    return DefaultRecord(0, batch.last_offset, batch.max_timestamp, batch.timestamp_type, None, None, [])


def guard() -> None:
    """From here on every Kafka client of this process reads so. Calling it again changes nothing."""
    if DefaultRecordBatch.__iter__ is _records:
        return
    for name, codec in (("gzip_decode", 1), ("lz4_decode", 3), ("zstd_decode", 4)):
        setattr(default_records, name, lambda raw, codec=codec: opened(codec, bytes(raw)))
    DefaultRecordBatch.__iter__ = _records
