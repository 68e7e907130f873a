"""Backup and restore of a whole run: topics, objects and configuration in one folder or bucket, and back elsewhere.

    backup.json             written last: a copy without it is no backup
    sha256/ab/abcdef…       segments of topics, and the run's objects, by content

A backup of a live run is consistent: what consumers have committed is asked first, then the ends of the logs, effects
before causes, then the objects; checkpoints that have read beyond those ends are left out. It holds the hidden checks
too: keep it where the agents' credentials do not reach.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.local.backup_checks import check
from infra.local.deployed import settings_of
from infra.local.rundir import RunDir
from infra.local.stack import readable, serving
from schemas import codec
from schemas.access import RECORDER, group_of, principals
from schemas.rollout import RolloutCompleted
from schemas.topics import ALL, ROLLOUT_COMPLETED, dead_letter
from services.runtime import archive
from services.runtime.archive import Span
from services.runtime.cluster import Cluster, said
from services.runtime.errors import UserError
from services.runtime.scratch import Scratch
from services.runtime.segments import MAX_UNPACKED, Raw, unpack
from services.runtime.settings import SECRETS, RunSettings, Store, decide, dump_toml, load
from services.runtime.store import (
    CorruptObject,
    MissingObject,
    ObjectStore,
    checked_key,
    content_key,
    digest_of,
    file_url,
    get_bounded,
    open_hidden,
    open_store,
)
from services.tasks import trust

FORMAT = "rollstream.backup/1"
MANIFEST = "backup.json"
MAX_MANIFEST = 256 * 1024 * 1024
Say = Callable[[str], None]


@dataclass(frozen=True)
class Counts:
    """What was copied."""

    records: int
    objects: int
    bytes: int
    missing: tuple[str, ...] = ()
    """Objects that something in the run names and the store does not hold: the copy lacks them as the run does."""


def target_store(place: str, own: Store | None = None, *, create: bool = False) -> ObjectStore:
    """The store of a folder path, file:// or s3:// URL. Raises UserError.

    It is logged in to as `own`, the run's store, where both are S3, else by `ROLLSTREAM_STORE__…`.
    """
    url = place if "://" in place else file_url(Path(place))
    same = own is not None and own.url.startswith("s3://") and url.startswith("s3://")
    return open_store((own if own and same else load().store).model_copy(update={"url": url}), create=create)


# -- backup ---------------------------------------------------------------------------------------------------------


def backup(root: Path, place: str, say: Say) -> Counts:
    """Copy the run in `root` (its folder, whose configuration names cluster and store) to `place`."""
    run = RunDir(root)
    settings = settings_of(run)
    target = target_store(place, settings.store, create=True)
    if target.exists(MANIFEST):
        raise UserError("there is a backup already", place, "choose an empty folder or prefix")
    with readable(run) as cluster:
        return copy_out(settings, cluster, target, say)


def copy_out(settings: RunSettings, cluster: Cluster, target: ObjectStore, say: Say) -> Counts:
    """Copy one run's topics and objects, then write the manifest."""
    run_id = settings.run_id
    # The recorder's copies do not come along: it reads the restored topics from their beginning, into the new store.
    groups = archive.committed(cluster, [group_of(run_id, service) for service in principals() if service != RECORDER])
    names = [name for topic in reversed(ALL) for name in (topic.name, dead_letter(topic)) if name]
    found = archive.spans(cluster, names)
    _require_own(cluster, settings, found)
    topics: dict[str, dict[str, Any]] = {}
    claimed: set[str] = set()
    total = 0
    for (name, number), span in sorted(found.items()):
        records = archive.read_raw(cluster, name, number, span)
        segments = archive.store_partition(target, _noting(name, records, claimed))
        count = sum(segment["count"] for segment in segments)
        total += count
        topics.setdefault(name, {})[str(number)] = {"first": span.first, "end": span.end, "segments": segments}
        say(f"{name}[{number}]: {count} records")
    objects, size, missing = _copy_objects(settings, target, found, claimed, say)
    document = {
        "format": FORMAT,
        "run_id": run_id,
        "made_ms": int(time.time() * 1000),
        "settings": dump_toml(settings),
        "topics": topics,
        "groups": {group: _as_json(offsets) for group, offsets in groups.items()},
        "objects": objects,
        "missing": missing,
    }
    if not target.put_if_absent(MANIFEST, json.dumps(document, indent=1, sort_keys=True).encode()):
        raise UserError("somebody else wrote a backup there meanwhile", str(target), "choose another place")
    return Counts(total, len(objects), size, missing)


