"""Topic administration: create, delete, grow, configure, delete records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    AlterConfigsResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)

from infra.broker.configs import KNOWN, ConfigSource, ConfigType, Known
from infra.broker.errors import Code, Rejected
from infra.broker.reply import Call

if TYPE_CHECKING:
    from infra.broker.broker import Broker

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def _attempt(broker: Broker, what: str, action: Callable[[], None]) -> tuple[Code, str | None]:
    """Run one part of an administrative request; returns (code, message)."""
    try:
        action()
    except Rejected as rejected:
        return rejected.code, rejected.message
    except OSError as error:
        broker.storage_trouble(what, error)
        return Code.KAFKA_STORAGE_ERROR, f"cannot store the change: {error.strerror}"
    return Code.NONE, None


def create_topics(broker: Broker, call: Call, request: Any) -> Any:
    """CreateTopics 0-4: one replica, on this node."""
    repeated = {name for name, count in Counter(topic.name for topic in request.topics).items() if count > 1}
    results = []
    for topic in request.topics:
        code, message = _attempt(
            broker, f"creation of {topic.name}", partial(_create, broker, topic, request.validate_only, repeated)
        )
        results.append(
            CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
        )
    return CreateTopicsResponse(topics=results)


def _create(broker: Broker, topic: Any, validate_only: bool, repeated: set[str]) -> None:
    if topic.name in repeated:
        raise Rejected(Code.INVALID_REQUEST, "Duplicate topic name.")
    partitions, replicas = topic.num_partitions, topic.replication_factor
    if topic.assignments:
        if any(list(item.broker_ids) != [1] for item in topic.assignments):
            raise Rejected(Code.INVALID_REPLICA_ASSIGNMENT, "the only broker is 1, and it holds the only replica")
        partitions, replicas = len(topic.assignments), 1
    if replicas not in (-1, 1):
        raise Rejected(
            Code.INVALID_REPLICATION_FACTOR, f"replication factor {replicas} on a broker that stands alone; use 1"
        )
    config = {item.name: item.value for item in topic.configs}
    broker.topics.create(topic.name, 1 if partitions == -1 else partitions, config, validate_only)


def delete_topics(broker: Broker, call: Call, request: Any) -> Any:
    """DeleteTopics 0-3; committed offsets of the topic go too."""

    def remove(name: str) -> None:
        broker.topics.delete(name)
        broker.offsets.delete_topic(name)
        broker.flusher.wrote(None)

    results = []
    for name in request.topic_names:
        code, _ = _attempt(broker, f"deletion of {name}", partial(remove, name))
        results.append(DeleteTopicsResponse.DeletableTopicResult(name=name, error_code=code))
    return DeleteTopicsResponse(responses=results)


def create_partitions(broker: Broker, call: Call, request: Any) -> Any:
    """CreatePartitions 0-1."""
    results = []
    for topic in request.topics:
        code, message = _attempt(
            broker,
            f"growth of {topic.name}",
            partial(broker.topics.add_partitions, topic.name, topic.count, request.validate_only),
        )
        results.append(
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=topic.name, error_code=code, error_message=message
            )
        )
    return CreatePartitionsResponse(results=results)


def delete_records(broker: Broker, call: Call, request: Any) -> Any:
    """DeleteRecords 0-1."""
    topic_type = DeleteRecordsResponse.DeleteRecordsTopicResult
    topics = []
    for topic in request.topics:
        parts = []
        for part in topic.partitions:
            low, code = -1, Code.UNKNOWN_TOPIC_OR_PARTITION
            log = broker.topics.log(topic.name, part.partition_index)
            if log is not None:
                try:
                    low, code = log.delete_before(part.offset), Code.NONE
                except Rejected as rejected:
                    code = rejected.code
                except OSError as error:
                    broker.storage_trouble(f"deletion in {topic.name}", error)
                    code = Code.KAFKA_STORAGE_ERROR
            parts.append(
                topic_type.DeleteRecordsPartitionResult(
                    partition_index=part.partition_index, low_watermark=low, error_code=code
                )
            )
        topics.append(topic_type(name=topic.name, partitions=parts))
    return DeleteRecordsResponse(topics=topics)


def describe_configs(broker: Broker, call: Call, request: Any) -> Any:
    """DescribeConfigs 0-3 for topics and for this broker."""
    result = DescribeConfigsResponse.DescribeConfigsResult
    results = []
    for resource in request.resources:
        configs: list[Any] = []
        code, message = Code.NONE, None
        try:
            values = _values(broker, resource.resource_type, resource.resource_name)
            keys = resource.configuration_keys
            configs = [_entry(name, *value) for name, value in sorted(values.items()) if keys is None or name in keys]
        except Rejected as rejected:
            code, message = rejected.code, rejected.message
        results.append(
            result(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
    return DescribeConfigsResponse(results=results)


def _values(broker: Broker, kind: int, name: str) -> dict[str, tuple[str, ConfigSource, Known]]:
    if kind == TOPIC:
        topic = broker.topics.by_name.get(name)
        if topic is None:
            raise Rejected(Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        set_here = topic.config.overrides
        return {
            key: (
                set_here.get(key, known.default),
                ConfigSource.TOPIC if key in set_here else ConfigSource.DEFAULT,
                known,
            )
            for key, known in KNOWN.items()
        }
    if kind == BROKER and name == "1":
        return {
            key: (value, ConfigSource.STATIC_BROKER, Known(ConfigType.STRING, value, lambda text: True))
            for key, value in broker.described_settings().items()
        }
    raise Rejected(Code.INVALID_REQUEST, f"no resource of type {kind} named '{name}' (topics, and broker 1)")


def _entry(name: str, value: str, source: ConfigSource, known: Known) -> Any:
    return DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=source is ConfigSource.STATIC_BROKER,
        config_source=source,
        is_default=source is ConfigSource.DEFAULT,
        is_sensitive=False,
        synonyms=[],
        config_type=known.type,
        documentation=None,
    )


def alter_configs(broker: Broker, call: Call, request: Any) -> Any:
    """AlterConfigs 0-1: the given entries replace all that were set."""
    result = AlterConfigsResponse.AlterConfigsResourceResponse
    return AlterConfigsResponse(
        responses=[_alter(broker, request, resource, result, _replaced) for resource in request.resources]
    )


def incremental_alter_configs(broker: Broker, call: Call, request: Any) -> Any:
    """IncrementalAlterConfigs 0-1: set, delete, append to or subtract from single entries."""
    result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return IncrementalAlterConfigsResponse(
        responses=[_alter(broker, request, resource, result, _changed) for resource in request.resources]
    )


def _alter(
    broker: Broker,
    request: Any,
    resource: Any,
    result: Any,
    change: Callable[[Mapping[str, str], list[Any]], dict[str, str]],
) -> Any:
    def apply() -> None:
        if resource.resource_type != TOPIC:
            raise Rejected(Code.INVALID_REQUEST, "only topic configuration can be altered")
        topic = broker.topics.by_name.get(resource.resource_name)
        before = topic.config.overrides if topic else {}
        broker.topics.configure(resource.resource_name, change(before, resource.configs), request.validate_only)

    code, message = _attempt(broker, "configuration", apply)
    return result(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _replaced(before: Mapping[str, str], changes: list[Any]) -> dict[str, str]:
    return {item.name: item.value for item in changes}


def _changed(before: Mapping[str, str], changes: list[Any]) -> dict[str, str]:
    after = dict(before)
    for item in changes:
        known = KNOWN.get(item.name)
        if known is None:
            raise Rejected(Code.INVALID_CONFIG, f"Unknown topic config name: {item.name}")
        if item.config_operation == SET:
            after[item.name] = item.value
        elif item.config_operation == DELETE:
            after.pop(item.name, None)
        elif item.config_operation in (APPEND, SUBTRACT) and known.type is ConfigType.LIST:
            held = [value for value in after.get(item.name, known.default).split(",") if value]
            listed = [value for value in (item.value or "").split(",") if value]
            adding = item.config_operation == APPEND
            kept = (
                held + [value for value in listed if value not in held]
                if adding
                else [value for value in held if value not in listed]
            )
            after[item.name] = ",".join(kept)
        else:
            raise Rejected(Code.INVALID_REQUEST, f"operation {item.config_operation} does not fit {item.name}")
    return after
