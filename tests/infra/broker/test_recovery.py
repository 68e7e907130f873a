"""What was acknowledged is there after any death of the process, once, and what was torn is gone."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata

from infra.broker.errors import Code, Rejected
from infra.broker.journal import Journal
from infra.broker.testing import RunningBroker, running_broker
from tests.contract.broker.conftest import consumer, patient_commit, producer, read_all
from tests.contract.broker.raw import RawClient, batch
from tests.infra.broker.helpers import append, open_log, stamped, values

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=8)


def _written(path: Path, sizes: list[int], epoch: int = 0) -> list[tuple[int, int]]:
    """Write batches of these many records; returns (end position, end offset) after each."""
    log, ends, position, offset = open_log(path, epoch=epoch), [], 0, 0
    for number, size in enumerate(sizes):
        data = stamped([b"%d.%d" % (number, n) for n in range(size)])
        append(log, data)
        position, offset = position + len(data), offset + size
        ends.append((position, offset))
    log.close()
    return ends


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, cut=st.floats(0, 1))
def test_any_cut_leaves_the_whole_batches_before_it(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], cut: float
) -> None:
    """A file cut anywhere recovers to exactly the batches that lie whole before the cut, and goes on from there."""
    path = tmp_path_factory.mktemp("log")
    ends = _written(path, sizes)
    file = path / f"{0:020d}.log"
    keep = round(cut * file.stat().st_size)
    with file.open("r+b") as handle:
        handle.truncate(keep)
    expected = max((offset for position, offset in ends if position <= keep), default=0)
    log = open_log(path, epoch=1)
    assert log.log_end == expected
    assert [offset for offset, _ in values(log)] == list(range(expected))
    assert append(log, stamped([b"next"])) == expected
    assert values(log)[-1] == (expected, b"next")
    log.close()


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, where=st.floats(0, 0.999), flip=st.integers(1, 255))
def test_a_changed_byte_ends_the_log_there(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], where: float, flip: int
) -> None:
    """A changed byte never comes back as data: the batch that holds it and all behind are cut, those before stay."""
    path = tmp_path_factory.mktemp("log")
    ends = _written(path, sizes)
    file = path / f"{0:020d}.log"
    raw = bytearray(file.read_bytes())
    at = int(where * len(raw))
    raw[at] ^= flip
    file.write_bytes(raw)
    log = open_log(path)
    before = max((offset for position, offset in ends if position <= at), default=0)
    batch_start = max((position for position, _ in ends if position <= at), default=0)
    if 12 <= at - batch_start < 16 or at - batch_start < 8:  # leader epoch and base offset lie outside the checksum
        assert log.log_end >= before
    else:
        assert log.log_end == before
    log.close()


@settings(max_examples=30, deadline=None)
@given(tail=st.binary(max_size=200))
def test_noise_behind_the_log_is_cut(tmp_path_factory: pytest.TempPathFactory, tail: bytes) -> None:
    """Whatever a torn write left behind the last batch disappears."""
    path = tmp_path_factory.mktemp("log")
    ends = _written(path, [2, 3])
    file = path / f"{0:020d}.log"
    with file.open("ab") as handle:
        handle.write(tail)
    log = open_log(path)
    assert log.log_end == 5
    assert file.stat().st_size == ends[-1][0]
    log.close()


@pytest.mark.parametrize("lost", ["nothing", "*.index", "*.producers", "*.[ip]*"])
def test_many_segments_come_back_whatever_helpers_are_lost(tmp_path: Path, lost: str) -> None:
    """Indexes and producer snapshots are conveniences: without them records, retries and gaps are judged the same."""
    log = open_log(tmp_path, segment_bytes="600")
    for number in range(40):
        append(log, stamped([b"value %d" % number], producer=(7, 0, number)))
    for segment in log.segments[:-1]:
        segment.store_index()
    everything = values(log)
    assert len(log.segments) > 4
    log.close()
    for path in tmp_path.glob(lost):
        path.unlink()
    again = open_log(tmp_path, epoch=1, segment_bytes="600")
    assert values(again) == everything
    assert again.append(memoryview(bytearray(stamped([b"value 38"], producer=(7, 0, 38))))).duplicate
    with pytest.raises(Rejected) as refused:
        append(again, stamped([b"gap"], producer=(7, 0, 50)))
    assert refused.value.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(again, stamped([b"value 40"], producer=(7, 0, 40))) == 40
    again.close()


def test_epochs_tell_where_a_restart_was(tmp_path: Path) -> None:
    """Each start has its own leader epoch, and the end of an older one is known from the log."""
    _written(tmp_path, [2, 1])
    log = open_log(tmp_path, epoch=3)
    append(log, stamped([b"x"]))
    assert log.end_for_epoch(0) == (0, 3)
    assert log.end_for_epoch(2) == (0, 3)
    assert log.end_for_epoch(3) == (3, 4)
    assert log.end_for_epoch(4) == (-1, -1)
    log.close()


@settings(max_examples=40, deadline=None)
@given(entries=st.lists(st.text(max_size=20), max_size=10), cut=st.integers(0, 400))
def test_a_cut_journal_keeps_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, entries: list[str], cut: int
) -> None:
    """Offsets and memberships: a torn last entry is dropped, the ones before and after stay."""
    path = tmp_path_factory.mktemp("journal") / "j"
    journal = Journal(path)
    list(journal.replay())
    sizes = []
    for entry in entries:
        journal.append(entry)
        sizes.append(path.stat().st_size)
    journal.close()
    with path.open("r+b") as file:
        file.truncate(min(cut, path.stat().st_size))
    whole = [entry for entry, size in zip(entries, sizes, strict=True) if size <= cut]
    journal = Journal(path)
    assert list(journal.replay()) == whole
    journal.append("after")
    journal.close()
    assert list(Journal(path).replay()) == [*whole, "after"]


def test_kill_9_in_a_stream_of_acks_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """An idempotent producer sends through three kills of the broker: each acknowledged record is there, once."""
    with running_broker(tmp_path / "data", log_level="ERROR") as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic("t", 2, 1, topic_configs={"segment.bytes": "20000"})])
        admin.close()
        acked: list[tuple[int, int, bytes]] = []
        stop = threading.Event()
        thread = threading.Thread(target=_stream, args=(broker.bootstrap, acked, stop))
        thread.start()
        for _ in range(3):
            have = len(acked)
            while len(acked) < have + 150:
                time.sleep(0.01)
            broker.kill()
            broker.start()
        stop.set()
        thread.join(60)
        stored = {(p, r.offset): r.value for p in range(2) for r in read_all(broker.bootstrap, "t", p)}
    assert {(partition, offset): value for partition, offset, value in acked} == stored
    assert len(set(stored.values())) == len(stored)


def _stream(bootstrap: str, acked: list[tuple[int, int, bytes]], stop: threading.Event) -> None:
    sender: KafkaProducer = producer(
        bootstrap,
        retry_backoff_ms=50,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=100,
        max_in_flight_requests_per_connection=5,
    )
    pending, number = [], 0
    while not stop.is_set():
        value = b"%d" % number + b"." * 100
        pending.append((number % 2, value, sender.send("t", value, partition=number % 2)))
        number += 1
        if len(pending) >= 20:
            for partition, sent, future in pending:
                acked.append((partition, future.get(60).offset, sent))
            pending = []
    for partition, sent, future in pending:
        acked.append((partition, future.get(60).offset, sent))
    sender.close()


def _topic(broker: RunningBroker, name: str = "t") -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(name, 1, 1)])
    admin.close()


def test_a_retry_after_kill_9_is_recognised(tmp_path: Path) -> None:
    """The ack was lost with the broker: the batch sent again to the new process is not stored twice; ids are fresh."""
    with running_broker(tmp_path / "data", log_level="ERROR") as broker:
        _topic(broker)
        with RawClient(broker.bootstrap) as raw:
            producer_id = raw.producer_id()
            first = batch([b"a", b"b"], (producer_id, 0, 0))
            assert raw.produce("t", first).base_offset == 0
        broker.kill()
        broker.start()
        with RawClient(broker.bootstrap) as raw:
            answer = raw.produce("t", first)
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert raw.produce("t", batch([b"c"], (producer_id, 0, 2))).base_offset == 2
            assert raw.producer_id() > producer_id
        assert [record.value for record in read_all(broker.bootstrap, "t")] == [b"a", b"b", b"c"]


def test_groups_live_through_a_kill(tmp_path: Path) -> None:
    """Committed offsets survive, and a member goes on in the same generation with the broker's next process."""
    with running_broker(tmp_path / "data", log_level="ERROR", initial_delay_ms=0) as broker:
        _topic(broker)
        member = consumer(broker.bootstrap, "t", group_id="g", heartbeat_interval_ms=100)
        # A leader may join once more when its metadata arrives after its assignment: wait until nothing changes.
        generation, settled = -1, time.monotonic() + 0.7
        while not member.assignment() or time.monotonic() < settled:
            member.poll(50)
            if member.group_metadata().generation_id != generation:
                generation, settled = member.group_metadata().generation_id, time.monotonic() + 0.7
        patient_commit(member, {TopicPartition("t", 0): OffsetAndMetadata(0, "before", -1)})
        generation = member.group_metadata().generation_id
        broker.kill()
        broker.start()
        sender = producer(broker.bootstrap)
        sender.send("t", b"v").get(20)
        sender.close()
        got: list[bytes] = []
        deadline = time.monotonic() + 20
        while not got:
            assert time.monotonic() < deadline
            got += [record.value for records in member.poll(100).values() for record in records]
        member.commit()
        assert member.group_metadata().generation_id == generation
        assert member.committed(TopicPartition("t", 0)) == 1
        member.close()


@pytest.mark.parametrize("slept", [True, False])
def test_the_time_without_a_broker_does_not_age_records(tmp_path: Path, slept: bool) -> None:
    """A run's folder that is opened ten days later still has its week of records; ten days awake take them."""
    data, ago = tmp_path / "data", int(time.time() * 1000) - 10 * 24 * 3600 * 1000
    with running_broker(data, housekeeping_ms=3_600_000) as live:
        admin = KafkaAdminClient(bootstrap_servers=live.bootstrap)
        admin.create_topics([NewTopic("t", 1, 1)])
        admin.close()
        RawClient(live.bootstrap).produce("t", batch([b"old"], timestamps=[ago]))
    if slept:  # as if it had ended right after that
        (data / "awake").write_text(json.dumps({"seen_ms": ago, "slept_ms": 0}))
    with running_broker(data, housekeeping_ms=50) as live:
        time.sleep(0.3)
        assert [record.value for record in read_all(live.bootstrap, "t")] == ([b"old"] if slept else [])
    with running_broker(data, housekeeping_ms=50) as live:  # and it remembers what it slept
        time.sleep(0.3)
        assert [record.value for record in read_all(live.bootstrap, "t")] == ([b"old"] if slept else [])
