"""Checkpoints: content-addressed files and one manifest, written last and only once, that makes them a version."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from schemas.bounds import INT32, YEAR_2200_MS
from services.runtime.store import CorruptObject, MissingObject, ObjectStore, digest_of

FORMAT = "rollstream.checkpoint/1"
OPTIMIZER_FILE = "optimizer.pt"
"""The one file of a checkpoint that only the trainer needs."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MANIFEST = re.compile(r"runs/[^/]+/checkpoints/(\d{8})\.json")


class CheckpointConflict(RuntimeError):
    """The version exists already with other files: two processes trained the same run."""


@dataclass(frozen=True)
class StoredFile:
    """One file of a checkpoint: its key in the store, hexadecimal SHA-256 and size."""

    key: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class CheckpointMeta:
    """What a manifest says beside its files.

    `consumed`: topic -> partition (as text) -> offset from which its maker must read on. `decided`: half-open intervals
    of group numbers that need nothing more. `update`: the fields of the `training.update` that made it. `digests`: of
    whatever else the version depends on (tokenizer, template, task set).
    """

    run_id: str
    version: int
    parent: int | None = None
    update_id: str | None = None
    group_ids: tuple[str, ...] = ()
    consumed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    decided: tuple[tuple[int, int], ...] = ()
    update: Mapping[str, Any] | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    published_ms: int = 0


@dataclass(frozen=True)
class Manifest:
    """A complete checkpoint as read back. `digest` is `sha256:` + hex over the manifest's own bytes."""

    key: str
    digest: str
    meta: CheckpointMeta
    files: Mapping[str, StoredFile]

    @property
    def version(self) -> int:
        return self.meta.version

    @property
    def policy_files(self) -> list[str]:
        """Names of the files that it takes to sample from this version."""
        return [name for name in self.files if name != OPTIMIZER_FILE]


def manifest_key(run_id: str, version: int) -> str:
    """Where the manifest of a version lies."""
    return f"runs/{run_id}/checkpoints/{version:08d}.json"


def publish_checkpoint(
    store: ObjectStore, files: Path | Mapping[str, bytes | Path | StoredFile], meta: CheckpointMeta
) -> tuple[str, str]:
    """Store the files (of a folder, or by name), then the manifest; returns its key and digest.

    A version is made once: publishing the same files again returns what is there, other files raise
    CheckpointConflict. A crash before the manifest leaves nothing that anybody reads.
    """
    named: Mapping[str, bytes | Path | StoredFile]
    named = {p.name: p for p in sorted(files.iterdir()) if p.is_file()} if isinstance(files, Path) else files
    stored = {name: _store_file(store, name, data) for name, data in sorted(named.items())}
    body = {"format": FORMAT, **asdict(meta), "files": {name: asdict(file) for name, file in stored.items()}}
    raw = json.dumps(body, sort_keys=True, indent=1, allow_nan=False).encode()
    key = manifest_key(meta.run_id, meta.version)
    if store.put_if_absent(key, raw):
        return key, _digest(raw)
    found = load_manifest(store, key)
    if dict(found.files) != stored:
        raise CheckpointConflict(f"{key} exists with other files: version {meta.version} of this run was made before")
    return key, found.digest


def _store_file(store: ObjectStore, name: str, data: bytes | Path | StoredFile) -> StoredFile:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no file name of a checkpoint")
    if isinstance(data, StoredFile):
        return data
    size = len(data) if isinstance(data, bytes) else data.stat().st_size
    key = store.put_content(data)
    return StoredFile(key, key.rpartition("/")[2], size)


def _digest(raw: bytes) -> str:
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def load_manifest(store: ObjectStore, key: str, digest: str | None = None) -> Manifest:
    """A manifest by its key. Raises MissingObject, and CorruptObject when it is not what `digest` promises."""
    raw = store.get(key)
    found = _digest(raw)
    if digest is not None and digest != found:
        raise CorruptObject(f"manifest {key} is {found}, where {digest} was announced")
    try:
        body = json.loads(raw)
        if body.pop("format") != FORMAT:
            raise ValueError("another format")
        files = {name: StoredFile(**file) for name, file in body.pop("files").items()}
        body["group_ids"] = tuple(body["group_ids"])
        body["decided"] = tuple((int(a), int(b)) for a, b in body["decided"])
        return Manifest(key, found, _checked(CheckpointMeta(**body)), files)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise CorruptObject(f"{key} is no checkpoint manifest of ours: {e!r}") from e


