"""What the recorder asks of a store: objects created once, never overwritten, found by name, waited for when down."""

import io
import threading

import pytest

from services.recorder.keeper import Keeper
from services.recorder.names import Lost, Place
from services.recorder.reading import look, records
from services.runtime.errors import UserError
from services.runtime.logs import Log
from services.runtime.segments import Raw
from services.runtime.store import StoreUnavailable, open_store
from tests.services.runtime.bus import wait_for

PLACE = Place("sandbox.command.v1", 1)


def raws(first, last):
    return [Raw(n, n, b"k", b"v%d" % n, (("h", None),)) for n in range(first, last + 1)]


def keeper(store, said=None, stop=None):
    return Keeper(store, "run", stop or threading.Event(), Log("recorder", "run", said or io.StringIO()))


def test_segments_are_created_once_found_again_and_overlap_without_harm(store):
    kept = keeper(store)
    sizes = [kept.segment(PLACE, raws(*span)) for span in ((0, 4), (3, 9), (0, 4), (12, 12))]
    assert sizes[0] == sizes[2]
    kept.lost(Lost(PLACE, 10, 11))
    kept.lost(Lost(PLACE, 10, 11))
    found = look(store, "run", lambda topic: False)[PLACE]
    assert [(one.first, one.last) for one in found.segments] == [(0, 4), (3, 9), (12, 12)]
    assert found.size == sum(len(store.get(one.key("run"))) for one in found.segments)
    assert list(records(store, "run", found)) == raws(0, 9) + raws(12, 12)
    assert [(gap.first, gap.last) for gap in found.gaps()] == [(10, 11)]
    assert look(store, "run2", bool) == {}


def test_what_stands_under_a_name_already_is_never_overwritten(store):
    kept = keeper(store)
    kept.segment(PLACE, raws(0, 4))
    (key,) = store.list("recorded/")
    store.put(key, b"damaged")
    with pytest.raises(UserError, match="something else than its name says"):
        kept.segment(PLACE, raws(0, 4))
    assert store.get(key) == b"damaged"


def test_a_real_server_that_is_killed_is_waited_for(s3_server):
    said, stop = io.StringIO(), threading.Event()
    kept = keeper(open_store(s3_server.settings(url=f"s3://{s3_server.bucket()}")), said, stop)
    kept.segment(PLACE, raws(0, 4))
    s3_server.signal("KILL")
    thread = threading.Thread(target=kept.segment, args=(PLACE, raws(5, 9)), daemon=True)
    thread.start()
    try:
        wait_for(lambda: "waiting for the object store" in said.getvalue(), what="the wait to be said")
        assert kept.down_s > 0
    finally:
        s3_server.start()
    thread.join(30)
    assert not thread.is_alive()
    assert kept.down_s == 0
    s3_server.signal("KILL")
    try:
        stop.set()
        with pytest.raises(StoreUnavailable):
            kept.segment(PLACE, raws(10, 12))
    finally:
        s3_server.start()
    again = keeper(kept._store)
    again.segment(PLACE, raws(10, 12))
    found = look(kept._store, "run", bool)[PLACE]
    assert list(records(kept._store, "run", found)) == raws(0, 12)