def _require_own(cluster: Cluster, settings: RunSettings, found: Mapping[tuple[str, int], Span]) -> None:
    if not any(span.end for span in found.values()):
        raise UserError(f"the topics of run {settings.run_id!r} are empty", said(cluster), "has the run been started?")


def _noting(name: str, records: Iterable[Raw], claimed: set[str]) -> Iterator[Raw]:
    """The records as they are; claim checks of completed rollouts are noted, so that their objects come along."""
    for record in records:
        if name == ROLLOUT_COMPLETED.name:
            try:
                decoded = codec.decode(
                    RolloutCompleted, record.value or b"", [(n, v or b"") for n, v in record.headers]
                )
            except codec.ContractViolation:
                decoded = None
            if isinstance(decoded, RolloutCompleted) and decoded.diff_uri:
                claimed.add(decoded.diff_uri)
        yield record


def _copy_objects(
    settings: RunSettings,
    target: ObjectStore,
    found: Mapping[tuple[str, int], Span],
    claimed: set[str],
    say: Say,
) -> tuple[dict[str, str], int, tuple[str, ...]]:
    """Original key -> content key of every object of the run, and their bytes. Content objects keep their names."""
    source, hidden = open_store(settings.store, read_only=True), open_hidden(settings, read_only=True)
    tasks = f"tasks/{settings.taskset_digest}/"
    wanted = {key: source for prefix in (f"runs/{settings.run_id}/", tasks) for key in source.list(prefix)}
    wanted |= dict.fromkeys(hidden.list(tasks), hidden)
    objects: dict[str, str] = {}
    size = 0
    for key, store in wanted.items():
        data = store.get(key)
        files = _files_of(key, data, found)
        if files is None:
            continue  # a checkpoint that has read beyond the copied logs
        claimed.update(files)
        objects[key] = target.put_content(data)
        size += len(data)
    missing = []
    for key in sorted(claimed):
        try:
            with _fetched(source, key) as path:
                objects[key] = target.put_content(path)
                size += path.stat().st_size
        except (MissingObject, CorruptObject, ValueError) as e:
            missing.append(key)
            say(f"not copied: {str(e)[:300]}")
    say(f"{len(objects)} objects, {size / 2**20:.1f} MB")
    return objects, size, tuple(missing)


@contextlib.contextmanager
def _fetched(store: ObjectStore, key: str) -> Iterator[Path]:
    """A content-addressed object, however large, as a verified temporary file."""
    with Scratch("object") as folder:
        path = folder / "object"
        with path.open("wb") as out:
            if content_key(store.get_into(checked_key(key), out)) != key:
                raise CorruptObject(f"object {key} in {store} does not hold what its name promises")
        yield path


def _files_of(key: str, data: bytes, found: Mapping[tuple[str, int], Span]) -> list[str] | None:
    """Content keys that an object refers to; None for a manifest that consumed what is not in the copied spans."""
    if "/checkpoints/" not in key:
        return []
    try:
        body = json.loads(data)
        for topic, offsets in body["consumed"].items():
            for number, offset in offsets.items():
                if offset > found.get((topic, int(number)), Span(0, 0)).end:
                    return None
        return [file["key"] for file in body["files"].values()]
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CorruptObject(f"{key} is no checkpoint manifest: {e!r}") from e


def _as_json(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    out: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        out.setdefault(topic, {})[str(number)] = offset
    return out


# -- restore --------------------------------------------------------------------------------------------------------


def restore(place: str, root: Path, overrides: dict[str, Any], say: Say, trusted: bool = False) -> Counts:
    """Put a backup back as the run folder `root`, on the cluster and store that `overrides` name (else its own).

    Hidden tests that are programs are held back unless the backup is `trusted`, or the store holds the same already.
    """
    run = RunDir(root)
    if run.exists():
        raise UserError("this folder holds a run already", str(root), "restore into a new --run-dir")
    source = target_store(place, Store(**overrides["store"]) if "store" in overrides else None)
    document = _document(source, place)
    settings = _settings(document, run, overrides)
    with run.claimed():
        return _put_back(document, run, settings, source, say, trusted)


def _put_back(
    document: Mapping[str, Any], run: RunDir, settings: RunSettings, source: ObjectStore, say: Say, trusted: bool
) -> Counts:
    run.create(settings)
    for section in (settings.store, settings.hidden_store):
        if section.url:
            open_store(section, create=True)
    with serving(run, settings) as cluster:
        return copy_in(document, settings, cluster, source, say, trusted)


def _document(source: ObjectStore, place: str) -> dict[str, Any]:
    try:
        document = json.loads(get_bounded(source, MANIFEST, MAX_MANIFEST))
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}")
        check(document)
    except MissingObject:
        raise UserError(
            "there is no finished backup", place, "give the place that `rollstream backup` wrote to"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, CorruptObject) as e:
        raise UserError(f"the backup's manifest is damaged: {e}", f"{place}/{MANIFEST}", "take another copy") from e
    return dict(document)


