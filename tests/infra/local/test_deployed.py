"""A run that is deployed elsewhere is looked at and copied from its settings alone."""

import pytest

from infra.local.deployed import QUICKSTART, default_run, is_deployed, reached_by, settings_of
from infra.local.rundir import RunDir
from services.runtime.errors import UserError
from services.runtime.prepared import Prepared, publish_prepared
from services.runtime.settings import Store
from services.runtime.store import open_store


@pytest.fixture
def etc(tmp_path):
    """What a container holds: a settings file in a folder of its own."""
    folder = tmp_path / "etc"
    folder.mkdir()
    text = f'run_id = "far"\n[kafka]\nbootstrap = "kafka:9092"\n[store]\nurl = "file://{tmp_path / "store"}"\n'
    (folder / "run.toml").write_text(text)
    return folder


def test_a_container_looks_at_its_own_run_and_anybody_else_at_the_quickstart(etc, monkeypatch):
    monkeypatch.delenv("ROLLSTREAM_CONFIG", raising=False)
    assert default_run() == QUICKSTART
    monkeypatch.setenv("ROLLSTREAM_CONFIG", str(etc / "run.toml"))
    assert default_run() == etc


def test_its_settings_are_those_that_the_preparation_completed(etc, tmp_path):
    run = RunDir(etc)
    assert is_deployed(run)
    with pytest.raises(UserError, match="the store's folder is gone"):
        settings_of(run)
    assert not (tmp_path / "store").exists(), "a look makes no store"
    store = open_store(Store(url=f"file://{tmp_path / 'store'}"))
    with pytest.raises(UserError, match="not prepared"):
        settings_of(run)
    publish_prepared(store, Prepared("far", "d1", "runs/far/base.json"))
    settings = settings_of(run)
    assert (settings.taskset_digest, settings.base_manifest) == ("d1", "runs/far/base.json")


def test_a_folder_that_rollstream_run_made_is_taken_as_it_is(etc, tmp_path):
    run = RunDir(tmp_path / "run")
    assert not is_deployed(run)
    run.create(RunDir(etc).settings())
    assert not is_deployed(run)
    assert settings_of(run).taskset_digest == ""


def test_a_copy_is_put_back_to_where_the_settings_point(etc):
    places = reached_by(etc / "run.toml")
    assert places["kafka"]["bootstrap"] == "kafka:9092"
    assert set(places) == {"kafka", "store", "hidden_store"}
