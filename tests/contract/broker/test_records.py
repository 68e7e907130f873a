"""Records go in and come out whole, in order and once, whichever client wrote or reads them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import TopicPartition
from kafka.errors import MessageSizeTooLargeError, UnknownTopicOrPartitionError

from tests.contract.broker.conftest import consumer, eventually, patient_commit, producer, read_all
from tests.contract.broker.raw import RawClient, batch

Create = Callable[..., str]
CODECS = [None, "lz4", "zstd", "gzip"]
NONE, CORRUPT, TOO_LARGE, BAD_ACKS, OUT_OF_ORDER, OLD_EPOCH, INVALID_RECORD = 0, 2, 10, 21, 45, 47, 87
INVALID_TIMESTAMP = 32
RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
    (b"key", b"value", [("content-type", b"a"), ("content-type", b"b"), ("empty", b"")]),
    (None, b"no key", []),
    (b"tombstone", None, []),
    (b"", b"", [("trace", bytes(range(256)))]),
]


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_round_trip(bootstrap: str, create: Create, codec: str | None) -> None:
    """Keys, values (null and empty too) and repeated headers survive, for every codec."""
    topic = create()
    sender = producer(bootstrap, compression_type=codec, linger_ms=20)
    futures = [sender.send(topic, value, key, headers) for key, value, headers in RECORDS]
    assert [future.get(20).offset for future in futures] == [0, 1, 2, 3]
    sender.close()
    got = [(record.key, record.value, list(record.headers)) for record in read_all(bootstrap, topic)]
    assert got == RECORDS


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_aiokafka_round_trip(bootstrap: str, create: Create, codec: str | None) -> None:
    """aiokafka (Faust's client) writes and reads the same records."""
    topic = create()

    async def run() -> list[Any]:
        sender = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, compression_type=codec)
        await sender.start()
        for key, value, headers in RECORDS:
            await sender.send_and_wait(topic, value, key, headers=headers)
        await sender.stop()
        reader = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await reader.start()
        reader.assign([TopicPartition(topic, 0)])
        out = [await asyncio.wait_for(reader.getone(), 15) for _ in RECORDS]
        await reader.stop()
        return out

    got = asyncio.run(run())
    assert [(record.key, record.value, list(record.headers)) for record in got] == RECORDS


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_librdkafka_round_trip(bootstrap: str, create: Create, name: str, codec: str) -> None:
    """confluent-kafka writes and reads the same records, and kafka-python reads what it wrote."""
    topic = create()
    sender = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec, "linger.ms": 5}
    )
    for key, value, headers in RECORDS:
        sender.produce(topic, value, key, headers=headers)
    assert sender.flush(20) == 0
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    )
    reader.subscribe([topic])
    got: list[Any] = []
    eventually(lambda: got.extend(reader.consume(10, 0.2)) or len(got) >= len(RECORDS))
    reader.close()
    assert [(m.key(), m.value(), m.headers() or []) for m in got] == RECORDS
    assert [(r.key, r.value, list(r.headers)) for r in read_all(bootstrap, topic)] == RECORDS


def test_order_and_offsets_per_partition(bootstrap: str, create: Create) -> None:
    """Each partition's offsets are 0..n-1 and its records come in the order sent, over many small batches."""
    topic = create(3)
    sender = producer(bootstrap)
    for number in range(600):
        sender.send(topic, b"%d" % number, partition=number % 3)
    sender.flush(20)
    sender.close()
    for partition in range(3):
        records = read_all(bootstrap, topic, partition)
        assert [record.offset for record in records] == list(range(200))
        assert [int(record.value) for record in records] == list(range(partition, 600, 3))


def test_a_retried_batch_is_stored_once(bootstrap: str, create: Create, raw: RawClient) -> None:
    """The same batch sent again gets its first offset again; a gap and an old epoch are refused."""
    topic, producer_id = create(), raw.producer_id()
    first, second = batch([b"a", b"b"], (producer_id, 0, 0)), batch([b"c"], (producer_id, 0, 2))
    assert (raw.produce(topic, first).error_code, raw.produce(topic, second).base_offset) == (NONE, 2)
    again = raw.produce(topic, first)
    assert (again.error_code, again.base_offset) == (NONE, 0)
    assert raw.produce(topic, batch([b"x"], (producer_id, 0, 9))).error_code == OUT_OF_ORDER
    assert raw.produce(topic, batch([b"x"], (producer_id, 1, 4))).error_code == OUT_OF_ORDER
    assert raw.produce(topic, batch([b"d"], (producer_id, 1, 0))).error_code == NONE
    assert raw.produce(topic, batch([b"x"], (producer_id, 0, 3))).error_code == OLD_EPOCH
    assert [record.value for record in read_all(bootstrap, topic)] == [b"a", b"b", b"c", b"d"]


def test_five_batches_are_remembered(create: Create, raw: RawClient) -> None:
    """A producer may have five batches in flight, so each of the last five is recognised when it comes again."""
    topic, producer_id = create(), raw.producer_id()
    sent = [batch([b"v"], (producer_id, 0, number)) for number in range(8)]
    for number, data in enumerate(sent):
        assert raw.produce(topic, data).base_offset == number
    for number in range(3, 8):
        assert raw.produce(topic, sent[number]).base_offset == number
    assert raw.produce(topic, sent[0]).error_code == OUT_OF_ORDER