def _settings(document: Mapping[str, Any], run: RunDir, overrides: dict[str, Any]) -> RunSettings:
    """The backed-up settings with this place's cluster and store."""
    import tomllib

    values = tomllib.loads(document["settings"])
    # Addresses, logins and files of the machine where it was made mean nothing here, or something else.
    values["kafka"] = {k: v for k, v in values.get("kafka", {}).items() if k in ("partitions", "compression")}
    values["isolation"] = {k: v for k, v in values.get("isolation", {}).items() if k == "backend"}
    values["store"] = Store(url=file_url(run.store)).model_dump(exclude=set(SECRETS))
    values["hidden_store"] = {}
    values["run_dir"] = str(run.root)
    return decide(None, overrides, "the command line", file=values)


def copy_in(
    document: Mapping[str, Any],
    settings: RunSettings,
    cluster: Cluster,
    source: ObjectStore,
    say: Say,
    trusted: bool = False,
) -> Counts:
    """Put objects, then records, then what consumers had committed. Raises UserError when topics hold anything."""
    topics: Mapping[str, Mapping[str, Any]] = document["topics"]
    taken = [place for place, span in archive.spans(cluster, list(topics)).items() if span.end]
    if taken:
        raise UserError(
            f"topic {taken[0][0]} is not empty there ({len(taken)} partitions hold records)",
            said(cluster),
            "restore onto a cluster without these topics' records",
        )
    size = 0
    store, hidden = open_store(settings.store), open_hidden(settings)
    for key, content in document["objects"].items():
        target = hidden if trust.is_hidden(key) else store
        with _fetched(source, content) as path:
            size += path.stat().st_size
            place = _hidden_key(key, path, hidden, trusted, say) if trust.is_hidden(key) else key
            if not target.put_if_absent(place, path) and digest_of(target.get(place)) != content.rpartition("/")[2]:
                raise UserError(f"another object stands under {place}", str(target), "restore into an empty store")
    say(f"{len(document['objects'])} objects, {size / 2**20:.1f} MB")
    total = 0
    with archive.Restorer(cluster) as restorer:
        for name, partitions in topics.items():
            for number, part in partitions.items():
                span = Span(part["first"], part["end"])
                try:
                    count = restorer.partition(name, int(number), span, _records(source, part["segments"]))
                except (codec.ContractViolation, CorruptObject, MissingObject) as e:
                    raise UserError(f"{name}[{number}] is damaged: {e}", str(source), "restore another copy") from e
                total += count
                say(f"{name}[{number}]: {count} records")
        for group, offsets in document["groups"].items():
            restorer.group(
                group, {(name, int(number)): at for name, parts in offsets.items() for number, at in parts.items()}
            )
    return Counts(total, len(document["objects"]), size)


def _hidden_key(key: str, path: Path, store: ObjectStore, trusted: bool, say: Say) -> str:
    """Where the hidden half of a task set goes: programs that nobody vouched for where no verifier runs them."""
    digest, document = key.split("/")[1], path.read_bytes()
    usual = trust.key(digest)
    if trusted or not trust.programs(document) or (store.exists(usual) and store.get(usual) == document):
        return usual
    say(f"the hidden tests of {trust.programs(document)} tasks are programs: held back until `--trust` is given")
    return trust.key(digest, trust.HELD)


def _records(source: ObjectStore, segments: Iterable[Mapping[str, Any]]) -> Iterator[Raw]:
    for segment in segments:
        data = get_bounded(source, segment["key"], MAX_UNPACKED, segment["key"].rpartition("/")[2])
        found = list(unpack(data))
        if (len(found), found[0].offset, found[-1].offset) != (segment["count"], segment["first"], segment["last"]):
            raise CorruptObject(f"segment {segment['key']} does not hold what the manifest says")
        yield from found
