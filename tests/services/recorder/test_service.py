"""What stands on the topics is what is recorded, byte for byte, whatever happens to recorders, partitions and store."""

import signal
import time

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from schemas import topics
from services.recorder.main import every_topic
from services.recorder.names import Place
from tests.services.recorder.conftest import patiently
from tests.services.runtime.bus import IN, OUT, SHORT_SESSION_MS

LETTERS = f"{IN.name}.dlq"


def test_every_topic_and_every_letter_is_an_input():
    names = {topic.name for topic in every_topic()}
    assert names == {t.name for t in topics.ALL} | {f"{t.name}.dlq" for t in topics.ALL if t.dlq}


def test_recorded_is_what_stands_on_the_topics_byte_for_byte(recorders):
    """Legal records, undecodable ones, dead letters, tombstones, a compacted topic; whatever is there when it ends."""
    bus = recorders.bus
    bus.send(range(200))
    bus.send_raw(OUT.name, b"\x00no record\xff", headers=[("a", b"\x00"), ("a", b""), ("b", b"\xff" * 300)])
    bus.send_raw(OUT.name, b"", key=b"", headers=[])
    bus.send_raw(LETTERS, b"a letter", headers=[("dlq.reason", b"why")], partition=2)
    running = recorders.start().ready()
    patiently(lambda: recorders.committed(IN.name) == 200, "offsets to be committed")
    for number in range(5):
        bus.send_raw(topics.POLICY_PUBLISHED.name, b"version %d" % number, key=b"bench")
    bus.send_raw(topics.POLICY_PUBLISHED.name, None, key=b"bench")
    bus.send(range(200, 260))
    assert running.finish() == 0  # SIGTERM: it reads to the end, stores, commits
    found = recorders.recorded()
    assert found == recorders.on_topics()
    assert sum(len(records) for (name, _), records in found.items() if name == IN.name) == 260
    assert found[topics.POLICY_PUBLISHED.name, 0][-1].value is None
    assert not running.said("dead letter")
    assert recorders.committed(IN.name) == 260
    assert not [gap for place in recorders.look().values() for gap in place.gaps()]


def test_a_recorder_killed_in_mid_segment_loses_nothing(make_recorders):
    """kill -9 with open segments: the next one reads them again; what was stored before is not read again."""
    recorders = make_recorders(session_ms=max(2000, SHORT_SESSION_MS), segment_s=1.0, segment_bytes=20_000)
    recorders.bus.send(range(300))
    first = recorders.child()
    patiently(lambda: recorders.committed(IN.name) > 0, "a commit")
    recorders.bus.send(range(300, 900))
    patiently(lambda: recorders.committed(IN.name) > 300, "more commits")
    recorders.bus.send(range(900, 950))
    time.sleep(0.3)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = recorders.committed(IN.name)
    assert before < 950, "killed with records that were not stored"
    recorders.bus.send(range(950, 1000))
    second = recorders.child()
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 0, second.log.read_text()
    assert recorders.recorded() == recorders.on_topics()
    assert recorders.committed(IN.name) == 1000


@pytest.mark.long
def test_two_instances_share_the_partitions_and_one_takes_over(make_recorders):
    recorders = make_recorders(segment_s=0.4)
    bus = recorders.bus
    first = recorders.start().ready()
    bus.send(range(100))
    second = recorders.start().ready()
    patiently(lambda: first.said("assignment")[-1]["owned"] < first.said("assignment")[0]["owned"], "a share")
    for number in range(100, 400, 100):
        bus.send(range(number, number + 100))
        time.sleep(0.2)
    patiently(lambda: recorders.committed(IN.name) == 400, "both to record")
    assert min(first.core.counts["records"], second.core.counts["records"]) > 0
    bus.send(range(400, 450))
    assert first.finish() == 0
    bus.send(range(450, 500))
    patiently(lambda: recorders.committed(IN.name) == 500, "the second to take over")
    assert second.finish() == 0
    assert recorders.recorded() == recorders.on_topics()


@pytest.mark.long
def test_what_retention_took_first_is_named(make_recorders):
    """Never silent: in the log, in the metric, and in what is read of the records for ever after."""
    recorders = make_recorders()
    bus = recorders.bus
    for number in range(10):
        bus.send_raw(OUT.name, b"%d" % number, partition=1)
        bus.send_raw(topics.POLICY_PUBLISHED.name, b"%d" % number, key=b"%d" % number)
    assert recorders.start().ready().finish() == 0
    for number in range(10, 30):
        bus.send_raw(OUT.name, b"%d" % number, partition=1)
        bus.send_raw(topics.POLICY_PUBLISHED.name, b"%d" % number, key=b"%d" % number)
    admin = KafkaAdminClient(bootstrap_servers=bus.bootstrap)
    places = [(OUT.name, 1), (topics.POLICY_PUBLISHED.name, 0)]
    admin.delete_records({TopicPartition(OUT.name, 1): 25})
    admin.close()
    again = recorders.start().ready()
    assert again.finish() == 0
    (said,) = again.said("records were lost")
    assert (said["where"], said["first"], said["last"]) == (f"{OUT.name}[1]", 10, 24)
    assert again.core.counts["lost"] == 15
    found = recorders.look()
    (gap,) = found[Place(OUT.name, 1)].gaps()
    assert (gap.first, gap.last) == (10, 24)
    assert "dropped" in gap.why
    assert not found[Place(*places[1])].gaps()
    assert [raw.offset for raw in recorders.recorded()[OUT.name, 1]] == [*range(10), *range(25, 30)]


@pytest.mark.long
def test_a_store_that_is_down_holds_back_and_loses_nothing(make_recorders, tmp_path):
    """Nothing is committed and memory is bounded; it says so; with the store back all is recorded."""
    recorders = make_recorders(segment_s=0.2, segment_bytes=200_000, buffer_bytes=1024 * 1024)
    bus = recorders.bus
    running = recorders.start().ready()
    store, away = tmp_path / "store", tmp_path / "away"
    store.rename(away)
    producer = KafkaProducer(bootstrap_servers=bus.bootstrap, linger_ms=20)
    for number in range(4000):
        producer.send(OUT.name, b"x" * 2000 + b"%d" % number, partition=number % 4)
    producer.flush()
    producer.close()
    patiently(lambda: running.said("waiting for the object store"), "the recorder to say so")
    time.sleep(1.5)
    assert recorders.committed(OUT.name) == 0
    held = running.core.open_bytes + running.service._workers.load[1]
    assert 500_000 < held < 2_000_000, "bounded by buffer_bytes, far below the 8 MB that wait"
    away.rename(store)
    patiently(lambda: recorders.committed(OUT.name) == 4000, "everything to be stored")
    assert running.said("works again")
    assert running.finish() == 0
    assert recorders.recorded() == recorders.on_topics()


@pytest.mark.long
def test_asked_to_end_while_the_store_is_down_it_ends_and_the_next_goes_on(recorders, tmp_path):
    running = recorders.start().ready()
    (tmp_path / "store").rename(tmp_path / "away")
    recorders.bus.send(range(50))
    patiently(lambda: running.said("waiting for the object store"), "the recorder to say so")
    assert running.finish() == 0
    assert recorders.committed(IN.name) == 0
    (tmp_path / "away").rename(tmp_path / "store")
    assert recorders.start().ready().finish() == 0
    assert recorders.recorded() == recorders.on_topics()
