"""Segments, retention, compaction and search of one partition, without a server."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.broker import compaction
from infra.broker.errors import Code, Rejected
from infra.broker.log import PartitionLog
from tests.contract.broker.raw import batch
from tests.infra.broker.helpers import NOW, Clock, append, open_log, stamped, values


def _cleaned(plan: compaction.Plan) -> compaction.Cleaned:
    cleaned = compaction.clean(plan, threading.Event())
    assert cleaned is not None
    return cleaned


def _compact(log: PartitionLog, now: int = NOW) -> None:
    log.roll()
    plan = compaction.plan(log, now)
    compaction.install(log, plan, _cleaned(plan))


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=60), limit=st.integers(1, 3000), data=st.data())
def test_reads_are_whole_batches_from_the_asked_offset(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, data: st.DataObject
) -> None:
    """From any offset and with any limit the reader gets every record from there on, over segments, in order."""
    log = open_log(tmp_path_factory.mktemp("log"), segment_bytes="1500")
    for size in sizes:
        append(log, stamped([bytes(data.draw(st.integers(0, 300))) for _ in range(size)]))
    start = data.draw(st.integers(0, log.log_end))
    offset, seen = start, []
    while offset < log.log_end:
        chunk = log.read(offset, limit, True)
        from infra.broker import batch as batches

        found = list(batches.walk(chunk))
        assert sum(header.size for _, header in found) == len(chunk)
        assert len(chunk) <= limit or len(found) == 1
        seen += [n for _, header in found for n in range(header.base_offset, header.last_offset + 1) if n >= offset]
        offset = found[-1][1].last_offset + 1
    assert seen == list(range(start, log.log_end))
    log.close()


def test_reads_outside_the_log_are_refused(tmp_path: Path) -> None:
    """Below the start and above the end is out of range; the end itself is empty."""
    log = open_log(tmp_path)
    append(log, stamped([b"a", b"b"]))
    assert log.read(2, 100, True) == b""
    for offset in (-1, 3):
        with pytest.raises(Rejected) as refused:
            log.read(offset, 100, True)
        assert refused.value.code is Code.OFFSET_OUT_OF_RANGE
    log.close()


@settings(max_examples=40, deadline=None)
@given(times=st.lists(st.integers(0, 50), min_size=1, max_size=60), wanted=st.integers(-1, 55))
def test_search_by_time(tmp_path_factory: pytest.TempPathFactory, times: list[int], wanted: int) -> None:
    """Times need not grow: the first record in offset order at or after the time is found."""
    log = open_log(tmp_path_factory.mktemp("log"), segment_bytes="700")
    for begin in range(0, len(times), 3):
        part = times[begin : begin + 3]
        append(log, batch([b"v"] * len(part), timestamps=[NOW + stamp for stamp in part]))
    expected = next(((NOW + t, n) for n, t in enumerate(times) if t >= wanted), None)
    assert log.offset_for_time(NOW + wanted) == expected
    log.close()


def test_retention_by_age_and_size(tmp_path: Path) -> None:
    """Whole closed segments go from the front; the log's end never moves back, not even when all are gone."""
    clock = Clock()
    log = open_log(tmp_path / "size", clock, segment_bytes="500", retention_bytes="1200")
    for number in range(30):
        append(log, stamped([b"%d" % number]))
    log.retain(clock.now)
    assert 1200 <= log.size < 1200 + 600
    assert log.log_start == log.segments[0].base > 0
    log.close()
    log = open_log(tmp_path / "age", clock, retention_ms="1000")
    append(log, stamped([b"old"]))
    assert log.retain(NOW + 900) == 0
    assert log.retain(NOW + 1001) == 1
    assert (log.log_start, log.log_end, values(log)) == (1, 1, [])
    log.close()
    again = open_log(tmp_path / "age", clock, epoch=1)
    assert (again.log_start, again.log_end) == (1, 1)
    assert append(again, stamped([b"new"])) == 1
    again.close()


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    """A raised log start survives a restart even in the middle of a segment."""
    log = open_log(tmp_path)
    append(log, stamped([b"a", b"b", b"c"]))
    assert log.delete_before(2) == 2
    log.close()
    again = open_log(tmp_path)
    assert values(again) == [(2, b"c")]
    again.close()


