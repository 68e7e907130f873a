"""The cluster under test, and small helpers around kafka-python."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import RebalanceInProgressError
from kafka.structs import OffsetAndMetadata

from infra.broker.testing import running_broker
from tests.contract.broker.raw import RawClient

EXTERNAL = os.environ.get("KAFKA_BOOTSTRAP")


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the cluster: KAFKA_BOOTSTRAP, or an embedded broker for this session."""
    if EXTERNAL:
        yield EXTERNAL
        return
    data = tmp_path_factory.mktemp("broker") / "data"
    with running_broker(data, housekeeping_ms=200, initial_delay_ms=0, log_level="ERROR") as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(bootstrap) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name nobody else uses, for topics and groups."""
    return f"contract.{uuid.uuid4().hex[:10]}"


@pytest.fixture
def create(admin: KafkaAdminClient, bootstrap: str) -> Callable[..., str]:
    """Create a topic with a unique name and wait until it is led."""

    def make(partitions: int = 1, **config: str) -> str:
        topic = f"contract.{uuid.uuid4().hex[:10]}"
        configs = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
        eventually(lambda: len(partitions_of(admin, topic)) == partitions)
        return topic

    return make


@pytest.fixture(scope="session")
def shortest_session(admin: KafkaAdminClient) -> int:
    """The shortest session timeout (ms) that the cluster grants."""
    config = admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "1")], config_filter="all")
    return int(find_config(config, "group.min.session.timeout.ms"))


def find_config(described: Any, key: str) -> str:
    """The value of one entry anywhere in what describe_configs returned."""
    if isinstance(described, dict):
        if key in described:
            found = described[key]
            return str(found["value"] if isinstance(found, dict) else found)
        if described.get("name") == key:
            return str(described["value"])
    items = described.values() if isinstance(described, dict) else described if isinstance(described, list) else ()
    for item in items:
        if isinstance(item, (dict, list)):
            try:
                return find_config(item, key)
            except KeyError:
                continue
    raise KeyError(key)


def partitions_of(admin: KafkaAdminClient, topic: str) -> list[Any]:
    """Partitions of a topic that have a leader; empty while it is unknown."""
    for described in admin.describe_topics([topic]):
        if described.get("error_code") == 0:
            return [part for part in described["partitions"] if part["leader_id"] >= 0]
    return []


def eventually(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait until `condition` holds; AssertionError when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def patient_commit(reader: KafkaConsumer, offsets: dict[TopicPartition, OffsetAndMetadata] | None = None) -> None:
    """Commit; a rebalance that just began (the member's metadata came late) is joined and done with first.

    For readers that expect no more records: what they are given meanwhile is dropped.
    """

    def committed() -> bool:
        with contextlib.suppress(RebalanceInProgressError):
            reader.commit(offsets)
            return True
        reader.poll(2000)  # a shorter poll would cut the try to join again
        return False

    eventually(committed, 30)


def producer(bootstrap: str, **options: Any) -> KafkaProducer:
    settings = {"enable_idempotence": True, "acks": "all", "allow_auto_create_topics": False} | options
    return KafkaProducer(bootstrap_servers=bootstrap, **settings)


def consumer(bootstrap: str, *topics: str, **options: Any) -> KafkaConsumer:
    settings = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
    } | options
    reader = KafkaConsumer(bootstrap_servers=bootstrap, **settings)
    if topics:
        # kafka-python 3.0.12 forgets to ask for new topics while its first metadata request is in flight (a known gap
        # in its cluster.set_topics), then waits metadata_max_age_ms: let it know the topics before it joins.
        for topic in topics:
            reader.partitions_for_topic(topic)
        reader.subscribe(topics)
    return reader


def read_all(bootstrap: str, topic: str, partition: int = 0, start: int | None = None) -> list[Any]:
    """Every record of a partition from `start` (or the earliest) to its present end."""
    reader = consumer(bootstrap)
    try:
        tp = TopicPartition(topic, partition)
        reader.assign([tp])
        end = reader.end_offsets([tp])[tp]
        if start is None:
            reader.seek_to_beginning(tp)
        else:
            reader.seek(tp, start)
        out: list[Any] = []
        deadline = time.monotonic() + 20
        while reader.position(tp) < end:
            assert time.monotonic() < deadline, f"got {len(out)} records, position {reader.position(tp)} of {end}"
            out += reader.poll(200).get(tp, [])
        return out
    finally:
        reader.close()
