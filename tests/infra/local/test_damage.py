"""Protects a damaged log's way back: what is missing is named before anything starts, and put back offset by offset."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from infra.broker import batch as batches
from infra.local.damage import missing, require_whole
from infra.local.looks import audit_run
from infra.local.repair import repair
from infra.local.rundir import RunDir
from infra.local.stack import Stack, serving
from schemas import codec
from schemas.record import Record
from schemas.topics import ROLLOUT_COMPLETED, ROLLOUT_REQUESTED, VERIFICATION_VERDICT, Topic
from services.recorder.keeper import Keeper
from services.recorder.names import Place
from services.runtime.archive import Restorer, Span, read_raw, spans
from services.runtime.errors import UserError
from services.runtime.logs import Log
from services.runtime.segments import Raw
from services.runtime.settings import load
from services.runtime.store import open_store
from tests.services.closure.records import RUN, completed, request, verdict

GROUPS = 60
PLACE = Place(ROLLOUT_COMPLETED.name, 0)
PLAIN = {request: {"size": 1}, completed: {"invocations": 0}, verdict: {"trials_run": 0}}
"""Trials without calls and check runs: nothing of those has to be recorded."""
NOW_MS = 1_700_000_000_000


def raw(topic: Topic, offset: int, record: Record) -> Raw:
    key = getattr(record, topic.key).encode()
    return Raw(offset, NOW_MS + offset, key, codec.encode(record), tuple(codec.headers(record)))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A stopped run of one partition: every trial asked for, completed and judged; all committed."""
    folder = RunDir(tmp_path / "run")
    store = {"url": f"file://{folder.store}"}
    settings = load(None, run_dir=str(folder.root), run_id=RUN, kafka={"partitions": 1}, store=store)
    folder.create(settings)
    with serving(folder, settings) as cluster, Restorer(cluster) as restorer:
        for topic, make in (
            (ROLLOUT_REQUESTED, request),
            (ROLLOUT_COMPLETED, completed),
            (VERIFICATION_VERDICT, verdict),
        ):
            made = [make(n, 0, **PLAIN[make]) for n in range(GROUPS)]
            restorer_batches(restorer, topic, [raw(topic, n, record) for n, record in enumerate(made)])
        restorer.group(f"{RUN}.verifier", {(ROLLOUT_COMPLETED.name, 0): GROUPS})
    return folder


def restorer_batches(restorer: Restorer, topic: Topic, records: list[Raw]) -> None:
    """In several batches, so that a log can be cut between two of them."""
    restorer.partition(topic.name, 0, Span(0, 10), iter(records[:10]))
    for start in range(10, len(records), 10):
        part = records[start : start + 10]
        restorer.partition(topic.name, 0, Span(start, start + 10), iter(part), records[start - 1])


def log_file(run: RunDir) -> Path:
    (folder,) = run.broker.glob(f"topics/{PLACE.topic}@*/0")
    (path,) = folder.glob("*.log")
    return path


def held(run: RunDir) -> list[Raw]:
    with serving(run, run.settings()) as cluster:
        span = spans(cluster, [PLACE.topic])[tuple(PLACE)]
        return list(read_raw(cluster, *PLACE, span))


def record(run: RunDir, records: list[Raw]) -> None:
    """As the recorder keeps them."""
    keeper = Keeper(open_store(run.settings().store), RUN, threading.Event(), Log("test", RUN))
    keeper.segment(PLACE, records)


def cut_half(run: RunDir) -> int:
    """As the second half of a file that a copy or a disk has lost: between two batches. The first lost offset."""
    path = log_file(run)
    for at, header in batches.walk(path.read_bytes()):
        if header.base_offset >= GROUPS // 2:
            with path.open("r+b") as file:
                file.truncate(at)
            return header.base_offset
    raise AssertionError("one batch only")


def flip(run: RunDir, at: int = 90) -> list[int]:
    """One bit of the fourth batch, among its records; their offsets."""
    path = log_file(run)
    data = bytearray(path.read_bytes())
    position, header = list(batches.walk(data))[3]
    data[position + at] ^= 0x40
    path.write_bytes(data)
    return list(range(header.base_offset, header.last_offset + 1))


def flip_offset(run: RunDir) -> None:
    """One bit of the fourth batch's base offset, which no checksum covers: nothing is lost."""
    flip(run, 2)


def lose_file(run: RunDir) -> None:
    log_file(run).unlink()


