"""The table of served requests: key, versions, message class, handler. What is not here closes the connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol import admin as admin_messages
from kafka.protocol import consumer as consumer_messages
from kafka.protocol import metadata as metadata_messages
from kafka.protocol import producer as producer_messages

from infra.broker import wire
from infra.broker.api import admin, fetch, groups, metadata, offsets, produce
from infra.broker.errors import Code, ProtocolViolation
from infra.broker.reply import Call, Deferred, Reply

if TYPE_CHECKING:
    from infra.broker.broker import Broker

Raw = Callable[["Broker", Call, memoryview], Reply]
Decoded = Callable[["Broker", Call, Any], Any]
API_VERSIONS = 18


class Api(NamedTuple):
    """One request: `raw` handlers take the frame, the others the message that kafka-python decodes."""

    name: str
    lowest: int
    highest: int
    raw: Raw | None = None
    message: Any = None
    handler: Decoded | None = None


def _api(name: str, lowest: int, highest: int, module: Any, handler: Decoded) -> Api:
    return Api(name, lowest, highest, message=getattr(module, name + "Request"), handler=handler)


SERVED: dict[int, Api] = {
    0: Api("Produce", 3, 8, raw=produce.produce),
    1: Api("Fetch", 4, 11, raw=fetch.fetch),
    2: _api("ListOffsets", 1, 5, consumer_messages, metadata.list_offsets),
    3: _api("Metadata", 0, 8, metadata_messages, metadata.metadata),
    8: _api("OffsetCommit", 2, 7, consumer_messages, offsets.commit),
    9: _api("OffsetFetch", 1, 5, consumer_messages, offsets.fetch),
    10: _api("FindCoordinator", 0, 2, metadata_messages, metadata.find_coordinator),
    11: _api("JoinGroup", 0, 5, consumer_messages, groups.join),
    12: _api("Heartbeat", 0, 3, consumer_messages, groups.heartbeat),
    13: _api("LeaveGroup", 0, 3, consumer_messages, groups.leave),
    14: _api("SyncGroup", 0, 3, consumer_messages, groups.sync),
    15: _api("DescribeGroups", 0, 4, admin_messages, groups.describe),
    16: _api("ListGroups", 0, 5, admin_messages, groups.list_all),
    API_VERSIONS: Api("ApiVersions", 0, 3),
    19: _api("CreateTopics", 0, 4, admin_messages, admin.create_topics),
    20: _api("DeleteTopics", 0, 3, admin_messages, admin.delete_topics),
    21: _api("DeleteRecords", 0, 1, admin_messages, admin.delete_records),
    22: _api("InitProducerId", 0, 1, producer_messages, produce.init_producer_id),
    23: _api("OffsetForLeaderEpoch", 2, 3, consumer_messages, metadata.offset_for_leader_epoch),
    32: _api("DescribeConfigs", 0, 3, admin_messages, admin.describe_configs),
    33: _api("AlterConfigs", 0, 1, admin_messages, admin.alter_configs),
    37: _api("CreatePartitions", 0, 1, admin_messages, admin.create_partitions),
    42: _api("DeleteGroups", 0, 1, admin_messages, groups.delete),
    44: _api("IncrementalAlterConfigs", 0, 1, admin_messages, admin.incremental_alter_configs),
    47: _api("OffsetDelete", 0, 0, consumer_messages, offsets.delete),
    60: _api("DescribeCluster", 0, 1, admin_messages, metadata.describe_cluster),
}


def serve(broker: Broker, head: wire.RequestHead, call: Call, frame: memoryview) -> Reply:
    """Answer one request; raises ProtocolViolation when the connection must be closed instead."""
    if head.api_key == API_VERSIONS:
        return _api_versions(call)
    api = SERVED.get(head.api_key)
    if api is None:
        raise ProtocolViolation(f"request {head.api_key} from client {head.client_id!r} is not served")
    if not api.lowest <= head.version <= api.highest:
        raise ProtocolViolation(
            f"{api.name} version {head.version} from client {head.client_id!r}; served are {api.lowest}-{api.highest}"
        )
    if api.raw is not None:
        return api.raw(broker, call, frame)
    try:
        request = api.message.decode(frame, version=head.version, header=True)
    except Exception as error:  # whatever the generated decoder trips over: struct.error, ValueError, IndexError...
        raise ProtocolViolation(f"{api.name} version {head.version} does not decode: {error}") from error
    assert api.handler is not None
    response = api.handler(broker, call, request)
    if isinstance(response, Deferred):
        return response
    return encode(call, response)


def encode(call: Call, response: Any) -> bytes:
    """A framed response at the request's version."""
    response.API_VERSION = call.version  # first: with a header, the setter expects a request's
    response.with_header(correlation_id=call.correlation_id)
    return bytes(response.encode(header=True, framed=True))


def _api_versions(call: Call) -> bytes:
    """KIP-511: a version above ours is answered with error 35 in the version 0 layout, and the client tries again."""
    response_class = metadata_messages.ApiVersionsResponse
    highest = SERVED[API_VERSIONS].highest
    known = 0 <= call.version <= highest
    response = response_class(
        error_code=Code.NONE if known else Code.UNSUPPORTED_VERSION,
        api_keys=[
            response_class.ApiVersion(api_key=key, min_version=api.lowest, max_version=api.highest)
            for key, api in sorted(SERVED.items())
        ],
    )
    return encode(call if known else call._replace(version=0), response)
