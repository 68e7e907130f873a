"""Archived topics come back at the same offsets, byte for byte, whatever the logs had lost by then."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from infra.broker.testing import running_broker
from schemas.codec import ContractViolation
from services.runtime.archive import Restorer, Span, committed, read_raw, spans, store_partition
from services.runtime.segments import Raw, pack, unpack
from services.runtime.store_local import LocalStore
from services.runtime.topics_admin import ensure_topics
from tests.services.runtime.bus import IN, OUT, RUN, wait_for

RAW = st.builds(
    Raw,
    offset=st.integers(0, 2**60),
    timestamp_ms=st.integers(0, 2**50),
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(st.tuples(st.text(max_size=8), st.binary(max_size=20)), max_size=4).map(tuple),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(RAW, min_size=1, max_size=8))
def test_a_segment_is_what_was_packed(records):
    assert list(unpack(pack(records))) == records


@pytest.mark.parametrize("damage", [b"", b"nonsense", pack([Raw(0, 0, b"", b"", ())])[:-40]])
def test_a_damaged_segment_is_refused(damage):
    with pytest.raises(ContractViolation):
        list(unpack(damage))


def test_records_return_at_their_old_offsets(bus, tmp_path):
    """Manifests and commits hold offsets: a log that had lost its beginning, or everything, must return as it was."""
    bus.send(range(40))
    bus.send_raw(OUT.name, b"one", partition=0)
    bus.send_raw(OUT.name, b"two", partition=0, headers=[("a", b"\x00\xff")])
    admin = KafkaAdminClient(bootstrap_servers=bus.bootstrap)
    firsts = {place: span for place, span in spans(bus.bootstrap, [IN.name]).items() if span.end}
    (cut_topic, cut), emptied = next(iter(firsts)), (OUT.name, 0)
    admin.delete_records({TopicPartition(cut_topic, cut): 3, TopicPartition(*emptied): 2})
    admin.close()
    before = spans(bus.bootstrap, [OUT.name, IN.name])
    assert before[cut_topic, cut].first == 3
    assert before[emptied] == Span(2, 2)
    store = LocalStore(tmp_path / "store")
    held = {place: list(read_raw(bus.bootstrap, *place, span)) for place, span in before.items()}
    segments = {place: store_partition(store, iter(records)) for place, records in held.items()}
    with running_broker(tmp_path / "other") as other:
        ensure_topics(
            bus.settings.model_copy(
                update={"kafka": bus.settings.kafka.model_copy(update={"bootstrap": other.bootstrap})}
            )
        )
        with Restorer(other.bootstrap) as restorer:
            for place, span in before.items():
                records = (raw for part in segments[place] for raw in unpack(store.get_content(part["key"])))
                assert restorer.partition(*place, span, records) == len(held[place])
            restorer.group(f"{RUN}.sandbox", {(IN.name, cut): 5})
        assert spans(other.bootstrap, [OUT.name, IN.name]) == before
        for place, span in before.items():
            assert list(read_raw(other.bootstrap, *place, span)) == held[place]
        assert committed(other.bootstrap, [f"{RUN}.sandbox", "absent"]) == {f"{RUN}.sandbox": {(IN.name, cut): 5}}


def test_numbers_that_compaction_removed_are_filled_by_repeats(bus):
    now = time.time_ns() // 1_000_000
    records = [Raw(1, now - 10, b"k", b"a", ()), Raw(4, now, b"k", b"b", ())]
    with Restorer(bus.bootstrap) as restorer:
        assert restorer.partition(OUT.name, 1, Span(0, 6), iter(records)) == 2
    found = [raw.value for raw in read_raw(bus.bootstrap, OUT.name, 1, Span(0, 6))]
    assert found == [b"a", b"a", b"b", b"b", b"b", b"b"]


def test_what_is_older_than_its_topic_keeps_anything_stays_when_it_is_put_back(bus):
    """Records keep their own time; a copy of last month's run would else be gone at the broker's next look."""
    then = time.time_ns() // 1_000_000 - 5 * OUT.retention_ms
    records = [Raw(n, then + n, b"k", b"%d" % n, ()) for n in range(3)]
    with Restorer(bus.bootstrap) as restorer:
        restorer.partition(OUT.name, 0, Span(0, 3), iter(records))
        restorer.partition(OUT.name, 1, Span(0, 3), iter(records))
    admin = KafkaAdminClient(bootstrap_servers=bus.bootstrap)

    def kept_ms():
        configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, OUT.name)])["topic"][OUT.name]
        return int(configs["retention.ms"]["value"])

    try:
        wait_for(lambda: kept_ms() >= 6 * OUT.retention_ms, 20, "the longer retention")  # a broker learns of it later
    finally:
        admin.close()
    time.sleep(1.5)  # the brokers of tests look at ages every half second
    for partition in (0, 1):
        assert list(read_raw(bus.bootstrap, OUT.name, partition, Span(0, 3))) == records
