"""A checkpoint is whole or not there, never changes, is verified when fetched, and goes only when nothing needs it."""

from __future__ import annotations

import pytest

from services.runtime.checkpoints import (
    CheckpointConflict,
    CheckpointMeta,
    fetch_checkpoint,
    latest_manifest,
    list_manifests,
    load_manifest,
    manifest_key,
    prune_checkpoints,
    publish_checkpoint,
)
from services.runtime.store import CorruptObject, MissingObject
from services.runtime.store_local import LocalStore


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "store", fsync=False)


def publish(store, version, weights=None, run="r", **meta):
    files = {"model.safetensors": weights or b"w%d" % version, "tokenizer.json": b"same for all"}
    return publish_checkpoint(store, files, CheckpointMeta(run, version, **meta))


def test_a_manifest_reads_back_with_everything_it_said(store):
    meta = CheckpointMeta(
        "r", 3, 2, "r/u000003", ("r/00000001", "r/00000004"), {"t": {"0": 17}}, ((0, 3), (4, 5)), {"loss": 0.5},
        {"tokenizer": "sha256:1"}, 99,
    )  # fmt: skip
    key, digest = publish_checkpoint(store, {"a.bin": b"abc"}, meta)
    found = load_manifest(store, key, digest)
    assert found.meta == meta
    assert found.files["a.bin"].bytes == 3
    assert latest_manifest(store, "r") == found
    assert latest_manifest(store, "other") is None


def test_a_folder_is_published_and_fetched_byte_for_byte(store, tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    (source / "model.safetensors").write_bytes(bytes(range(256)) * 1000)
    (source / "config.json").write_text("{}")
    key, digest = publish_checkpoint(store, source, CheckpointMeta("r", 0))
    fetch_checkpoint(store, load_manifest(store, key, digest), tmp_path / "out")
    assert (tmp_path / "out/model.safetensors").read_bytes() == bytes(range(256)) * 1000
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]


def test_only_the_wanted_files_are_fetched(store, tmp_path):
    publish(store, 0)
    fetch_checkpoint(store, latest_manifest(store, "r"), tmp_path / "out", ["tokenizer.json", "optimizer.pt"])
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["tokenizer.json"]


def test_nothing_is_visible_before_the_manifest(store):
    """A crash between the files and the manifest: the version does not exist, and publishing it again works."""

    class Dying:
        def __getattr__(self, name):
            if name == "put_if_absent":
                raise KeyboardInterrupt
            return getattr(store, name)

    with pytest.raises(KeyboardInterrupt):
        publish(Dying(), 1)
    assert list_manifests(store, "r") == {}
    publish(store, 1)
    assert list(list_manifests(store, "r")) == [1]


def test_a_version_is_made_once(store):
    first = publish(store, 1, published_ms=1)
    assert publish(store, 1, published_ms=2) == first, "the same files again: what is there stays"
    with pytest.raises(CheckpointConflict):
        publish(store, 1, weights=b"other")
    assert load_manifest(store, *first).meta.published_ms == 1


def test_damage_is_noticed(store, tmp_path):
    key, digest = publish(store, 1)
    with pytest.raises(CorruptObject, match="announced"):
        load_manifest(store, key, "sha256:0")
    manifest = load_manifest(store, key, digest)
    store.put(manifest.files["model.safetensors"].key, b"damaged")
    with pytest.raises(CorruptObject, match="SHA-256"):
        fetch_checkpoint(store, manifest, tmp_path / "out")
    assert not (tmp_path / "out/model.safetensors").exists()
    store.put(key, b"{}")
    with pytest.raises(CorruptObject, match="no checkpoint manifest"):
        load_manifest(store, key)
    with pytest.raises(MissingObject):
        load_manifest(store, manifest_key("r", 9))


def test_a_fetch_never_overwrites(store, tmp_path):
    publish(store, 1)
    out = tmp_path / "out"
    out.mkdir()
    (out / "tokenizer.json").write_bytes(b"somebody's own")
    with pytest.raises(FileExistsError):
        fetch_checkpoint(store, latest_manifest(store, "r"), out)
    assert (out / "tokenizer.json").read_bytes() == b"somebody's own"
    fetch_checkpoint(store, latest_manifest(store, "r"), out, ["model.safetensors"])
    fetch_checkpoint(store, latest_manifest(store, "r"), out, ["model.safetensors"])


def test_file_names_cannot_leave_the_folder(store):
    with pytest.raises(ValueError, match="file name"):
        publish_checkpoint(store, {"../evil": b""}, CheckpointMeta("r", 0))


def test_retention_keeps_the_newest_the_first_the_named_and_all_that_is_shared(store, tmp_path):
    for version in range(7):
        publish(store, version)
    publish(store, 0, weights=b"w2", run="other")
    shared = latest_manifest(store, "other")
    assert prune_checkpoints(store, "r", keep=2, named=[3]) == [1, 2, 4]
    assert list(list_manifests(store, "r")) == [0, 3, 5, 6]
    for key in list_manifests(store, "r").values():
        manifest = load_manifest(store, key)
        fetch_checkpoint(store, manifest, tmp_path / str(manifest.version))
    fetch_checkpoint(store, shared, tmp_path / "other")
    left = list(store.list("sha256/"))
    assert len(left) == 4 + 1 + 1, "four versions, the other run's weights, one tokenizer"
    assert prune_checkpoints(store, "r", keep=2, named=[3]) == []


def test_an_interrupted_removal_is_finished_by_the_next(store):
    for version in range(4):
        publish(store, version)
    store.delete(load_manifest(store, manifest_key("r", 1)).files["model.safetensors"].key)
    assert prune_checkpoints(store, "r", keep=1) == [1, 2]
    assert len(list(store.list("sha256/"))) == 3
