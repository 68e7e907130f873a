"""Consumer groups: sharing, taking over, expiring, fencing, describing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, IllegalStateError
from aiokafka.structs import TopicPartition as AioPartition
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import RebalanceInProgressError
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

from tests.contract.broker.conftest import consumer, eventually, patient_commit, producer
from tests.contract.broker.raw import RawClient

Create = Callable[..., str]
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE, MEMBER_ID_REQUIRED, FENCED_INSTANCE = 22, 25, 27, 79, 82


@pytest.fixture
def members(bootstrap: str, name: str) -> Iterator[Callable[..., KafkaConsumer]]:
    """Members of one group that are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(topic: str, **options: Any) -> KafkaConsumer:
            settings = {"heartbeat_interval_ms": 200} | options
            return stack.enter_context(contextlib.closing(consumer(bootstrap, topic, group_id=name, **settings)))

        yield make


def _settle(readers: list[KafkaConsumer], sizes: list[int]) -> None:
    """Poll every member until the assignment sizes are as expected."""

    def settled() -> bool:
        for reader in readers:
            reader.poll(100)
        return sorted(len(reader.assignment()) for reader in readers) == sizes

    eventually(settled, 30)


def test_two_members_share_and_take_over(bootstrap: str, create: Create, members: Callable[..., KafkaConsumer]) -> None:
    """Partitions are shared when a member comes, taken over when one leaves; every record is read, none twice."""
    topic = create(4)
    first = members(topic)
    _settle([first], [4])
    second = members(topic)
    _settle([first, second], [2, 2])
    assert first.assignment().isdisjoint(second.assignment())
    sender = producer(bootstrap)
    for number in range(40):
        sender.send(topic, b"%d" % number, partition=number % 4)
    sender.flush(20)
    got: list[bytes] = []

    def collect(*readers: KafkaConsumer) -> bool:
        for reader in readers:
            got.extend(record.value for records in reader.poll(100).values() for record in records)
            with contextlib.suppress(RebalanceInProgressError):  # the next round commits
                reader.commit()
        return len(got) >= 40

    eventually(lambda: collect(first, second))
    second.close()
    _settle([first], [4])
    sender.send(topic, b"last", partition=3).get(20)
    eventually(lambda: collect(first) and b"last" in got)
    sender.close()
    assert sorted(got) == sorted([b"%d" % number for number in range(40)] + [b"last"])


def _join(client: RawClient, group: str, session: int, member: str = "", instance: str | None = None) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="any", metadata=b"\x00opaque\xff")
    return client.ask(
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session,
            rebalance_timeout_ms=10_000,
            member_id=member,
            group_instance_id=instance,
            protocol_type="test",
            protocols=[protocol],
        ),
        5,
    )


def _enter(client: RawClient, group: str, session: int = 10_000, instance: str | None = None) -> tuple[str, int]:
    """Join as the only member and sync; returns (member id, generation)."""
    answer = _join(client, group, session, instance=instance)
    for _ in range(100):  # Apache Kafka may still be creating its offsets topic
        if answer.error_code not in (15, 16, 14):
            break
        time.sleep(0.1)
        answer = _join(client, group, session, instance=instance)
    if answer.error_code == MEMBER_ID_REQUIRED:
        answer = _join(client, group, session, answer.member_id)
    assert answer.error_code == 0
    synced = _sync(client, group, answer.generation_id, answer.member_id, instance, assign=True)
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"mine\x00\xff")
    return answer.member_id, answer.generation_id


def _sync(
    client: RawClient, group: str, generation: int, member: str, instance: str | None = None, assign: bool = False
) -> Any:
    part = SyncGroupRequest.SyncGroupRequestAssignment
    assignments = [part(member_id=member, assignment=b"mine\x00\xff")] if assign else []
    return client.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            assignments=assignments,
        ),
        3,
    )


def _heartbeat(client: RawClient, group: str, generation: int, member: str, instance: str | None = None) -> int:
    return int(
        client.ask(
            HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, group_instance_id=instance), 3
        ).error_code
    )


