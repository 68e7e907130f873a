"""Committed offsets: commit, fetch, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from infra.broker.errors import Code
from infra.broker.members import Group
from infra.broker.offsets import Committed
from infra.broker.reply import Call, Deferred

if TYPE_CHECKING:
    from infra.broker.broker import Broker

MAX_METADATA = 4096  # offset.metadata.max.bytes of Apache Kafka
NOTHING = Committed(-1, -1, "")


def commit(broker: Broker, call: Call, request: Any) -> Any:
    """OffsetCommit 2-7: fenced by generation, durable before it is answered."""
    code = broker.coordinator.check_commit(
        request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
    )
    codes: dict[tuple[str, int], Code] = {}
    accepted = []
    for topic in request.topics:
        for part in topic.partitions:
            verdict = code or _check(broker, topic.name, part)
            codes[topic.name, part.partition_index] = verdict
            if verdict is Code.NONE:
                accepted.append(
                    (
                        topic.name,
                        part.partition_index,
                        part.committed_offset,
                        part.committed_leader_epoch,
                        part.committed_metadata or "",
                    )
                )
    if accepted:
        try:
            broker.offsets.commit(request.group_id, accepted)
        except OSError as error:
            broker.storage_trouble("offset commit", error)
            for topic_name, index, *_ in accepted:
                codes[topic_name, index] = Code.COORDINATOR_NOT_AVAILABLE
        broker.flusher.wrote(None)
        if broker.flusher.before_ack:
            return Deferred.of(
                broker.flusher.synced(), lambda error: _committed(broker, call, request, codes, error), pipelined=False
            )
    return _commit_response(request, codes)


def _check(broker: Broker, topic: str, part: Any) -> Code:
    if broker.topics.log(topic, part.partition_index) is None:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    if len((part.committed_metadata or "").encode()) > MAX_METADATA:
        return Code.OFFSET_METADATA_TOO_LARGE
    return Code.NONE


def _committed(
    broker: Broker, call: Call, request: Any, codes: dict[tuple[str, int], Code], error: BaseException | None
) -> bytes:
    if error is not None:
        codes = {key: code or Code.COORDINATOR_NOT_AVAILABLE for key, code in codes.items()}
    return broker.encode(call, _commit_response(request, codes))


def _commit_response(request: Any, codes: dict[tuple[str, int], Code]) -> Any:
    topic_type = OffsetCommitResponse.OffsetCommitResponseTopic
    return OffsetCommitResponse(
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=codes[topic.name, part.partition_index]
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def fetch(broker: Broker, call: Call, request: Any) -> Any:
    """OffsetFetch 1-5; topics null (since 2) means all; -1 where nothing is committed."""
    held = broker.offsets.by_group.get(request.group_id, {})
    if request.topics is None:
        wanted: dict[str, list[int]] = {}
        for topic, partition in sorted(held):
            wanted.setdefault(topic, []).append(partition)
    else:
        wanted = {topic.name: topic.partition_indexes for topic in request.topics}
    topic_type = OffsetFetchResponse.OffsetFetchResponseTopic
    topics = []
    for topic, indexes in wanted.items():
        parts = []
        for index in indexes:
            position = held.get((topic, index), NOTHING)
            parts.append(
                topic_type.OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=position.offset,
                    metadata=position.metadata,
                    committed_leader_epoch=position.leader_epoch,
                    error_code=0,
                )
            )
        topics.append(topic_type(name=topic, partitions=parts))
    return OffsetFetchResponse(topics=topics, error_code=0)


def delete(broker: Broker, call: Call, request: Any) -> Any:
    """OffsetDelete 0: not while a member of the group subscribes to the topic."""
    group = broker.coordinator.groups.get(request.group_id)
    held = broker.offsets.by_group.get(request.group_id)
    if group is None and held is None:
        return OffsetDeleteResponse(error_code=Code.GROUP_ID_NOT_FOUND, topics=[])
    subscribed = _subscriptions(group) if group is not None else set()
    topic_type = OffsetDeleteResponse.OffsetDeleteResponseTopic
    topics, gone = [], []
    for topic in request.topics:
        code = Code.NONE
        if subscribed is None or topic.name in subscribed:
            code = Code.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            gone += [(topic.name, part.partition_index) for part in topic.partitions]
        topics.append(
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=code)
                    for part in topic.partitions
                ],
            )
        )
    try:
        broker.offsets.forget(request.group_id, gone)
    except OSError as error:
        broker.storage_trouble("offset deletion", error)
        return OffsetDeleteResponse(error_code=Code.COORDINATOR_NOT_AVAILABLE, topics=[])
    broker.flusher.wrote(None)
    return OffsetDeleteResponse(error_code=0, topics=topics)


def _subscriptions(group: Group) -> set[str] | None:
    """Topics the members subscribe to; None (= any) when a member's metadata is not the consumer protocol's."""
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(ConsumerProtocolSubscription.decode(member.metadata(group.protocol)).topics)
        except Exception:  # opaque bytes of another client: whatever fails to parse is treated as subscribed
            return None
    return topics
