"""The edges of the protocol: version negotiation, noise, and what one client cannot do to another."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable

import pytest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest

from tests.contract.broker.conftest import read_all
from tests.contract.broker.raw import RawClient, batch

Create = Callable[..., str]


def _api_versions(version: int) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="raw", client_software_version="1")


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_api_versions(raw: RawClient, version: int) -> None:
    """Every layout of ApiVersions lists the requests that clients need, group requests among them."""
    answer = raw.ask(_api_versions(version), version)
    assert answer.error_code == 0
    ranges = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    assert {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 22} <= set(ranges)
    assert ranges[0][1] >= 8
    assert ranges[1][1] >= 11


def test_api_versions_from_the_future(raw: RawClient) -> None:
    """A version nobody knows yet is answered in layout 0 with error 35, on a connection that stays (KIP-511)."""
    raw.socket.sendall(struct.pack(">ihhihb", 11, 18, 99, 7, -1, 0))
    frame = raw.receive()
    assert struct.unpack(">ih", frame[:6]) == (7, 35)
    count = struct.unpack(">i", frame[6:10])[0]
    keys = [struct.unpack(">hhh", frame[10 + 6 * n : 16 + 6 * n]) for n in range(count)]
    assert 18 in [key for key, _, _ in keys]
    assert raw.ask(_api_versions(0), 0).error_code == 0


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(struct.pack(">i", 2**31 - 1) + b"x" * 100, id="huge-frame"),
        pytest.param(struct.pack(">i", -5), id="negative-frame"),
        pytest.param(struct.pack(">ihhih", 10, 3, 77, 1, -1), id="unsupported-version"),
        pytest.param(struct.pack(">ihhih", 10, 999, 0, 1, -1), id="unknown-request"),
        pytest.param(struct.pack(">ihhihh", 12, 0, 8, 1, -1, 30), id="cut-produce"),
        pytest.param(struct.pack(">ihhih", 30, 11, 5, 1, -1) + b"\x7f" * 20, id="nonsense-join"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 5, 1, -1, 2**31 - 1), id="endless-array"),
    ],
)
def test_noise_costs_only_its_own_connection(bootstrap: str, create: Create, raw: RawClient, noise: bytes) -> None:
    """Whatever bytes arrive, that connection is closed and the others go on, old and new."""
    topic = create()
    with RawClient(bootstrap) as noisy:
        noisy.socket.sendall(noise)
        noisy.socket.settimeout(10)
        with contextlib.suppress(EOFError):
            while True:
                noisy.receive()
    assert raw.produce(topic, batch([b"still here"])).error_code == 0
    assert [record.value for record in read_all(bootstrap, topic)] == [b"still here"]


def test_random_bytes_never_hurt(bootstrap: str, create: Create, raw: RawClient) -> None:
    """Random frames for every request key: closed or answered, never a dead broker."""
    topic = create()
    for key in range(0, 62):
        with RawClient(bootstrap, timeout=2) as noisy:
            body = os.urandom(60)
            noisy.socket.sendall(struct.pack(">ihhih", 10 + len(body), key, 1, 1, -1) + body)
            noisy.socket.shutdown(1)
    assert raw.produce(topic, batch([b"fine"])).error_code == 0


def test_answers_keep_the_order_of_requests(create: Create, raw: RawClient) -> None:
    """Requests sent without waiting are answered in order, a waiting fetch among them."""
    topic = create()
    fetch = FetchRequest.FetchTopic
    raw.send(
        FetchRequest(
            replica_id=-1,
            max_wait_ms=400,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            topics=[
                fetch(
                    topic=topic,
                    partitions=[fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
                )
            ],
        ),
        4,
    )
    for _ in range(3):
        raw.send(MetadataRequest(topics=None), 1)
    order = [struct.unpack(">i", raw.receive()[:4])[0] for _ in range(4)]
    assert order == sorted(order)


@pytest.mark.parametrize("version", [0, 1, 4, 5, 7, 8])
def test_metadata_layouts(create: Create, raw: RawClient, version: int) -> None:
    """Old and new metadata layouts name this node as leader of every partition."""
    topic = create(2)
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    answer = raw.ask(request, version)
    assert [part.leader_id for part in answer.topics[0].partitions] == [answer.brokers[0].node_id] * 2


@pytest.mark.parametrize("version", [4, 7, 9, 10, 11])
def test_fetch_layouts(create: Create, raw: RawClient, version: int) -> None:
    """Every served fetch layout returns the batch as it was sent, base offset apart."""
    topic, data = create(), batch([b"one", b"two"])
    raw.produce(topic, data)
    raw.produce(topic, data)
    fetch = FetchRequest.FetchTopic
    part = fetch.FetchPartition(
        partition=0, fetch_offset=3, current_leader_epoch=-1, log_start_offset=-1, partition_max_bytes=1 << 20
    )
    answer = raw.ask(
        FetchRequest(
            replica_id=-1,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            forgotten_topics_data=[],
            rack_id="",
            topics=[fetch(topic=topic, partitions=[part])],
        ),
        version,
    )
    got = answer.responses[0].partitions[0]
    assert (got.error_code, got.high_watermark, got.last_stable_offset) == (0, 4, 4)
    records = bytes(got.records)
    assert struct.unpack(">q", records[:8])[0] == 2
    assert records[16:] == data[16:]


def test_leader_epochs_are_consistent(create: Create, raw: RawClient) -> None:
    """Metadata, list-offsets and epoch-end agree on the epoch; a future epoch is refused (kafka-python #3106)."""
    topic = create()
    raw.produce(topic, batch([b"a", b"b"]))
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    epoch = raw.ask(asked, 8).topics[0].partitions[0].leader_epoch

    def end_of(leader_epoch: int, current: int) -> tuple[int, int, int]:
        end = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        part = end.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=leader_epoch)
        answer = raw.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[end(topic=topic, partitions=[part])]), 3)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    assert end_of(epoch, epoch) == (0, epoch, 2)
    assert end_of(epoch + 5, epoch) == (0, -1, -1)
    assert end_of(epoch, epoch + 5)[0] == 75
    latest = ListOffsetsRequest.ListOffsetsTopic
    part = latest.ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=-1)
    answer = raw.ask(
        ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[latest(name=topic, partitions=[part])]), 5
    )
    assert answer.topics[0].partitions[0].leader_epoch == epoch


def test_find_coordinator(raw: RawClient, name: str) -> None:
    """A group's coordinator is the node itself."""
    answer = raw.ask(FindCoordinatorRequest(key=name, key_type=0), 2)
    assert answer.error_code in (0, 15)  # 15: Apache Kafka is still creating its offsets topic
