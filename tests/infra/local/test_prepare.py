"""Protects the preparation of a run in its folder: certificates beside the task set, nothing left by a refusal."""

from pathlib import Path

import pytest

from infra.local import prepare
from infra.local.rundir import RunDir
from services.runtime.errors import UserError
from services.runtime.settings import load
from services.runtime.store import open_store
from services.tasks import certificates
from services.tasks.training import object_key


def test_the_shipped_certificates_go_with_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "cold_start", lambda *_: (tmp_path / "base", {}))
    monkeypatch.setattr(prepare, "publish_base", lambda settings, store, folder: "manifest")
    done = prepare.prepare(load(None, run_dir=str(tmp_path / "run")), RunDir(tmp_path / "run"), lambda record: None)
    assert open_store(done.store).get(object_key(done.taskset_digest)) == certificates.shipped()


def test_a_refusal_leaves_no_run_behind(tmp_path: Path) -> None:
    """What the message advises is another setting, and the folder of a begun run takes no other settings."""
    run = RunDir(tmp_path / "run")
    with pytest.raises(UserError, match="not certified"):
        prepare.prepare(load(None, run_dir=str(run.root), tasks={"seed": 1}), run, lambda record: None)
    assert not run.root.exists()