def _commit(
    client: RawClient, group: str, topic: str, generation: int, member: str, instance: str | None = None
) -> int:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    part = kind.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
    )
    answer = client.ask(
        OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            topics=[kind(name=topic, partitions=[part])],
        ),
        7,
    )
    return int(answer.topics[0].partitions[0].error_code)


def test_a_new_member_is_told_its_id_first(raw: RawClient, name: str) -> None:
    """KIP-394: since JoinGroup 4 an unknown member gets an id and joins with it; an invented id is refused."""
    _enter(raw, name + ".warm")
    answer = _join(raw, name, 10_000)
    assert answer.error_code == MEMBER_ID_REQUIRED
    assert answer.member_id
    assert _join(raw, name, 10_000, "invented").error_code == UNKNOWN_MEMBER
    assert _join(raw, name, 10_000, answer.member_id).error_code == 0


def test_stale_generations_are_fenced(raw: RawClient, create: Create, name: str) -> None:
    """Commits and heartbeats of another generation, an unknown member or a non-member are refused."""
    topic = create()
    member, generation = _enter(raw, name)
    assert _heartbeat(raw, name, generation, member) == 0
    assert _commit(raw, name, topic, generation, member) == 0
    assert _heartbeat(raw, name, generation - 1, member) == ILLEGAL_GENERATION
    assert _commit(raw, name, topic, generation - 1, member) == ILLEGAL_GENERATION
    assert _commit(raw, name, topic, generation, "stranger") == UNKNOWN_MEMBER
    assert _commit(raw, name, topic, -1, "") == UNKNOWN_MEMBER
    again = _join(raw, name, 10_000, member)
    assert again.generation_id == generation + 1
    assert _commit(raw, name, topic, generation, member) == ILLEGAL_GENERATION


def test_a_silent_member_expires(raw: RawClient, create: Create, name: str, shortest_session: int) -> None:
    """After its session timeout a silent member is unknown and its commits are refused."""
    topic = create()
    member, generation = _enter(raw, name, session=shortest_session)
    time.sleep(shortest_session / 1000 + 0.5)
    assert _heartbeat(raw, name, generation, member) == UNKNOWN_MEMBER
    assert _commit(raw, name, topic, generation, member) in (UNKNOWN_MEMBER, ILLEGAL_GENERATION)


def test_a_killed_member_is_replaced(
    bootstrap: str, create: Create, name: str, members: Callable[..., KafkaConsumer], shortest_session: int
) -> None:
    """Partitions of a process killed with -9 come to the survivor after the session timeout."""
    topic = create(2)
    session = max(shortest_session, 2500)  # a loaded machine starves clients, too
    code = (
        "import sys; from kafka import KafkaConsumer\n"
        "c = KafkaConsumer(bootstrap_servers=sys.argv[2], group_id=sys.argv[3],"
        f" session_timeout_ms={session}, heartbeat_interval_ms=200)\n"
        "c.partitions_for_topic(sys.argv[1]); c.subscribe([sys.argv[1]])\n"
        "while True:\n c.poll(100)\n if c.assignment(): print('in', flush=True)\n"
    )
    command = [sys.executable, "-c", code, topic, bootstrap, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path.cwd(), env=os.environ) as victim:
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == b"in\n"
            survivor = members(topic, session_timeout_ms=session)
            eventually(lambda: survivor.poll(100) is not None and len(survivor.assignment()) == 1, 30)
        finally:
            victim.kill()
    _settle([survivor], [2])


def test_groups_are_described_and_listed(
    create: Create, name: str, members: Callable[..., KafkaConsumer], admin: KafkaAdminClient
) -> None:
    """A live group shows its state, protocol and members' partitions; an empty one can be deleted, a live one not."""
    topic = create(2)
    reader = members(topic)
    _settle([reader], [2])
    described = admin.describe_groups([name])[name]
    assert (described["group_state"], described["protocol_type"]) == ("Stable", "consumer")
    assert described["members"][0]["member_assignment"]["assigned_partitions"] == [
        {"topic": topic, "partitions": [0, 1]}
    ]
    listed = {group["group_id"]: group for group in admin.list_groups()}
    assert listed[name]["group_state"] == "Stable"
    assert name in {group["group_id"] for group in admin.list_groups(states_filter=["Stable"])}
    assert name not in {group["group_id"] for group in admin.list_groups(states_filter=["Empty"])}
    assert "NonEmptyGroupError" in repr(admin.delete_groups([name]))
    patient_commit(reader)
    reader.close()
    eventually(lambda: admin.describe_groups([name])[name]["group_state"] == "Empty")
    admin.delete_groups([name])
    assert name not in {group["group_id"] for group in admin.list_groups()}


