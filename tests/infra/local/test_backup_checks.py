"""What a backup says of itself is added up before anything is written, and a run with a hole in it can be copied."""

import copy
import io
import json

import pyarrow as pa
import pytest

from infra.local.backup import _copy_objects, _document
from infra.local.backup_checks import check
from schemas.codec import ContractViolation
from services.runtime.errors import UserError
from services.runtime.segments import _SCHEMA, MAX_UNPACKED, Raw, pack, unpack
from services.runtime.settings import load
from services.runtime.store import CorruptObject, content_key, get_bounded
from services.runtime.store_local import LocalStore

KEY = content_key("ab" * 32)
TOPIC = "rollout.requested.v1"
GOOD = {
    "format": "rollstream.backup/1",
    "settings": "",
    "topics": {
        TOPIC: {
            "0": {"first": 3, "end": 9, "segments": [{"key": KEY, "first": 3, "last": 8, "count": 6}]},
            "1": {"first": 4, "end": 4, "segments": []},
        },
        "policy.published.v1": {
            "0": {"first": 0, "end": 5, "segments": [{"key": KEY, "first": 2, "last": 4, "count": 2}]}
        },
    },
    "groups": {"run.closure": {TOPIC: {"0": 9}}},
    "objects": {"runs/x/prepared.json": KEY, KEY: KEY},
}


def at(*path, value):
    def change(document):
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return change


PART = ("topics", TOPIC, "0")
LIES = [
    at(*PART, "end", value=10**12),
    at(*PART, "end", value=10),
    at("topics", TOPIC, "1", "end", value=10**12),
    at("topics", TOPIC, "1", value={"first": 10**12, "end": 10**12, "segments": []}),
    at("topics", "policy.published.v1", "0", "end", value=10**12),
    at(*PART, "first", value=-1),
    at(*PART, "first", value="3"),
    at(*PART, "first", value=True),
    at(*PART, "segments", 0, "count", value=7),
    at(*PART, "segments", 0, "last", value=2**63),
    at(*PART, "segments", 0, "key", value="tasks/x/hidden.json"),
    at(*PART, "segments", value=[{"key": KEY, "first": 3, "last": 8, "count": 6}] * 2),
    at("topics", TOPIC, "999999999", value={"first": 0, "end": 0, "segments": []}),
    at("topics", "somebody.else", value={"0": {"first": 0, "end": 0, "segments": []}}),
    at("groups", "run.closure", TOPIC, "0", value=10),
    at("groups", "run.closure", TOPIC, "7", value=1),
    at("objects", "../outside", value=KEY),
    at("objects", content_key("cd" * 32), value=KEY),
    at("settings", value=None),
    at("topics", value=[]),
]


def test_an_honest_manifest_passes():
    check(GOOD)


@pytest.mark.parametrize("lie", LIES)
def test_a_manifest_whose_counts_do_not_fit_is_refused(tmp_path, lie):
    document = copy.deepcopy(GOOD)
    lie(document)
    store = LocalStore(tmp_path)
    store.put("backup.json", json.dumps(document).encode())
    with pytest.raises(UserError, match="damaged"):
        _document(store, "here")


def test_a_manifest_of_brackets_is_refused(tmp_path):
    store = LocalStore(tmp_path)
    store.put("backup.json", b"[" * 100_000)
    with pytest.raises(UserError, match="damaged"):
        _document(store, "here")


def test_a_claim_check_that_names_nothing_is_named_and_the_rest_is_copied(tmp_path):
    source, target = LocalStore(tmp_path / "source"), LocalStore(tmp_path / "target")
    kept = source.put_content(b"a large candidate")
    settings = load(run_id="r", store={"url": f"file://{tmp_path}/source"}, taskset_digest="t")
    said = []
    claims = {kept, content_key("cd" * 32), "no key at all", "../../etc/passwd"}
    objects, size, missing = _copy_objects(settings, target, {}, claims, said.append)
    assert objects == {kept: kept}
    assert size == len(b"a large candidate")
    assert set(missing) == claims - {kept}
    assert all(any(name in line for line in said) for name in missing)


def test_an_object_is_read_no_further_than_asked_for(tmp_path):
    store = LocalStore(tmp_path)
    key = store.put_content(b"x" * 1000)
    assert get_bounded(store, key, 1000, key.rpartition("/")[2]) == b"x" * 1000
    with pytest.raises(CorruptObject, match="more than 999"):
        get_bounded(store, key, 999)
    with pytest.raises(CorruptObject, match="promises"):
        get_bounded(store, key, 1000, "cd" * 32)


def test_a_segment_that_would_unpack_to_a_gigabyte_is_refused_before():
    segment = pack([Raw(n, 0, None, bytes(8 * 2**20), ()) for n in range(MAX_UNPACKED // (8 * 2**20) + 1)])
    assert len(segment) < 2**20
    before = pa.total_allocated_bytes()
    with pytest.raises(ContractViolation, match="would unpack"):
        list(unpack(segment))
    assert pa.total_allocated_bytes() - before < 2**20


def test_a_segment_of_countless_empty_headers_is_refused():
    count = 5_000_000
    names = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.array([""] * count))
    values = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.array([b""] * count))
    row = [pa.array([0]), pa.array([0]), pa.nulls(1, pa.binary()), pa.nulls(1, pa.binary()), names, values]
    out = io.BytesIO()
    with pa.ipc.new_stream(out, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(row, schema=_SCHEMA))
    with pytest.raises(ContractViolation, match="headers"):
        list(unpack(out.getvalue()))
