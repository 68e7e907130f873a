"""Positions: found by time, committed, fetched, counted as lag, deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.contract.broker.conftest import consumer, eventually, producer
from tests.contract.broker.raw import RawClient, batch

Create = Callable[..., str]


@pytest.mark.parametrize("codec", [0, 3, 4])
def test_offsets_by_time(bootstrap: str, create: Create, raw: RawClient, codec: int) -> None:
    """The first record at or after a time is found exactly, inside (compressed) batches too."""
    topic = create()
    start = int(time.time() * 1000) - 1_000_000
    for number in range(10):
        stamps = [start + 1000 * number + 100 * n for n in range(5)]
        assert raw.produce(topic, batch([b"v"] * 5, timestamps=stamps, codec=codec)).error_code == 0
    reader, tp = consumer(bootstrap), TopicPartition(topic, 0)
    wanted = {start - 5: 0, start: 0, start + 1: 1, start + 400: 4, start + 401: 5, start + 9400: 49}
    for stamp, offset in wanted.items():
        found = reader.offsets_for_times({tp: stamp})[tp]
        assert found.offset == offset
        assert found.timestamp >= stamp
    assert reader.offsets_for_times({tp: start + 9401})[tp] is None
    assert (reader.beginning_offsets([tp])[tp], reader.end_offsets([tp])[tp]) == (0, 50)
    reader.close()


def test_committed_offsets_come_back(bootstrap: str, create: Create, name: str) -> None:
    """A commit with metadata is there for the next member, and for other partitions there is none."""
    topic = create(2)
    tp, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    first = consumer(bootstrap, group_id=name)
    first.assign([tp, other])
    first.commit({tp: OffsetAndMetadata(7, "where I was", -1)})
    first.close()
    second = consumer(bootstrap, group_id=name)
    second.assign([tp, other])
    assert second.committed(tp) == 7
    assert second.committed(tp, metadata=True).metadata == "where I was"
    assert second.committed(other) is None
    second.close()


def test_lag_from_the_outside(bootstrap: str, create: Create, name: str, admin: KafkaAdminClient) -> None:
    """A lag tool sees end offset minus committed offset without being a member."""
    topic = create()
    tp = TopicPartition(topic, 0)
    sender = producer(bootstrap)
    for _ in range(20):
        sender.send(topic, b"x")
    sender.flush(20)
    sender.close()
    reader = consumer(bootstrap, topic, group_id=name)
    got: list[Any] = []
    eventually(lambda: got.extend(r for rs in reader.poll(200).values() for r in rs) or len(got) == 20)
    reader.commit({tp: OffsetAndMetadata(15, "", -1)})
    committed = admin.list_group_offsets({name: None})[name][tp].offset
    end = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": name + ".tool"})
    _, high = end.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=10)
    end.close()
    assert high - committed == 5
    reader.close()


def test_offsets_of_a_group_can_be_deleted(bootstrap: str, create: Create, name: str, admin: KafkaAdminClient) -> None:
    """An empty group's offsets can be dropped one by one, and the whole group then deleted."""
    topic = create(2)
    reader = consumer(bootstrap, group_id=name)
    parts = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    reader.assign(parts)
    reader.commit({tp: OffsetAndMetadata(3, "", -1) for tp in parts})
    reader.close()
    admin.delete_group_offsets(name, [parts[0]])
    assert set(admin.list_group_offsets({name: None})[name]) == {parts[1]}
    admin.delete_groups([name])
    assert admin.list_group_offsets({name: None})[name] == {}


def test_deleting_a_topic_drops_its_offsets(bootstrap: str, create: Create, name: str, admin: KafkaAdminClient) -> None:
    """A topic created again does not inherit the positions of the one before."""
    topic = create()
    reader = consumer(bootstrap, group_id=name)
    tp = TopicPartition(topic, 0)
    reader.assign([tp])
    reader.commit({tp: OffsetAndMetadata(3, "", -1)})
    reader.close()
    admin.delete_topics([topic])
    eventually(lambda: tp not in admin.list_group_offsets({name: None}).get(name, {}))
