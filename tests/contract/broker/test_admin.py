"""Topics: created, described, grown, configured, deleted as kafka-python's, aiokafka's and librdkafka's admins do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import confluent_kafka.admin
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.protocol.admin import DescribeConfigsRequest

from tests.contract.broker.conftest import eventually, find_config, partitions_of, producer, read_all
from tests.contract.broker.raw import RawClient

Create = Callable[..., str]
EXISTS, BAD_NAME, BAD_PARTITIONS, BAD_REPLICAS, BAD_CONFIG, UNKNOWN, OUT_OF_RANGE = 36, 17, 37, 38, 40, 3, 1


def _create_error(admin: KafkaAdminClient, topic: NewTopic, **options: Any) -> int:
    return int(admin.create_topics([topic], raise_errors=False, **options)["topics"][0]["error_code"])


def _configs(admin: KafkaAdminClient, topic: str, which: str = "modified") -> Any:
    return admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter=which)


def test_creation_errors(admin: KafkaAdminClient, create: Create, name: str) -> None:
    """Each mistake has its own code, and none leaves a topic behind."""
    existing = create()
    assert _create_error(admin, NewTopic(existing, 1, 1)) == EXISTS
    assert _create_error(admin, NewTopic("bad/name", 1, 1)) == BAD_NAME
    assert _create_error(admin, NewTopic("..", 1, 1)) == BAD_NAME
    assert _create_error(admin, NewTopic(name, 0, 1)) == BAD_PARTITIONS
    assert _create_error(admin, NewTopic(name, 1, 9)) == BAD_REPLICAS
    assert _create_error(admin, NewTopic(name, 1, 1, topic_configs={"no.such": "1"})) == BAD_CONFIG
    assert _create_error(admin, NewTopic(name, 1, 1, topic_configs={"retention.ms": "soon"})) == BAD_CONFIG
    assert _create_error(admin, NewTopic(name, 1, 1), validate_only=True) == 0
    assert admin.describe_topics([name])[0]["error_code"] == UNKNOWN


def test_growing_a_topic(admin: KafkaAdminClient, create: Create, bootstrap: str) -> None:
    """Partitions can be added, never taken away, and new ones take records."""
    topic = create(2)
    admin.create_partitions({topic: NewPartitions(5)})
    eventually(lambda: len(partitions_of(admin, topic)) == 5)
    refused = admin.create_partitions({topic: NewPartitions(3)}, raise_errors=False)
    assert refused.results[0].error_code == BAD_PARTITIONS
    sender = producer(bootstrap)
    sender.send(topic, b"in the new one", partition=4).get(20)
    sender.close()
    assert [record.value for record in read_all(bootstrap, topic, 4)] == [b"in the new one"]


def test_configuration(admin: KafkaAdminClient, create: Create) -> None:
    """Configuration is described with its source, altered entry by entry, reset, and refused when wrong."""
    topic = create(retention_ms="1000000")
    assert find_config(_configs(admin, topic), "retention.ms") == "1000000"
    assert find_config(_configs(admin, topic, "all"), "cleanup.policy") == "delete"
    resource = ConfigResourceType.TOPIC
    admin.alter_configs([ConfigResource(resource, topic, {"segment.ms": "5000", "cleanup.policy": "compact"})])
    eventually(lambda: find_config(_configs(admin, topic, "all"), "segment.ms") == "5000")
    assert find_config(_configs(admin, topic), "retention.ms") == "1000000"
    admin.reset_configs([ConfigResource(resource, topic, ["cleanup.policy"])])
    eventually(lambda: find_config(_configs(admin, topic, "all"), "cleanup.policy") == "delete")
    answer = repr(admin.alter_configs([ConfigResource(resource, topic, {"retention.ms": "soon"})]))
    assert "InvalidConfigurationError" in answer
    assert find_config(_configs(admin, topic), "retention.ms") == "1000000"


def test_deleting_a_topic(admin: KafkaAdminClient, create: Create, bootstrap: str) -> None:
    """A deleted topic is unknown; created again under its name it is empty and starts at offset 0."""
    topic = create()
    sender = producer(bootstrap)
    sender.send(topic, b"old").get(20)
    sender.close()
    admin.delete_topics([topic])
    eventually(lambda: admin.describe_topics([topic])[0]["error_code"] == UNKNOWN)
    gone = admin.delete_topics([topic], raise_errors=False)
    assert gone["topics"][0]["error_code"] == UNKNOWN
    eventually(lambda: _create_error(admin, NewTopic(topic, 1, 1)) in (0, EXISTS))
    eventually(lambda: len(partitions_of(admin, topic)) == 1)
    assert read_all(bootstrap, topic) == []
    sender = producer(bootstrap)
    assert sender.send(topic, b"new").get(20).offset == 0
    sender.close()


def test_deleting_records(admin: KafkaAdminClient, create: Create, bootstrap: str) -> None:
    """Records before an offset become unreadable; the log keeps its end; an offset beyond it is refused."""
    topic = create()
    sender = producer(bootstrap)
    for number in range(10):
        sender.send(topic, b"%d" % number).get(20)
    admin.delete_records({TopicPartition(topic, 0): 6})
    assert [record.offset for record in read_all(bootstrap, topic)] == [6, 7, 8, 9]
    with pytest.raises(Exception, match="OffsetOutOfRange"):
        admin.delete_records({TopicPartition(topic, 0): 99})
    admin.delete_records({TopicPartition(topic, 0): -1})
    assert read_all(bootstrap, topic) == []
    assert sender.send(topic, b"next").get(20).offset == 10
    sender.close()


def test_cluster_description(admin: KafkaAdminClient, bootstrap: str) -> None:
    """One cluster id, and every broker has an address."""
    cluster = admin.describe_cluster()
    assert cluster["cluster_id"]
    assert all(broker["port"] > 0 for broker in cluster["brokers"])


def test_unknown_topic_has_no_configuration(raw: RawClient, name: str) -> None:
    """Asking for the configuration of nothing is an error, not an empty answer."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=name, configuration_keys=None
    )
    answer = raw.ask(DescribeConfigsRequest(resources=[resource]), 1)
    assert answer.results[0].error_code == UNKNOWN


