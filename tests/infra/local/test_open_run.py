"""Protects the second start of a run: its folder holds no secrets, and other settings are refused by name."""

import pytest

from infra.local.run import open_run, run
from infra.local.rundir import RunDir
from services.runtime.errors import UserError
from services.runtime.settings import load

CONFIG = """
[store]
url = "s3://runs"
secret_key = "open"
[hidden_store]
url = "s3://hidden"
secret_key = "answers"
[kafka]
mechanism = "SCRAM-SHA-256"
username = "{service}"
password = "hush"
[dispatch]
updates = 3
"""


def test_secrets_come_from_the_configuration_that_is_given_again(tmp_path):
    config, root = tmp_path / "run.toml", tmp_path / "run"
    config.write_text(CONFIG)
    RunDir(root).create(load(config, run_dir=str(root)))
    written = "".join(path.read_text() for path in root.iterdir() if path.is_file())
    assert not any(secret in written for secret in ('open"', "answers", "hush"))
    _, settings = open_run(root, config, {})
    assert settings.store.secret_key == "open"
    assert settings.hidden_store.secret_key == "answers"
    assert settings.kafka.password == "hush"
    config.write_text(CONFIG.replace("updates = 3", "updates = 4").replace("s3://hidden", "s3://other"))
    with pytest.raises(UserError, match=r"hidden_store\.url, dispatch\.updates|dispatch\.updates, hidden_store\.url"):
        open_run(root, config, {})


def test_a_run_without_its_secret_says_so_before_anything_is_started(tmp_path):
    root = tmp_path / "run"
    store = {"url": "s3://runs", "endpoint": "127.0.0.1:1", "access_key": "us", "secret_key": "open"}
    RunDir(root).create(load(None, run_dir=str(root), store=store, base_manifest="made"))
    with pytest.raises(UserError, match="no secret key is given for 'us'"):
        run(root, None, {})
    assert not (root / "stack.json").exists()


def test_what_is_said_without_a_file_is_compared_alone(tmp_path):
    config, root = tmp_path / "run.toml", tmp_path / "run"
    config.write_text("seed = 5\n[dispatch]\nupdates = 3\n[admission]\nmax_lag = 0\n")
    RunDir(root).create(load(config, run_dir=str(root)))
    assert open_run(root, None, {"seed": 5})[1].dispatch.updates == 3
    with pytest.raises(UserError, match="other settings: seed") as caught:
        open_run(root, None, {"seed": 6, "admission": {"max_lag": 0}})
    assert caught.value.what.endswith(": seed")