def lose_middle(run: RunDir) -> None:
    """The log in three files, as after two rolls, and the middle one lost."""
    path = log_file(run)
    data = path.read_bytes()
    cuts = [(at, h.base_offset) for at, h in batches.walk(data)]
    (one, first), (two, second) = cuts[len(cuts) // 3], cuts[2 * len(cuts) // 3]
    path.write_bytes(data[:one])
    (path.parent / f"{second:020d}.log").write_bytes(data[two:])
    with serving(run, run.settings()) as cluster, pytest.raises(UserError, match=f"hole.*{first}..{second - 1}"):
        require_whole(run, run.settings(), cluster)


def lose_topic(run: RunDir) -> None:
    shutil.rmtree(log_file(run).parent.parent)


def test_a_cut_log_is_named_with_its_range_before_anything_is_started(run, capsys):
    first = cut_half(run)
    settings = run.settings()
    stack = Stack(run, settings, ())
    try:
        with pytest.raises(UserError) as caught:
            stack.start()
    finally:
        stack.close()
    said = f"{PLACE} ends at offset {first}, but what verifier has read reaches 60: {60 - first} records are missing"
    assert f"{said} ({first}..59)" in str(caught.value)
    assert "rollstream repair" in str(caught.value)
    assert audit_run(run.root, "") == 1
    said = capsys.readouterr().out
    assert "NOT BALANCED" in said
    assert f"judged, but never completed: run/{first:08}/0" in said
    assert f"{first}..59" in said


@pytest.mark.parametrize("damage", [cut_half, flip, flip_offset, lose_file, lose_middle, lose_topic])
def test_repair_puts_back_what_the_recording_holds(run, damage, capsys):
    before = held(run)
    record(run, before)
    damage(run)
    assert repair(run.root, print) == 0, capsys.readouterr().out
    assert held(run) == before
    assert audit_run(run.root, "") == 0
    with serving(run, run.settings()) as cluster:
        require_whole(run, run.settings(), cluster)
    assert not list(run.broker.glob("topics/*/*/aside"))
    assert repair(run.root, print) == 0  # again: nothing to do
    assert held(run) == before


def test_repair_says_what_nobody_holds_and_keeps_the_offsets_of_the_rest(run, capsys):
    before = held(run)
    record(run, [each for each in before if each.offset < 50])
    first = cut_half(run)
    assert repair(run.root, print) == 1
    said = capsys.readouterr().out
    assert f"{50 - first} of {60 - first} are back" in said
    assert "nobody holds 50..59" in said
    after = held(run)
    assert [each.offset for each in after] == list(range(GROUPS))
    assert after[:50] == before[:50]
    assert {each.value for each in after[50:]} == {before[49].value}
    assert audit_run(run.root, "") == 1
    assert "judged, but never completed" in capsys.readouterr().out


def test_whole_records_behind_a_damaged_one_come_back_without_any_recording(run, capsys):
    before = held(run)
    damaged = flip(run)
    assert repair(run.root, print) == 1
    said = capsys.readouterr().out
    assert "nobody holds" in said
    after = held(run)
    assert [a.offset for a, b in zip(after, before, strict=True) if a != b] == damaged


def test_a_damaged_segment_of_the_recording_is_said_and_the_others_are_used(run, capsys):
    before = held(run)
    record(run, before[:55])
    record(run, before[55:])
    store = open_store(run.settings().store)
    (second,) = [key for key in store.list("recorded/") if f"{55:020}-" in key]
    (path,) = [p for p in run.store.rglob("*") if p.is_file() and p.name == second.rpartition("/")[2]]
    path.write_bytes(b"nonsense")
    cut_half(run)
    assert repair(run.root, print) == 1
    said = capsys.readouterr().out
    assert "damaged" in said
    assert "nobody holds 55..59" in said


def test_the_recording_and_the_checkpoint_reach_further_too(run):
    from services.runtime.checkpoints import CheckpointMeta, publish_checkpoint

    before = held(run)
    record(run, before)
    settings = run.settings()
    meta = CheckpointMeta(RUN, 3, consumed={VERIFICATION_VERDICT.name: {"0": GROUPS + 5}})
    publish_checkpoint(open_store(settings.store), {"x": b"x"}, meta)
    first = cut_half(run)
    with serving(run, settings) as cluster, Restorer(cluster) as restorer:
        restorer.group(f"{RUN}.verifier", {(ROLLOUT_COMPLETED.name, 0): 5})
        found = {each.place.topic: each for each in missing(settings, cluster, run.broker)}
    assert (found[PLACE.topic].first, found[PLACE.topic].end) == (first, GROUPS)
    assert "the recording" in str(found[PLACE.topic])
    checkpoint = found[VERIFICATION_VERDICT.name]
    assert (checkpoint.first, checkpoint.end) == (GROUPS, GROUPS + 5)
    assert "the checkpoint of version 3" in str(checkpoint)


def test_one_recorded_record_counts(run):
    """The first offset is 0, and not nothing."""
    record(run, held(run)[:1])
    lose_file(run)
    with serving(run, run.settings()) as cluster, Restorer(cluster) as restorer:
        restorer.group(f"{RUN}.verifier", {(ROLLOUT_COMPLETED.name, 0): 0})
        (found,) = missing(run.settings(), cluster, run.broker)
    assert (found.first, found.end) == (0, 1)


def test_a_running_run_is_not_repaired(run):
    with run.claimed(), pytest.raises(UserError, match="running"):
        repair(run.root, print)