KEYED = st.lists(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=4), min_size=1, max_size=25)


@settings(max_examples=50, deadline=None)
@given(work=KEYED, codec=st.sampled_from([0, 1, 3, 4]), passes=st.integers(1, 3))
def test_compaction_keeps_the_last_of_each_key(
    tmp_path_factory: pytest.TempPathFactory, work: list[list[tuple[int, bool]]], codec: int, passes: int
) -> None:
    """However often it runs: each key's last record stays at its offset, nothing new appears, a restart agrees."""
    path = tmp_path_factory.mktemp("log")
    log = open_log(path, cleanup_policy="compact", segment_bytes="400")
    last: dict[bytes, int] = {}
    history: dict[int, bytes | None] = {}
    for group in work:
        keys = [b"k%d" % key for key, _ in group]
        contents = [None if gone else b"%d" % (log.log_end + n) for n, (_, gone) in enumerate(group)]
        base = append(log, batch(contents, keys=keys, timestamps=[NOW] * len(group), codec=codec))  # type: ignore[arg-type]  # null values
        for number, key in enumerate(keys):
            last[key] = base + number
            history[base + number] = contents[number]
    end = log.log_end
    for _ in range(passes):
        _compact(log)
    kept = dict(values(log, 0))
    assert set(last.values()) == set(kept)
    assert all(history[offset] == value for offset, value in kept.items())
    assert log.log_end == end
    log.close()
    again = open_log(path, epoch=1, cleanup_policy="compact", segment_bytes="400")
    assert dict(values(again)) == kept
    assert again.log_end == end
    again.close()


def test_tombstones_go_after_their_time(tmp_path: Path) -> None:
    """A tombstone is kept for delete.retention.ms after cleaning so that readers see it, then it goes too."""
    log = open_log(tmp_path, cleanup_policy="compact", delete_retention_ms="1000")
    append(log, batch([b"v"], keys=[b"k"], timestamps=[NOW]))
    append(log, batch([None], keys=[b"k"], timestamps=[NOW]))  # type: ignore[list-item]  # a tombstone
    _compact(log)
    assert values(log, 0) == [(1, None)]
    _compact(log, NOW + 2000)
    assert values(log, 0) == [(1, None)]  # the last record of all stays, or a recovering reader never meets the end
    append(log, batch([b"other"], keys=[b"o"], timestamps=[NOW]))
    _compact(log, NOW + 2000)
    assert values(log, 0) == [(2, b"other")]
    log.close()


def test_an_interrupted_merge_leaves_no_duplicates(tmp_path: Path) -> None:
    """Killed between replacing the first segment and removing the merged ones: recovery removes what is left."""
    log = open_log(tmp_path, cleanup_policy="compact", segment_bytes="4000")
    for number in range(6):
        append(log, batch([b"%d" % number], keys=[b"k%d" % number], timestamps=[NOW]))
        log.roll()
    leftovers = {segment.path: segment.path.read_bytes() for segment in log.segments[1:4]}
    _compact(log)
    expected = values(log, 0)
    log.close()
    for path, content in leftovers.items():
        path.write_bytes(content)
    again = open_log(tmp_path, epoch=1, cleanup_policy="compact", segment_bytes="4000")
    assert values(again) == expected == [(n, b"%d" % n) for n in range(6)]
    again.close()


def test_due_follows_the_dirty_ratio(tmp_path: Path) -> None:
    """Cleaning waits until enough of the closed log is new, and for the compaction lag."""
    log = open_log(tmp_path, cleanup_policy="compact", min_cleanable_dirty_ratio="0.5", min_compaction_lag_ms="500")
    for number in range(8):
        append(log, batch([b"%d" % number], keys=[b"k%d" % number], timestamps=[NOW]))
    assert not compaction.due(log, NOW + 1000)
    log.roll()
    assert not compaction.due(log, NOW + 100)
    assert compaction.due(log, NOW + 1000)
    _compact(log, NOW + 1000)
    append(log, batch([b"x"], keys=[b"k1"], timestamps=[NOW]))
    log.roll()
    assert not compaction.due(log, NOW + 1000)
    log.close()