def test_producer_ids_differ(raw: RawClient) -> None:
    """No two producers share an id."""
    assert len({raw.producer_id() for _ in range(10)}) == 10


def test_damaged_batches_are_refused(bootstrap: str, create: Create, raw: RawClient) -> None:
    """A flipped bit, a cut batch, two batches, none: each has its code, and nothing is stored."""
    topic = create()
    flipped = bytearray(batch([b"value"]))
    flipped[-2] ^= 0x10
    assert raw.produce(topic, bytes(flipped)).error_code == CORRUPT
    assert raw.produce(topic, batch([b"value"])[:-3]).error_code == INVALID_RECORD
    assert raw.produce(topic, batch([b"a"]) + batch([b"b"])).error_code == INVALID_RECORD
    assert raw.produce(topic, b"").error_code == INVALID_RECORD
    assert raw.produce(topic, batch([b"a"]), acks=7).error_code == BAD_ACKS
    assert read_all(bootstrap, topic) == []


def test_a_producer_whose_clock_is_wrong(bootstrap: str, create: Create, raw: RawClient) -> None:
    """More than an hour ahead is refused, behind is taken, unless the topic says otherwise."""
    hour, now = 3_600_000, int(time.time() * 1000)
    usual, any_time, stamped = (
        create(),
        create(message_timestamp_after_max_ms=str(2**63 - 1)),
        create(message_timestamp_type="LogAppendTime"),
    )
    late = create(message_timestamp_before_max_ms=str(hour))
    ahead, behind = batch([b"v"], timestamps=[now + hour + 60_000]), batch([b"v"], timestamps=[now - hour - 60_000])
    assert raw.produce(usual, ahead).error_code == INVALID_TIMESTAMP
    assert raw.produce(usual, batch([b"v"], timestamps=[now + hour - 60_000])).error_code == NONE
    assert raw.produce(usual, behind).error_code == NONE
    assert raw.produce(late, behind).error_code == INVALID_TIMESTAMP
    assert raw.produce(any_time, ahead).error_code == NONE
    assert raw.produce(stamped, ahead).error_code == NONE


def test_size_limit_of_a_topic(bootstrap: str, create: Create, raw: RawClient) -> None:
    """max.message.bytes is enforced with the error clients know; below it large records pass whole."""
    small, large = create(), create(max_message_bytes="9000000")
    assert raw.produce(small, batch([bytes(2_000_000)])).error_code == TOO_LARGE
    sender = producer(bootstrap, max_request_size=10_000_000)
    with pytest.raises(MessageSizeTooLargeError):
        sender.send(small, bytes(2_000_000)).get(20)
    sender.close()
    sender = producer(bootstrap, max_request_size=10_000_000)  # the refusal was fatal to the idempotent producer
    value = bytes(range(256)) * 31_250
    sender.send(large, value).get(20)
    sender.send(large, b"after").get(20)
    sender.close()
    assert [record.value for record in read_all(bootstrap, large)] == [value, b"after"]


def test_unknown_topics_stay_unknown(bootstrap: str, name: str, raw: RawClient, admin: Any) -> None:
    """Producing to, reading from and asking about a topic nobody created neither works nor creates it."""
    assert raw.produce(name, batch([b"a"])).error_code == 3
    sender = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": 1500, "allow.auto.create.topics": True}
    )
    failures: list[int] = []
    sender.produce(name, b"x", on_delivery=lambda error, _: failures.append(error.code()))
    sender.flush(10)
    assert len(failures) == 1
    assert admin.describe_topics([name])[0]["error_code"] == UnknownTopicOrPartitionError.errno
    assert name not in admin.list_topics()


def test_read_committed_readers_see_everything(bootstrap: str, create: Create, name: str) -> None:
    """Without transactions every record is stable: read_committed members read and commit like the others."""
    topic = create()
    sender = producer(bootstrap)
    for number in range(5):
        sender.send(topic, b"%d" % number).get(10)
    sender.close()
    reader = consumer(bootstrap, topic, group_id=name, isolation_level="read_committed")
    got: list[bytes] = []

    def collect() -> bool:
        got.extend(record.value for records in reader.poll(200).values() for record in records)
        return len(got) == 5

    eventually(collect)
    patient_commit(reader)
    assert reader.committed(TopicPartition(topic, 0)) == 5
    reader.close()


def test_a_waiting_reader_is_woken(bootstrap: str, create: Create) -> None:
    """A fetch that waits gets a record long before its deadline, and a fetch outside the log is told so."""
    topic = create()
    reader = consumer(bootstrap, fetch_max_wait_ms=1500, request_timeout_ms=30_000)
    reader.assign([TopicPartition(topic, 0)])
    assert reader.poll(300) == {}
    sender = producer(bootstrap)
    sender.send(topic, b"now").get(10)
    begin = time.monotonic()
    got = reader.poll(5000)
    assert time.monotonic() - begin < 1.0
    assert [record.value for records in got.values() for record in records] == [b"now"]
    reader.seek(TopicPartition(topic, 0), 1000)  # outside: the consumer falls back to the earliest record
    got = {}
    eventually(lambda: bool(got.update(reader.poll(500)) or got))
    assert [record.offset for records in got.values() for record in records] == [0]
    reader.close()
    sender.close()