def test_a_static_member_keeps_its_place(raw: RawClient, create: Create, name: str) -> None:
    """KIP-345: a restart under the same instance id causes no new generation and fences the one before."""
    topic = create()
    member, generation = _enter(raw, name, instance="pod-0")
    answer = _join(raw, name, 10_000, instance="pod-0")
    assert (answer.error_code, answer.generation_id) == (0, generation)
    assert answer.member_id != member
    synced = _sync(raw, name, generation, answer.member_id, "pod-0")
    assert bytes(synced.assignment) == b"mine\x00\xff"
    assert _heartbeat(raw, name, generation, answer.member_id, "pod-0") == 0
    assert _heartbeat(raw, name, generation, member, "pod-0") == FENCED_INSTANCE
    assert _commit(raw, name, topic, generation, member, "pod-0") == FENCED_INSTANCE


def test_a_changelog_is_recovered_as_faust_does(bootstrap: str, create: Create) -> None:
    """A table's changelog is read with assign and seek up to the end offset, by position, then it goes on live."""
    topic = create(2, cleanup_policy="compact")
    sender = producer(bootstrap)
    for number in range(30):
        sender.send(topic, b"%d" % number, b"k%d" % (number % 5), partition=0)
    sender.flush(20)

    async def run() -> tuple[dict[bytes, bytes], bytes]:
        reader = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_records=7,
        )
        await reader.start()
        parts = [AioPartition(topic, 0), AioPartition(topic, 1)]
        reader.assign(parts)
        ends = await reader.end_offsets(parts)
        await reader.seek_to_beginning(*parts)
        table: dict[bytes, bytes] = {}
        deadline = time.monotonic() + 20
        while any([await reader.position(tp) < ends[tp] for tp in parts]) and time.monotonic() < deadline:
            for records in (await reader.getmany(timeout_ms=100)).values():
                table.update({record.key: record.value for record in records})
        sender.send(topic, b"live", b"k0", partition=1)
        live = await asyncio.wait_for(reader.getone(), 10)
        await reader.stop()
        return table, live.value

    table, live = asyncio.run(run())
    assert table == {b"k%d" % n: b"%d" % (25 + n) for n in range(5)}
    assert live == b"live"
    sender.close()


def test_aiokafka_group(bootstrap: str, create: Create, name: str) -> None:
    """Two aiokafka members share a topic, commit, and a later member goes on where they stopped."""
    topic = create(2)
    sender = producer(bootstrap)
    for number in range(20):
        sender.send(topic, b"%d" % number, partition=number % 2)
    sender.flush(20)
    sender.close()

    async def run() -> tuple[int, int]:
        options = {
            "bootstrap_servers": bootstrap,
            "group_id": name,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 200,
        }
        pair = [AIOKafkaConsumer(topic, **options) for _ in range(2)]
        await asyncio.gather(*(reader.start() for reader in pair))
        seen, committed, deadline = set(), False, time.monotonic() + 20
        while not (len(seen) == 20 and committed) and time.monotonic() < deadline:
            committed = sorted(len(reader.assignment()) for reader in pair) == [1, 1]
            for reader in pair:
                for records in (await reader.getmany(timeout_ms=100)).values():
                    seen |= {(record.partition, record.offset) for record in records}
                try:
                    await reader.commit()
                except (CommitFailedError, IllegalStateError):  # the other member came meanwhile
                    committed = False
        for reader in pair:
            await reader.stop()
        late = AIOKafkaConsumer(topic, **options)
        await late.start()
        left = sum(map(len, (await late.getmany(timeout_ms=700)).values()))
        await late.stop()
        return len(seen), left

    assert asyncio.run(run()) == (20, 0)
