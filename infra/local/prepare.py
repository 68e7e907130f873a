"""Makes what a run starts from: the task set in the object store and the cold-started base checkpoint."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.local.child import ENVIRONMENT, PARENT
from infra.local.rundir import RunDir, write_atomic
from services.runtime.errors import UserError
from services.runtime.settings import RunSettings, secret_environment
from services.runtime.store import ObjectStore, open_hidden, open_store

if TYPE_CHECKING:
    from services.tasks.taskset import TaskSet

Progress = Callable[[dict[str, Any]], None]


def cache_folder() -> Path:
    """Where cold starts are kept between runs: `ROLLSTREAM_CACHE`, else `~/.cache/rollstream`."""
    return Path(os.environ.get("ROLLSTREAM_CACHE") or Path.home() / ".cache" / "rollstream")


def build_task_set(settings: RunSettings) -> TaskSet:
    """The task set that the settings name, both halves; its leak canaries have secrets of their own every time."""
    from services.tasks.build import build_catalogue
    from services.tasks.leaks import with_leaks
    from services.tasks.quixbugs import load_quixbugs

    source = settings.tasks.source
    taskset = build_catalogue(settings.tasks.seed) if source == "catalogue" else load_quixbugs(Path(source))
    return with_leaks(taskset, [secrets.token_hex(16) for _ in range(settings.tasks.leak_canaries)])


def store_task_set(taskset: TaskSet, store: ObjectStore, hidden_store: ObjectStore) -> str:
    """Put the public and hidden halves into their stores; returns the digest of the public one."""
    public, hidden = taskset.public_document(), taskset.hidden_document()
    digest = hashlib.sha256(public).hexdigest()
    store.put_if_absent(f"tasks/{digest}/public.json", public)
    hidden_store.put_if_absent(f"tasks/{digest}/hidden.json", hidden)
    return digest


def certified(settings: RunSettings, taskset: TaskSet) -> tuple[bytes, str]:
    """The document of certificates, and a notice of what is left out of training ("": nothing).

    Raises UserError when the run would train on check-sets that are not certified and the settings do not allow it.
    """
    from services.tasks import certificates, training
    from services.tasks.taskset import TRAIN

    named = settings.tasks.certificates
    try:
        document = Path(named).read_bytes() if named else certificates.shipped()
    except OSError as error:
        raise UserError(f"the certificates cannot be read: {error}", "tasks.certificates", "check the path") from error
    held = training.read(document, named or "the shipped certificates")
    allowed = settings.tasks.allow_uncertified or not settings.dispatch.updates
    return document, training.trainable(taskset.split(TRAIN), held, allowed).notice()


def cold_start(settings: RunSettings, run: RunDir, progress: Progress) -> tuple[Path, dict[str, Any]]:
    """The base policy's folder and its report: from the cache by digest, else trained now in a process of its own.

    `progress` is given the training process's own progress records. Raises UserError with the end of its log when it
    fails.
    """
    from services.tasks.taskset import load_public
    from services.trainer.coldstart_recipe import REPORT_FILE, digest

    public = open_store(settings.store).get(f"tasks/{settings.taskset_digest}/public.json")
    known = digest(settings, load_public(public)).removeprefix("sha256:")
    for home in (cache_folder(), run.root):
        found = home / "coldstart" / known
        if (found / REPORT_FILE).exists():
            return found, {**json.loads((found / REPORT_FILE).read_text()), "cached": True}
    log = run.logs / "coldstart.log"
    # Training sees no hidden check: it is given the login of the public store alone.
    environment = {**os.environ, **ENVIRONMENT, **secret_environment(settings, "coldstart"), PARENT: str(os.getpid())}
    command = [sys.executable, "-m", "infra.local.child", "infra.local.coldstart_job"]
    command += ["--config", str(run.config), "--cache", str(cache_folder()), "--digest", known]
    result: dict[str, Any] = {}
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True
        ) as child,
    ):
        assert child.stdout is not None
        try:
            for line in child.stdout:
                record = json.loads(line)
                if record.get("event") == "done":
                    result = record
                else:
                    progress(record)
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0 or not result:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        raise UserError(f"the cold start failed (exit code {child.returncode}):\n{tail}", str(log))
    return Path(result["folder"]), dict(result["report"])


def publish_base(settings: RunSettings, store: ObjectStore, folder: Path) -> str:
    """Put the base checkpoint into the store as version 0; returns its manifest's key."""
    from services.runtime.checkpoints import CheckpointMeta, publish_checkpoint
    from services.trainer.coldstart_recipe import NOT_POLICY

    files = {p.name: p for p in sorted(folder.iterdir()) if p.is_file() and p.name not in NOT_POLICY}
    meta = CheckpointMeta(run_id=settings.run_id, version=0)
    key, _ = publish_checkpoint(store, files, meta)
    return key


def prepare(settings: RunSettings, run: RunDir, progress: Progress) -> RunSettings:
    """Everything before the first record; safe to repeat after an interruption. Returns the completed settings."""
    from services.tasks.training import object_key

    progress({"event": "tasks", "text": "generating the task set"})
    taskset = build_task_set(settings)
    # Before there is a folder: whoever mends the settings after a refusal starts another run.
    certificates, notice = certified(settings, taskset)
    if notice:
        progress({"event": "tasks", "text": notice})
    if not settings.store.url:
        section = settings.store.model_copy(update={"url": f"file://{run.store.resolve()}"})
        settings = settings.model_copy(update={"store": section})
    run.create(settings)
    store = open_store(settings.store)
    digest = store_task_set(taskset, store, open_hidden(settings))
    store.put(object_key(digest), certificates)
    settings = settings.model_copy(update={"taskset_digest": digest})
    run.create(settings)
    folder, report = cold_start(settings, run, progress)
    settings = settings.model_copy(update={"base_manifest": publish_base(settings, store, folder)})
    write_atomic(run.preparation, json.dumps({"coldstart": report}, indent=1, default=str) + "\n")
    run.create(settings)
    return settings


def adopt(folder: Path, cache: Path, digest: str) -> Path:
    """Move a finished cold start to its place under `cache` in one step; an equal one that came first wins."""
    target = cache / "coldstart" / digest
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.is_dir():
        beside = target.with_name(f".{digest}.{os.getpid()}")
        shutil.move(folder, beside)
        with contextlib.suppress(OSError):  # another process was quicker
            beside.replace(target)
        shutil.rmtree(beside, ignore_errors=True)
    return target


def scratch(cache: Path) -> Path:
    """A temporary folder on the cache's file system."""
    cache.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="coldstart-", dir=cache))
