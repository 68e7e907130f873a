"""The reader merges what overlaps, names what is missing, and refuses what contradicts itself or is damaged."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.recorder.names import Lost, Place, Segment, parse, segment_of
from services.recorder.reading import Contradiction, Recorded, look, merge, records
from services.runtime.segments import Raw, pack
from services.runtime.store import CorruptObject
from services.runtime.store_local import LocalStore

PLACE = Place("sandbox.command.v1", 3)
SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 15)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12
)


def raw(offset):
    return Raw(offset, offset, b"k%d" % offset, None if offset % 5 == 0 else b"v", (("h", b"%d" % offset),))


def segment(first, last, place=PLACE, tag="0"):
    return Segment(place, first, last, last - first + 1, 1, tag * 64)


@settings(max_examples=120, deadline=None)
@given(SPANS, SPANS)
def test_segments_that_overlap_anyhow_are_one_log_and_every_gap_is_named(spans, losses):
    segments = [segment(first, last, tag=f"{n:x}") for n, (first, last) in enumerate(spans)]
    there = {offset for first, last in spans for offset in range(first, last + 1)}
    loaded = []

    def load(one):
        loaded.append(one)
        return [raw(offset) for offset in range(one.first, one.last + 1)]

    assert list(merge(PLACE, segments, load)) == [raw(offset) for offset in sorted(there)]
    assert sorted(loaded) == sorted(segments), "each is loaded once"
    lost = tuple(Lost(PLACE, first, last) for first, last in losses)
    gone = {offset for first, last in losses for offset in range(first, last + 1)}
    dense = Recorded(PLACE, tuple(sorted(segments)), lost, keyed=False)
    missing = [offset for gap in dense.gaps() for offset in range(gap.first, gap.last + 1)]
    assert missing == sorted(set(range(max(there | gone, default=-1) + 1)) - there)
    keyed = Recorded(PLACE, tuple(sorted(segments)), lost, keyed=True)
    missing = [offset for gap in keyed.gaps() for offset in range(gap.first, gap.last + 1)]
    assert missing == sorted(gone - there)


def test_few_segments_are_in_memory_at_a_time():
    open_now = []
    most = 0

    def load(one):
        open_now.append(one)
        for offset in range(one.first, one.last + 1):
            nonlocal most
            most = max(most, len(open_now))
            yield raw(offset)
        open_now.remove(one)

    segments = [segment(n * 10, n * 10 + 14, tag=f"{n % 10}") for n in range(50)]
    assert len(list(merge(PLACE, segments, load))) == 505
    assert most <= 3


def test_two_records_under_one_offset_are_refused():
    def load(one):
        return [Raw(offset, 0, b"", one.sha256.encode(), ()) for offset in range(one.first, one.last + 1)]

    with pytest.raises(Contradiction, match=r"sandbox.command.v1\[3\]@5"):
        list(merge(PLACE, [segment(0, 5, tag="a"), segment(5, 9, tag="b")], load))


def put(store, offsets, place=PLACE):
    held = [raw(offset) for offset in offsets]
    data = pack(held)
    found = segment_of(place, held[0].offset, held[-1].offset, len(held), data)
    assert store.put_if_absent(found.key("run"), data)
    return found


def test_names_say_everything_and_foreign_objects_nothing(tmp_path):
    store = LocalStore(tmp_path, fsync=False)
    found = [put(store, range(0, 4)), put(store, range(3, 8)), put(store, [0, 9], Place("policy.published.v1", 0))]
    gone = Lost(PLACE, 8, 11)
    store.put(gone.key("run"), gone.document)
    store.put("recorded/run/notes.txt", b"")
    store.put("recorded/other/sandbox.command.v1/3/x", b"")
    assert [parse(one.key("run")) for one in (*found, gone)] == [*found, gone]
    seen = look(store, "run", lambda topic: topic.startswith("policy"))
    assert list(seen) == [Place("policy.published.v1", 0), PLACE]
    assert seen[PLACE].segments == (found[0], found[1])
    assert seen[PLACE].size == found[0].size + found[1].size
    assert [str(gap) for gap in seen[PLACE].gaps()] == ["8..11 (the log dropped them before they were read)"]
    assert seen[Place("policy.published.v1", 0)].gaps() == []
    assert list(records(store, "run", seen[PLACE])) == [raw(offset) for offset in range(8)]


@pytest.mark.parametrize("damage", ["cut", "other", "swapped"])
def test_an_object_that_is_not_what_its_name_says_is_refused(tmp_path, damage):
    store = LocalStore(tmp_path, fsync=False)
    found = put(store, range(4))
    data = store.get(found.key("run"))
    if damage == "swapped":  # a legal segment, under a name of other offsets
        found = Segment(PLACE, 10, 13, 4, found.size, found.sha256)
    store.put(found.key("run"), {"cut": data[:-20], "other": pack([raw(9)]), "swapped": data}[damage])
    (wrong,) = [s for s in look(store, "run", bool)[PLACE].segments if s == found]
    with pytest.raises(CorruptObject, match="damaged"):
        list(records(store, "run", Recorded(PLACE, (wrong,), (), keyed=False)))
