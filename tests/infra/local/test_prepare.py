"""Protects the preparation of a run: certificates lie beside the task set, training without them is refused."""

from pathlib import Path

import pytest

from infra.local import prepare
from infra.local.rundir import RunDir
from services.runtime.errors import UserError
from services.runtime.settings import load
from services.runtime.store import open_store
from services.tasks import certificates
from services.tasks.certificates import Certificates
from services.tasks.training import object_key


def certified(**sections) -> tuple[bytes, str]:
    settings = load(None, **sections)
    return prepare.certified(settings, prepare.build_task_set(settings))


def test_the_shipped_certificates_go_with_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "cold_start", lambda settings, run, progress: (tmp_path / "base", {}))
    monkeypatch.setattr(prepare, "publish_base", lambda settings, store, folder: "manifest")
    done = prepare.prepare(load(None, run_dir=str(tmp_path / "run")), RunDir(tmp_path / "run"), lambda record: None)
    assert open_store(done.store).get(object_key(done.taskset_digest)) == certificates.shipped()


def test_a_refusal_leaves_no_run_behind(tmp_path: Path) -> None:
    """What the message advises is another setting, and the folder of a begun run takes no other settings."""
    run = RunDir(tmp_path / "run")
    with pytest.raises(UserError, match="not certified"):
        prepare.prepare(load(None, run_dir=str(run.root), tasks={"seed": 1}), run, lambda record: None)
    assert not run.root.exists()


def test_another_catalogue_is_refused_unless_told() -> None:
    with pytest.raises(UserError, match="not certified"):
        certified(tasks={"seed": 1})
    certified(tasks={"seed": 1, "allow_uncertified": True})
    certified(tasks={"seed": 1}, dispatch={"updates": 0})  # nothing is trained on


def test_a_named_file_replaces_the_shipped_one(tmp_path: Path) -> None:
    named = tmp_path / "certificates.json"
    with pytest.raises(UserError, match="cannot be read"):
        certified(tasks={"certificates": str(named)})
    named.write_bytes(b"{}")
    with pytest.raises(UserError, match="format"):
        certified(tasks={"certificates": str(named)})
    named.write_bytes(Certificates().document())
    with pytest.raises(UserError, match="no certificate"):
        certified(tasks={"certificates": str(named)})
    named.write_bytes(certificates.shipped())
    assert certified(tasks={"certificates": str(named)})[1] == ""


def test_leak_canaries_have_new_secrets_every_time_and_no_part_in_the_cold_start() -> None:
    from services.tasks import leaks
    from services.trainer.coldstart_recipe import digest

    settings = load(None, tasks={"leak_canaries": 2})
    first, second = prepare.build_task_set(settings), prepare.build_task_set(settings)
    plain = prepare.build_task_set(load(None))
    assert [fixture.family for fixture in first.split(leaks.SPLIT)] == ["leaks", "leaks"]
    assert first.digest != second.digest
    assert first.split("train") == plain.split("train")
    assert digest(settings, first) == digest(settings, second) == digest(load(None), plain)
    assert prepare.certified(settings, first)[1] == prepare.certified(load(None), plain)[1]