def _checked(meta: CheckpointMeta) -> CheckpointMeta:
    """Raises ValueError for numbers that no trainer writes."""
    offsets = [offset for partitions in meta.consumed.values() for offset in partitions.values()]
    for name, value, high in (
        ("version", meta.version, INT32), ("parent", meta.parent or 0, INT32),
        ("published_ms", meta.published_ms, YEAR_2200_MS), *(("offset", offset, 2**62) for offset in offsets),
    ):  # fmt: skip
        if not isinstance(value, int) or not 0 <= value <= high:
            raise ValueError(f"{name} {value!r}")
    if any(not 0 <= low < high <= 10**8 for low, high in meta.decided):
        raise ValueError("decided groups that cannot be numbered")
    return meta


def fetch_checkpoint(store: ObjectStore, manifest: Manifest, folder: Path, names: Iterable[str] | None = None) -> None:
    """Bring the files (all, or those of `names` that it has) into `folder`, each verified by SHA-256.

    A file that is there already with the right content is kept, and none is ever overwritten: one with other content
    raises FileExistsError. Raises CorruptObject or MissingObject when the store does not hold what was promised.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = set(manifest.files) if names is None else set(names) & set(manifest.files)
    for name in sorted(wanted):
        file, path = manifest.files[name], folder / name
        if not _NAME.fullmatch(name):
            raise CorruptObject(f"{manifest.key} names a file {name!r}")
        if not path.exists() and _fetch_new(store, file, path):
            continue
        if digest_of(path) != file.sha256:
            raise FileExistsError(f"{path} holds something else than {name} of version {manifest.version}")


def _fetch_new(store: ObjectStore, file: StoredFile, path: Path) -> bool:
    """The whole verified file or nothing, never whole in memory; False: one that appeared meanwhile stays as it is."""
    fd, temporary = tempfile.mkstemp(prefix=".fetch-", dir=path.parent)
    try:
        with os.fdopen(fd, "w+b") as out:
            found = store.get_into(file.key, out)
        if found != file.sha256:
            raise CorruptObject(f"{path.name} ({file.key}) does not match its SHA-256")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        return True
    finally:
        os.unlink(temporary)


def list_manifests(store: ObjectStore, run_id: str) -> dict[int, str]:
    """Version -> manifest key of a run, in order of version."""
    found = {}
    for key in store.list(f"runs/{run_id}/checkpoints/"):
        match = _MANIFEST.fullmatch(key)
        if match:
            found[int(match[1])] = key
    return dict(sorted(found.items()))


def latest_manifest(store: ObjectStore, run_id: str) -> Manifest | None:
    """The newest complete checkpoint of a run; None when it has none."""
    found = list_manifests(store, run_id)
    return load_manifest(store, found[max(found)]) if found else None


def prune_checkpoints(store: ObjectStore, run_id: str, keep: int, named: Iterable[int] = ()) -> list[int]:
    """Remove all versions but version 0, the `keep` newest and those `named`; returns the removed ones.

    A file goes only when no manifest that stays, of any run in this store, mentions it; files go before their manifest,
    so that a crash in between leaves nothing that a later call would not find.
    """
    found = list_manifests(store, run_id)
    newest = sorted(found)[-keep:] if keep > 0 else []
    going = [v for v in found if v not in {0, *newest, *named}]
    if not going:
        return []
    gone = {found[v] for v in going}
    every = [key for key in store.list("runs/") if _MANIFEST.fullmatch(key)]
    kept = {file.key for key in every if key not in gone for file in _files(store, key)}
    for version in going:
        for file in _files(store, found[version]):
            if file.key not in kept:
                store.delete(file.key)
        store.delete(found[version])
    return going


def _files(store: ObjectStore, key: str) -> list[StoredFile]:
    try:
        return list(load_manifest(store, key).files.values())
    except MissingObject:  # removed meanwhile by its own run
        return []
