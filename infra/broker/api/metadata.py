"""What a client asks first: versions, cluster and topic metadata, the group coordinator, offsets by time and epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeClusterResponse
from kafka.protocol.consumer import ListOffsetsResponse, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from infra.broker.errors import Code
from infra.broker.reply import Call
from infra.broker.topics import legal

if TYPE_CHECKING:
    from infra.broker.broker import Broker
    from infra.broker.log import PartitionLog

NODE_ID = 1
LATEST, EARLIEST = -1, -2


def metadata(broker: Broker, call: Call, request: Any) -> Any:
    """Brokers and topics; an unknown topic is an error per topic, never created."""
    wanted = request.topics
    everything = wanted is None or (call.version == 0 and not wanted)
    names = sorted(broker.topics.by_name) if everything else [topic.name for topic in wanted]
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=NODE_ID, host=broker.advertised[0], port=broker.advertised[1]
            )
        ],
        cluster_id=broker.topics.cluster_id,
        controller_id=NODE_ID,
        topics=[_topic(broker, name) for name in names],
    )


def _topic(broker: Broker, name: str) -> Any:
    response = MetadataResponse.MetadataResponseTopic
    topic = broker.topics.by_name.get(name)
    if topic is None:
        code = Code.UNKNOWN_TOPIC_OR_PARTITION if legal(name) else Code.INVALID_TOPIC
        return response(error_code=code, name=name, partitions=[])
    partitions = [
        response.MetadataResponsePartition(
            error_code=0,
            partition_index=index,
            leader_id=NODE_ID,
            leader_epoch=log.epoch,
            replica_nodes=[NODE_ID],
            isr_nodes=[NODE_ID],
            offline_replicas=[],
        )
        for index, log in enumerate(topic.logs)
    ]
    return response(error_code=0, name=name, is_internal=False, partitions=partitions)


def describe_cluster(broker: Broker, call: Call, request: Any) -> Any:
    """The one node."""
    return DescribeClusterResponse(
        error_code=0,
        endpoint_type=1,
        cluster_id=broker.topics.cluster_id,
        controller_id=NODE_ID,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=NODE_ID, host=broker.advertised[0], port=broker.advertised[1], rack=None
            )
        ],
    )


def find_coordinator(broker: Broker, call: Call, request: Any) -> Any:
    """This node coordinates every group. Transactions get the one refusal that every client takes as final."""
    if request.key_type != 0:
        return FindCoordinatorResponse(
            error_code=Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            node_id=-1,
            host="",
            port=-1,
            error_message="this broker serves no transactions",
        )
    return FindCoordinatorResponse(error_code=0, node_id=NODE_ID, host=broker.advertised[0], port=broker.advertised[1])


def _epoch_error(log: PartitionLog | None, epoch: int) -> Code:
    if log is None:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    if 0 <= epoch != log.epoch:
        return Code.FENCED_LEADER_EPOCH if epoch < log.epoch else Code.UNKNOWN_LEADER_EPOCH
    return Code.NONE


def list_offsets(broker: Broker, call: Call, request: Any) -> Any:
    """Earliest, latest, or first at a time, per partition."""
    topic_type = ListOffsetsResponse.ListOffsetsTopicResponse
    topics = []
    for topic in request.topics:
        answers = [_offset(broker, topic.name, part) for part in topic.partitions]
        topics.append(topic_type(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _offset(broker: Broker, topic: str, part: Any) -> Any:
    answer = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse
    log = broker.topics.log(topic, part.partition_index)
    code = _epoch_error(log, part.current_leader_epoch)
    if log is None or code:
        return answer(partition_index=part.partition_index, error_code=code)
    if part.timestamp in (LATEST, EARLIEST):
        offset = log.log_end if part.timestamp == LATEST else log.log_start
        return answer(
            partition_index=part.partition_index, error_code=0, timestamp=-1, offset=offset, leader_epoch=log.epoch
        )
    if part.timestamp < 0:
        return answer(partition_index=part.partition_index, error_code=Code.UNSUPPORTED_VERSION)
    try:
        found = log.offset_for_time(part.timestamp)
    except OSError as error:
        broker.storage_trouble(f"search in {topic}", error)
        return answer(partition_index=part.partition_index, error_code=Code.KAFKA_STORAGE_ERROR)
    timestamp, offset = found or (-1, -1)
    return answer(
        partition_index=part.partition_index, error_code=0, timestamp=timestamp, offset=offset, leader_epoch=log.epoch
    )


def offset_for_leader_epoch(broker: Broker, call: Call, request: Any) -> Any:
    """Where an epoch ended, so that a client finds out whether the log was cut below what it has read."""
    topic_type = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    topics = []
    for topic in request.topics:
        answers = []
        for part in topic.partitions:
            log = broker.topics.log(topic.topic, part.partition)
            code = _epoch_error(log, part.current_leader_epoch)
            epoch, end = (-1, -1) if log is None or code else log.end_for_epoch(part.leader_epoch)
            answers.append(
                topic_type.EpochEndOffset(error_code=code, partition=part.partition, leader_epoch=epoch, end_offset=end)
            )
        topics.append(topic_type(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)
