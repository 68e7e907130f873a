"""Protects the start of dispatch: without certificates in the store nothing is planned, quarantined tasks never are."""

import dataclasses
from types import SimpleNamespace

import pytest

from services.dispatch.main import training_tasks
from services.runtime.errors import UserError
from services.runtime.settings import load as load_settings
from services.runtime.store import open_store
from services.tasks import certificates
from services.tasks.build import build_catalogue
from services.tasks.taskset import TRAIN
from services.tasks.training import object_key


class Log:
    def __init__(self) -> None:
        self.warned: list[dict] = []

    def warning(self, event: str, **fields) -> None:
        self.warned.append(fields)


def context(tmp_path, document: bytes | None, **sections):
    """What the start of dispatch reads of its context."""
    settings = load_settings(None, taskset_digest="d", store={"url": f"file://{tmp_path / 'store'}"}, **sections)
    store = open_store(settings.store)
    if document is not None:
        store.put(object_key("d"), document)
    return SimpleNamespace(settings=settings, store=store, log=Log())


def test_a_store_without_certificates_is_refused_unless_told(tmp_path) -> None:
    tasks = build_catalogue()
    with pytest.raises(UserError, match="not certified"):
        training_tasks(context(tmp_path, None), tasks)
    told = training_tasks(context(tmp_path, None, tasks={"allow_uncertified": True}), tasks)
    assert len(told) == len(tasks.split(TRAIN))


def test_quarantined_tasks_are_never_planned(tmp_path) -> None:
    tasks = build_catalogue()
    held = certificates.load(certificates.shipped())
    assert len(training_tasks(context(tmp_path, held.document()), tasks)) == len(tasks.split(TRAIN))
    fixture = tasks.split(TRAIN)[0]
    bad = dataclasses.replace(held.by_task[fixture.task_id], state="quarantined", reason="it flakes")
    told = context(tmp_path, held.updated([bad], "x").document(), tasks={"allow_uncertified": True})
    assert fixture.task_id not in {task.task_id for task in training_tasks(told, tasks)}
    assert told.log.warned == [{"tasks": {fixture.task_id: "it flakes"}}]
