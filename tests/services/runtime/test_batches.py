"""A batch that cannot be opened is one bad record: it stops no reader, and opens nothing without bound."""

import gzip
import resource
import struct
import time

import lz4.frame
import pytest
import zstandard
from crc32c import crc32c

from schemas.opening import MAX_OPENED, TooLarge, opened
from services.runtime.archive import read_raw, spans
from tests.contract.broker.raw import RawClient
from tests.services.runtime.bus import IN, EchoCore, wait_for

PACK = {1: gzip.compress, 2: bytes, 3: lz4.frame.compress, 4: zstandard.ZstdCompressor().compress}


def batch(codec: int, body: bytes, records: int = 1) -> bytes:
    """One record batch with this opened body, whatever it holds."""
    packed = PACK[codec](body) if codec else body
    now_ms = time.time_ns() // 1_000_000  # else retention may be quicker than the reader
    head = struct.pack(">hiqqqhii", codec, records - 1, now_ms, now_ms, -1, -1, -1, records)
    inner = head + packed
    return struct.pack(">qiibI", 0, 9 + len(inner), -1, 2, crc32c(inner)) + inner


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_what_is_too_large_is_not_opened(codec):
    packed = PACK[codec](bytes(4 * MAX_OPENED))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TooLarge):
        opened(codec, packed)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 3 * MAX_OPENED
    assert opened(codec, PACK[codec](b"abc")) == b"abc"


BAD = {
    "gzip": batch(1, bytes(2 * MAX_OPENED)),
    "lz4": batch(3, bytes(2 * MAX_OPENED)),
    "zstd": batch(4, bytes(2 * MAX_OPENED)),
    "no records": batch(0, b"\x7f\x00\x00"),
    "no codec": batch(2, b"", 1),
    "packed nonsense": batch(4, b"\x7f\x00\x00"),
    "too few": batch(0, b"\x02\x00", records=5),
    "a header's name is no text": batch(0, bytes.fromhex("1c0000000202" + "6b" + "0276" + "02" + "04fffe" + "0278")),
}


@pytest.mark.parametrize("kind", list(BAD))
def test_a_batch_that_cannot_be_opened_is_a_dead_letter(bus, kind):
    """The records after it are handled, and a plain reader gets by as well."""
    with RawClient(bus.bootstrap) as client:
        assert client.produce(IN.name, BAD[kind], partition=1).error_code == 0
    bus.send([97])
    running = bus.start(EchoCore).ready()
    wait_for(lambda: 97 in running.core.numbers)
    letters = wait_for(lambda: bus.raw(IN.name + ".dlq"))
    assert {dict(letter.headers)["dlq.reason"] for letter in letters} == {b"key"}
    assert running.finish() == 0
    span = spans(bus.bootstrap, [IN.name])[IN.name, 1]
    assert [record.value for record in read_raw(bus.bootstrap, IN.name, 1, span)][-1] is not None
