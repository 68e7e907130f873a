"""What a run starts from: the task set in both its stores, the certificates beside it, the base as version 0."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.access import principals
from services.runtime.errors import UserError
from services.runtime.settings import RunSettings
from services.runtime.store import ObjectStore

if TYPE_CHECKING:
    from services.tasks.taskset import TaskSet


def require_inputs(settings: RunSettings) -> None:
    """UserError for a file or folder that the settings name and a run could not begin with; before anything is made."""
    require_base(settings)
    for name in ("store", "hidden_store"):
        url = getattr(settings, name).url
        if url and not url.startswith(("file:", "s3://")):
            raise UserError(
                f"{url!r} is no object store", f"{name}.url", "file:///absolute/folder or s3://bucket/prefix"
            )
    named = {f"kafka.{key}": getattr(settings.kafka, key) for key in ("ca_file", "cert_file", "key_file")}
    named["kafka.password_file"] = settings.kafka.password_file
    named |= {f"{name}.secret_key_file": getattr(settings, name).secret_key_file for name in ("store", "hidden_store")}
    for name, text in named.items():
        for service in principals() if "{service}" in text else ("",):
            path = Path(text.replace("{service}", service))
            if text and not os.access(path, os.R_OK):
                raise UserError(f"{name} names no file that can be read", str(path), "mend the path or its rights")


def require_base(settings: RunSettings) -> None:
    """UserError when `model.base` names a folder that no policy can be loaded from."""
    if not settings.model.base:
        return
    from services.agent.harness import HARNESS_FILE, TOKENIZER_FILE, Harness

    folder = Path(settings.model.base)
    do = "give the folder of a checkpoint that rollstream made, or leave model.base out to make a policy"
    if not (folder / "config.json").is_file():
        raise UserError("model.base is no folder of a checkpoint: it holds no config.json", str(folder), do)
    if not any(folder.glob("*.safetensors")):
        raise UserError("model.base holds no weights (*.safetensors)", str(folder), do)
    missing = [name for name in (HARNESS_FILE, TOKENIZER_FILE) if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"model.base is a transformers model without our harness: {' and '.join(missing)} is missing",
            str(folder),
            f"{do}; another model needs its harness (prompt template, action grammar, tokenizer) beside it",
        )
    try:
        Harness.load(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise UserError(f"model.base's harness cannot be used: {e}", str(folder), do) from e


def build_task_set(settings: RunSettings) -> TaskSet:
    """The task set that the settings name, both halves; its leak canaries have secrets of their own every time.

    Raises UserError for a file that is none, and for one without the training tasks that this run needs.
    """
    from services.tasks.build import build_catalogue
    from services.tasks.leaks import with_leaks
    from services.tasks.quixbugs import load_quixbugs

    source = settings.tasks.source
    taskset = build_catalogue(settings.tasks.seed) if source == "catalogue" else load_quixbugs(Path(source))
    _require_training(settings, taskset)
    return with_leaks(taskset, [secrets.token_hex(16) for _ in range(settings.tasks.leak_canaries)])


def _require_training(settings: RunSettings, taskset: TaskSet) -> None:
    """A run without training tasks can measure a given policy, and nothing else."""
    from services.tasks.taskset import TRAIN

    synthetic = settings.sampler.engine == settings.trainer.kind == "synthetic"
    made = not settings.model.base or settings.coldstart.max_steps > 0
    if taskset.split(TRAIN) or not (settings.dispatch.updates or (made and not synthetic)):
        return
    raise UserError(
        f"none of its {len(taskset.fixtures)} tasks is for training: such a file measures a policy and trains none",
        f"tasks.source = {settings.tasks.source}",
        "train on tasks.source=catalogue; to measure, give a policy and train nothing: "
        "--set model.base=FOLDER --set coldstart.max_steps=0 --set dispatch.updates=0",
    )


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


def store_task_set(taskset: TaskSet, certificates: bytes, store: ObjectStore, hidden_store: ObjectStore) -> str:
    """Put the public and hidden halves and the certificates where they belong; returns the public half's digest."""
    from services.tasks.training import object_key

    public, hidden = taskset.public_document(), taskset.hidden_document()
    digest = hashlib.sha256(public).hexdigest()
    store.put_if_absent(f"tasks/{digest}/public.json", public)
    hidden_store.put_if_absent(f"tasks/{digest}/hidden.json", hidden)
    store.put(object_key(digest), certificates)
    return digest


def publish_base(
    settings: RunSettings, store: ObjectStore, folder: Path, digests: Mapping[str, str] | None = None
) -> str:
    """Put the base checkpoint into the store as version 0; returns its manifest's key.

    `digests`: of what it was made from. Raises CheckpointConflict where version 0 exists with other files.
    """
    from services.runtime.checkpoints import CheckpointMeta, publish_checkpoint
    from services.trainer.coldstart_recipe import NOT_POLICY

    files = {p.name: p for p in sorted(folder.iterdir()) if p.is_file() and p.name not in NOT_POLICY}
    meta = CheckpointMeta(run_id=settings.run_id, version=0, digests=dict(digests or {}))
    key, _ = publish_checkpoint(store, files, meta)
    return key
