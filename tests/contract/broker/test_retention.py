"""Logs that shrink: compaction keeps the last value of each key, retention takes what is old."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from tests.contract.broker.conftest import EXTERNAL, eventually, find_config, producer, read_all
from tests.contract.broker.raw import RawClient, batch

Create = Callable[..., str]
SOON_MS = 1000


@pytest.fixture
def broker_setting(admin: KafkaAdminClient) -> Callable[[str], int]:
    """A number among an Apache Kafka's own settings; 0 on the embedded broker, which looks often."""

    def value(name: str) -> int:
        if not EXTERNAL:
            return 0
        broker = ConfigResource(ConfigResourceType.BROKER, "1")
        return int(find_config(admin.describe_configs([broker], config_filter="all"), name))

    return value


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_compaction_keeps_the_last_value_per_key(
    bootstrap: str, create: Create, codec: str | None, broker_setting: Callable[[str], int]
) -> None:
    """After cleaning, a reader from the start gets each key's last value, in offset order, at its old offset."""
    topic = create(cleanup_policy="compact", segment_ms="200", min_cleanable_dirty_ratio="0.01")
    sender = producer(bootstrap, compression_type=codec, linger_ms=5)
    for version in range(20):
        for key in range(5):
            sender.send(topic, b"%d" % version, b"key-%d" % key)
    sender.flush(20)
    before = read_all(bootstrap, topic)
    last = {record.key: (record.offset, record.value) for record in before}
    time.sleep(0.3)
    sender.send(topic, b"tail", b"tail").get(20)  # rolls the segment
    sender.close()

    def cleaned() -> bool:
        return len(read_all(bootstrap, topic)) <= 6

    seldom = broker_setting("log.cleaner.backoff.ms") > SOON_MS
    try:
        eventually(cleaned, 25 if EXTERNAL else 10)
    except AssertionError:
        if seldom:
            pytest.skip("the cluster's cleaner did not come round in time")
        raise
    records = read_all(bootstrap, topic)
    assert {r.key: (r.offset, r.value) for r in records if r.key != b"tail"} == last
    assert [r.offset for r in records] == sorted(r.offset for r in records)


def test_a_compacted_topic_needs_keys(create: Create, raw: RawClient) -> None:
    """A record without a key would never be cleaned, so it is refused."""
    topic = create(cleanup_policy="compact")
    assert raw.produce(topic, batch([b"v"])).error_code == 87
    assert raw.produce(topic, batch([b"v"], keys=[b"k"])).error_code == 0


def test_old_records_are_taken(
    bootstrap: str, create: Create, admin: KafkaAdminClient, raw: RawClient, broker_setting: Callable[[str], int]
) -> None:
    """retention.ms applies to the record's own time; lowering it later takes effect."""
    if broker_setting("log.retention.check.interval.ms") > SOON_MS:
        pytest.skip("the cluster looks at retention too seldom for a test")
    topic = create()
    now = int(time.time() * 1000)
    raw.produce(topic, batch([b"old"], timestamps=[now - 3_600_000]))
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "60000"})])
    eventually(lambda: read_all(bootstrap, topic) == [])
    answer: Any = raw.produce(topic, batch([b"new"]))
    assert (answer.base_offset, answer.log_start_offset) == (1, 1)
    assert [record.value for record in read_all(bootstrap, topic)] == [b"new"]


def test_log_append_time(bootstrap: str, create: Create) -> None:
    """With LogAppendTime the broker's clock is the record's time, and the batch still checks."""
    topic = create(message_timestamp_type="LogAppendTime")
    sender = producer(bootstrap)
    begin = int(time.time() * 1000) - 1000
    sender.send(topic, b"v", timestamp_ms=1000).get(20)
    sender.close()
    record = read_all(bootstrap, topic)[0]
    assert begin <= record.timestamp <= begin + 60_000
    assert record.timestamp_type == 1
