"""Produce and InitProducerId: records into the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import InitProducerIdResponse

from infra.broker import wire
from infra.broker.errors import Code, ProtocolViolation, Rejected
from infra.broker.reply import Call, Deferred, Reply

if TYPE_CHECKING:
    from infra.broker.broker import Broker

logger = logging.getLogger(__name__)


def produce(broker: Broker, call: Call, frame: memoryview) -> Reply:
    """Append every partition's batch; answer once written (and synced, under `always`)."""
    request = wire.produce_request(frame, call.body)
    answers = [
        (topic, [_append(broker, request, topic, index, records) for index, records in partitions])
        for topic, partitions in request.topics
    ]
    if request.acks == 0:
        for topic, partitions in answers:
            for part in partitions:
                if part.code:  # the only way to tell a producer that does not listen, as Kafka does
                    raise ProtocolViolation(f"produce with acks=0 to {topic}-{part.partition} failed: {part.message}")
        return None
    if broker.flusher.before_ack:
        return Deferred.of(broker.flusher.synced(), lambda error: _encode(call, answers, error), pipelined=True)
    return wire.produce_response(call.correlation_id, call.version, answers)


def _encode(call: Call, answers: list[tuple[str, list[wire.Produced]]], error: BaseException | None) -> bytes:
    if error is not None:
        answers = [
            (
                topic,
                [
                    wire.Produced(p.partition, p.code or Code.KAFKA_STORAGE_ERROR, message=f"sync failed: {error}")
                    for p in parts
                ],
            )
            for topic, parts in answers
        ]
    return wire.produce_response(call.correlation_id, call.version, answers)


def _append(
    broker: Broker, request: wire.ProduceRequest, topic: str, index: int, records: memoryview | None
) -> wire.Produced:
    if request.acks not in (0, 1, -1):
        return wire.Produced(index, Code.INVALID_REQUIRED_ACKS, message=f"acks must be 0, 1 or -1, not {request.acks}")
    log = broker.topics.log(topic, index)
    if log is None:
        return wire.Produced(index, Code.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        if request.transactional:
            raise Rejected(Code.INVALID_RECORD, "this broker serves no transactions")
        if not records:
            raise Rejected(Code.INVALID_RECORD, "no record batch for the partition")
        appended = log.append(records)
    except Rejected as rejected:
        return wire.Produced(index, rejected.code, log_start=log.log_start, message=rejected.message)
    except OSError as error:
        broker.storage_trouble(f"append to {topic}-{index}", error)
        return wire.Produced(index, Code.KAFKA_STORAGE_ERROR, message=f"cannot write to the log: {error.strerror}")
    broker.flusher.wrote(log)
    return wire.Produced(index, Code.NONE, appended.base_offset, appended.append_time_ms, log.log_start)


def init_producer_id(broker: Broker, call: Call, request: Any) -> Any:
    """Give an idempotent producer an id of its own; transactional producers are refused."""
    if request.transactional_id is not None:
        logger.warning("client %s asked for transactions, which are not served", call.client_id)
        refused = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=refused, producer_id=-1, producer_epoch=-1)
    try:
        producer_id = broker.topics.new_producer_id()
    except OSError as error:
        broker.storage_trouble("producer id block", error)
        return InitProducerIdResponse(error_code=Code.COORDINATOR_NOT_AVAILABLE, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(error_code=Code.NONE, producer_id=producer_id, producer_epoch=0)
