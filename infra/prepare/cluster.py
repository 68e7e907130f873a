"""`rollstream prepare`: everything before the first record of a run whose cluster and object store are elsewhere.

Topics (users and rights, buckets) are made as far as they are missing, then the materials are stored, then the base is
published as version 0, and `runs/<run>/prepared.json` is created last: it is what every service waits for. Each step
finds what an earlier try left, so a preparation may be killed anywhere and repeated, and repeating a finished one
changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from infra.prepare.coldstart import cold_start, recipe_digest
from infra.prepare.materials import build_task_set, certified, publish_base, store_task_set
from infra.prepare.origin import differences, origin
from services.runtime.clock import Deadline, SystemClock
from services.runtime.errors import NotYet, UserError
from services.runtime.lifecycle import reachable
from services.runtime.logs import Log
from services.runtime.prepared import Prepared, load_prepared, prepared_key, publish_prepared
from services.runtime.scratch import Scratch
from services.runtime.settings import RunSettings, dump_toml
from services.runtime.store import (
    MissingObject,
    ObjectStore,
    StoreUnavailable,
    hidden_section,
    open_hidden,
    open_store,
)

T = TypeVar("T")
_SAY_S = 5.0
_RECIPE = "coldstart"
"""Under which name the manifest of version 0 keeps the digest of the recipe that it was made by."""


@dataclass
class Options:
    """How a preparation is asked for. `wait_s`: for broker and store together; `plain`: see `access_admin.grant`."""

    wait_s: float = 600.0
    grant: bool = False
    plain: str = ""
    create_buckets: bool = False
    bucket_policies: bool = False


@dataclass
class Patience:
    """Makes a try again while what it needs is not there yet, says what for, and gives up at the deadline."""

    deadline: Deadline
    log: Log
    _said: float = field(default=float("-inf"))

    def insist(self, what: str, work: Callable[[], T]) -> T:
        """What `work` returns. Raises its NotYet or StoreUnavailable at the deadline, anything else at once."""
        wait_s = 0.5
        while True:
            try:
                return work()
            except (NotYet, StoreUnavailable) as e:
                if self.deadline.passed:
                    raise
                if time.monotonic() - self._said > _SAY_S:
                    self._said = time.monotonic()
                    self.log.warning(f"waiting for {what}", why=str(e), left_s=round(self.deadline.left()))
            time.sleep(min(wait_s, self.deadline.left(0.1)))
            wait_s = min(2 * wait_s, _SAY_S)


def prepare_cluster(settings: RunSettings, options: Options, log: Log | None = None) -> Prepared:
    """Prepare the run of these settings, or find that it is. Raises UserError, also for a run_id that is taken."""
    log = log or Log("prepare", settings.run_id)
    for name, value in (("kafka.bootstrap", settings.kafka.bootstrap), ("store.url", settings.store.url)):
        if not value:
            raise UserError(
                f"{name} is empty: a cluster's run is prepared on that cluster",
                do="name both, or use `rollstream run`, which prepares a run in its own folder",
            )
    settings = _affordable(settings, log)
    patience = Patience(Deadline(SystemClock(), options.wait_s), log)
    patience.insist("the broker", lambda: _topics(settings, options, log))
    store, hidden = patience.insist("the object store", lambda: _stores(settings, options, log))
    found = load_prepared(store, settings.run_id)
    if found is None:
        made = _make(settings, store, hidden, log)
        if publish_prepared(store, made):
            log.info("prepared", task_set=made.taskset_digest, base=made.base_manifest)
            return made
        found = load_prepared(store, settings.run_id)
        assert found is not None, "it is never removed"
    _require_same(settings, found, store)
    _require_complete(found, store, hidden)
    log.info("prepared before; nothing to do", task_set=found.taskset_digest, base=found.base_manifest)
    return found


def _affordable(settings: RunSettings, log: Log) -> RunSettings:
    """Where neither engine nor trainer has a model, nothing that a cold start learns would be used."""
    if settings.sampler.engine != "synthetic" or settings.trainer.kind != "synthetic":
        return settings
    if settings.coldstart.max_steps:
        log.info("no cold start: engine and trainer are synthetic")
    section = settings.coldstart.model_copy(update={"max_steps": 0})
    return settings.model_copy(update={"coldstart": section})


def _topics(settings: RunSettings, options: Options, log: Log) -> None:
    from services.runtime.access_admin import grant
    from services.runtime.topics_admin import ensure_topics

    bootstrap = options.plain if options.grant and options.plain else settings.kafka.bootstrap
    if not reachable(bootstrap):
        raise NotYet("no broker accepts connections", bootstrap, "start it, or correct kafka.bootstrap")
    if options.grant:
        log.info("users and rights stand", rules=grant(settings, options.plain))
    ensure_topics(settings)
    log.info("topics stand", bootstrap=settings.kafka.bootstrap)


def _stores(settings: RunSettings, options: Options, log: Log) -> tuple[ObjectStore, ObjectStore]:
    if options.create_buckets:
        for section in (settings.store, hidden_section(settings)):
            open_store(section, create=True)
    if options.bucket_policies:
        _policies(settings, log)
    found = open_store(settings.store), open_hidden(settings)
    log.info("stores answer", store=str(found[0]), hidden=str(found[1]))
    return found


def _policies(settings: RunSettings, log: Log) -> None:
    """Every service exactly its rights on the two buckets, on a server that calls a user by its access key."""
    from services.runtime.store_rights import policies
    from services.runtime.store_s3 import S3Store

    for section, policy in zip((settings.store, hidden_section(settings)), policies(settings).values(), strict=True):
        store = open_store(section)
        assert isinstance(store, S3Store), "policies() refuses what is no bucket"
        store.allow(policy)
        log.info("policy set", store=str(store), statements=len(policy["Statement"]))


def _make(settings: RunSettings, store: ObjectStore, hidden: ObjectStore, log: Log) -> Prepared:
    """Task set and base, in their stores."""
    log.info("generating the task set", source=settings.tasks.source)
    taskset = build_task_set(settings)
    certificates, notice = certified(settings, taskset)
    if notice:
        log.warning(notice)
    digest = store_task_set(taskset, certificates, store, hidden)
    settings = settings.model_copy(update={"taskset_digest": digest})
    log.info("task set stored", task_set=digest)
    manifest, report = _base(settings, store, log)
    now_ms = time.time_ns() // 1_000_000
    return Prepared(settings.run_id, digest, manifest, origin(settings), report, now_ms)


def _base(settings: RunSettings, store: ObjectStore, log: Log) -> tuple[str, dict[str, Any]]:
    """Version 0 of the run: the one that is there, or a new one. Its manifest's key, and the cold start's report."""
    from services.runtime.checkpoints import CheckpointConflict

    recipe = recipe_digest(settings)
    there = _version_0(settings, store, recipe)
    if there is not None:
        log.info("the base is there", manifest=there)
        return there, {"found": True}
    with Scratch("prepare") as home:
        config = home / "run.toml"
        config.write_text(dump_toml(settings))
        log.info("cold start", max_steps=settings.coldstart.max_steps)
        folder, report = cold_start(settings, config, home, home / "coldstart.log", _progress(log))
        try:
            key = publish_base(settings, store, folder, {_RECIPE: recipe})
        except CheckpointConflict:  # another preparation was quicker, and a clock cut one of the two
            there = _version_0(settings, store, recipe)
            assert there is not None, "checkpoint 0 is never removed"
            key = there
    log.info("base published", manifest=key, steps=report.get("steps"), reason=report.get("reason"))
    return key, report


def _version_0(settings: RunSettings, store: ObjectStore, recipe: str) -> str | None:
    """The key of version 0; None when there is none. Raises UserError for one that was made from something else."""
    from services.runtime.checkpoints import load_manifest, manifest_key

    key = manifest_key(settings.run_id, 0)
    try:
        made_by = load_manifest(store, key).meta.digests.get(_RECIPE)
    except MissingObject:
        return None
    if made_by != recipe:
        raise UserError(
            f"version 0 of run {settings.run_id!r} was made from another task set, model or cold start",
            f"{key} in {store}",
            "prepare with the settings that it was made with, or choose another run_id; nothing was changed",
        )
    return key


def _progress(log: Log) -> Callable[[dict[str, Any]], None]:
    said = float("-inf")

    def say(record: dict[str, Any]) -> None:
        nonlocal said
        if time.monotonic() - said > _SAY_S:
            said = time.monotonic()
            shown = {k: round(v, 3) if isinstance(v, float) else v for k, v in record.items() if k != "event"}
            log.info("cold start goes on", **shown)

    return say


def _require_same(settings: RunSettings, found: Prepared, store: ObjectStore) -> None:
    different = differences(found.made_from, origin(settings))
    if different:
        raise UserError(
            f"run {settings.run_id!r} was prepared with other settings: {'; '.join(different)}",
            f"{prepared_key(settings.run_id)} in {store}",
            "use the settings that it was prepared with, or choose another run_id; nothing was changed",
        )


def _require_complete(found: Prepared, store: ObjectStore, hidden: ObjectStore) -> None:
    tasks = f"tasks/{found.taskset_digest}"
    wanted = ((store, f"{tasks}/public.json"), (hidden, f"{tasks}/hidden.json"), (store, found.base_manifest))
    gone = [f"{key} in {where}" for where, key in wanted if not where.exists(key)]
    if gone:
        raise UserError(
            f"run {found.run_id!r} was prepared, but what it begins with is gone: {', '.join(gone)}",
            do="restore these objects from a copy (`rollstream backup` makes one), or choose another run_id",
        )
