"""Hidden tests of a backup that was made elsewhere are programs, and none of them runs until somebody says so."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from infra.local.backup import backup, restore
from infra.local.run import run
from infra.local.rundir import RunDir
from schemas.record import Record
from services.runtime.errors import UserError
from services.runtime.settings import load
from services.runtime.store import open_store
from services.tasks import trust
from services.tasks.taskset import HIDDEN_FORMAT, sealed
from services.verifier.main import StoredTasks
from tests.infra.local.finished import finished_run, rollstream
from tests.services.monitor.synthetic import Run
from tests.services.verifier.hidden_cases import CALC_TESTS
from tests.services.verifier.test_hidden_core import check

MARK = "ran-as-a-program"


def hidden_document(mark: Path) -> bytes:
    """A hidden half whose tests would leave a file behind wherever they are imported."""
    evil = f"import pathlib\npathlib.Path({str(mark)!r}).write_text('here')\n" + CALC_TESTS
    return sealed({"format": HIDDEN_FORMAT, "name": "tiny", "checks": [check("outside", evil).to_json()]})


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return Run(updates=1, groups_per_update=1).build()


@pytest.fixture
def place(tmp_path: Path, records: list[Record]) -> str:
    """A backup that somebody made."""
    folder = finished_run(tmp_path / "theirs", records)
    settings = RunDir(folder).settings()
    store = open_store(settings.store)
    public = b'{"format": "none"}'
    digest = hashlib.sha256(public).hexdigest()
    store.put(f"tasks/{digest}/public.json", public)
    store.put(trust.key(digest), hidden_document(tmp_path / MARK))
    RunDir(folder).create(settings.model_copy(update={"taskset_digest": digest, "base_manifest": "none"}))
    backup(folder, str(tmp_path / "backup"), lambda line: None)
    return str(tmp_path / "backup")


def test_they_are_held_back_and_every_way_to_run_them_says_so(place: str, tmp_path: Path) -> None:
    said: list[str] = []
    restore(place, tmp_path / "mine", {}, said.append)
    assert any("hidden tests of 1 tasks are programs: held back" in line for line in said)
    settings = RunDir(tmp_path / "mine").settings()
    store, digest = open_store(settings.store), settings.taskset_digest
    assert not store.exists(trust.key(digest))
    with pytest.raises(UserError, match="came with a backup made elsewhere"):
        run(tmp_path / "mine", None, {})
    with pytest.raises(UserError, match="came with a backup made elsewhere"):
        StoredTasks(store, store, digest).check("tiny/add")
    done = rollstream("run", "--run-dir", tmp_path / "mine")
    assert done.returncode == 2
    assert b"rollstream run --trust" in done.stderr
    assert not (tmp_path / MARK).exists()


def test_a_copy_of_it_is_not_trusted_either(place: str, tmp_path: Path) -> None:
    restore(place, tmp_path / "mine", {}, lambda line: None)
    backup(tmp_path / "mine", str(tmp_path / "again"), lambda line: None)
    restore(str(tmp_path / "again"), tmp_path / "third", {}, lambda line: None)
    settings = RunDir(tmp_path / "third").settings()
    with pytest.raises(UserError, match="came with a backup"):
        trust.require_trusted(open_store(settings.store), settings.taskset_digest)


def test_said_once_it_is_trusted(place: str, tmp_path: Path) -> None:
    restore(place, tmp_path / "mine", {}, lambda line: None)
    settings = RunDir(tmp_path / "mine").settings()
    store, digest = open_store(settings.store), settings.taskset_digest
    assert trust.trust(store, digest)
    assert not trust.trust(store, digest)
    trust.require_trusted(store, digest)
    assert StoredTasks(store, store, digest).check("tiny/add").hidden_tests is not None


def test_restored_as_trusted_nothing_is_held_back(place: str, tmp_path: Path) -> None:
    restore(place, tmp_path / "mine", {}, lambda line: None, trusted=True)
    settings = RunDir(tmp_path / "mine").settings()
    assert open_store(settings.store).exists(trust.key(settings.taskset_digest))


def test_a_task_set_without_programs_needs_no_word() -> None:
    plain = sealed({"format": HIDDEN_FORMAT, "name": "tiny", "checks": []})
    assert trust.programs(plain) == 0
    assert trust.programs(b"what is this") == 1


def test_what_a_backup_says_of_its_machine_is_left_there(place: str, tmp_path: Path) -> None:
    document = json.loads((Path(place) / "backup.json").read_text())
    login = {"mechanism": "PLAIN", "tls": True, "username": "u", "password_file": "/etc/passwd"}
    theirs = load(None, run_id="demo", isolation={"docker_url": "tcp://evil:1"}, kafka=login)
    from services.runtime.settings import dump_toml

    (Path(place) / "backup.json").write_text(json.dumps({**document, "settings": dump_toml(theirs)}))
    restore(place, tmp_path / "mine", {}, lambda line: None)
    mine = RunDir(tmp_path / "mine").settings()
    assert (mine.isolation.docker_url, mine.kafka.mechanism, mine.kafka.password_file) == ("", "", "")
