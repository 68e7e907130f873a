"""Prepares a run in its own folder: task set and cold-started base, in the folder's store unless another is named."""

from __future__ import annotations

import json

from infra.local.rundir import RunDir, write_atomic
from infra.prepare.coldstart import Progress, cold_start
from infra.prepare.materials import build_task_set, certified, publish_base, store_task_set
from services.runtime.settings import RunSettings
from services.runtime.store import file_url, open_hidden, open_store


def prepare(settings: RunSettings, run: RunDir, progress: Progress) -> RunSettings:
    """Everything before the first record; safe to repeat after an interruption. Returns the completed settings."""
    progress({"event": "tasks", "text": "generating the task set"})
    taskset = build_task_set(settings)
    # Before there is a folder: whoever mends the settings after a refusal starts another run.
    certificates, notice = certified(settings, taskset)
    if notice:
        progress({"event": "tasks", "text": notice})
    if not settings.store.url:
        section = settings.store.model_copy(update={"url": file_url(run.store)})
        settings = settings.model_copy(update={"store": section})
    run.create(settings)
    store = open_store(settings.store)
    digest = store_task_set(taskset, certificates, store, open_hidden(settings))
    settings = settings.model_copy(update={"taskset_digest": digest})
    run.create(settings)
    folder, report = cold_start(settings, run.config, run.root, run.logs / "coldstart.log", progress)
    settings = settings.model_copy(update={"base_manifest": publish_base(settings, store, folder)})
    write_atomic(run.preparation, json.dumps({"coldstart": report}, indent=1, default=str) + "\n")
    run.create(settings)
    return settings