def test_aiokafka_admin_as_faust_uses_it(bootstrap: str, admin: KafkaAdminClient, name: str) -> None:
    """Faust creates compacted changelogs through aiokafka and tolerates that they exist."""

    async def run() -> list[int]:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        topic = AioNewTopic(
            name,
            3,
            1,
            topic_configs={
                "cleanup.policy": "compact,delete",
                "retention.ms": "86400000",
                "delete.retention.ms": "100",
            },
        )
        codes = [(await client.create_topics([topic])).topic_errors[0][1] for _ in range(2)]
        await client.close()
        return codes

    assert asyncio.run(run()) == [0, EXISTS]
    eventually(lambda: len(partitions_of(admin, name)) == 3)


def test_librdkafka_admin(bootstrap: str, name: str) -> None:
    """confluent-kafka's admin creates, describes, configures, lists and deletes."""
    client = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([confluent_kafka.admin.NewTopic(name, 2, 1)])[name].result(15)
    eventually(lambda: len(client.list_topics(name, 10).topics[name].partitions) == 2)
    resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ConfigResource.Type.TOPIC, name)
    entry = confluent_kafka.admin.ConfigEntry(
        "retention.ms", "123456", incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET
    )
    resource.add_incremental_config(entry)
    client.incremental_alter_configs([resource])[resource].result(15)
    plain = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ConfigResource.Type.TOPIC, name)
    eventually(lambda: client.describe_configs([plain])[plain].result(15)["retention.ms"].value == "123456")
    client.delete_topics([name])[name].result(15)
    eventually(lambda: name not in client.list_topics(timeout=10).topics)
