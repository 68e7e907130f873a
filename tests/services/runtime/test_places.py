"""Command line before environment before file, said where they differ; every wrong value is named with its place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.local.run import open_run
from infra.local.rundir import RunDir
from infra.local.supervisor import Process, ProcessSpec, RestartPolicy
from infra.prepare.materials import require_inputs
from services.runtime.errors import UserError
from services.runtime.overrides import parse_overrides
from services.runtime.places import OTHERS, is_setting
from services.runtime.settings import decide, load, overruled

ROOT = Path(__file__).parents[3]


def refused(*arguments, environment=None, **more):
    """The message of `rollstream run`, which must be refused before anything is made."""
    command = [sys.executable, "-m", "services.cli", "run", *map(str, arguments)]
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, cwd=ROOT, capture_output=True, text=True, timeout=60, **more
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("rollstream: ")
    return done.stderr


def test_the_command_line_beats_the_environment_beats_the_file(tmp_path, monkeypatch):
    file = tmp_path / "run.toml"
    file.write_text("seed = 1\n[admission]\nmax_lag = 2\n[dispatch]\nupdates = 9\n")
    monkeypatch.setenv("ROLLSTREAM_ADMISSION__MAX_LAG", "7")
    monkeypatch.setenv("ROLLSTREAM_SEED", "3")
    settings = load(file, admission={"max_lag": 5})
    assert (settings.admission.max_lag, settings.seed, settings.dispatch.updates) == (5, 3, 9)
    said = overruled(file, admission={"max_lag": 5}, dispatch={"updates": 9})
    assert said == [
        f"seed is 3 by ROLLSTREAM_SEED (not 1 by {file})",
        f"admission.max_lag is 5 by the command line (not 7 by ROLLSTREAM_ADMISSION__MAX_LAG, 2 by {file})",
    ]


def test_secrets_of_two_places_are_not_printed(tmp_path, monkeypatch):
    file = tmp_path / "run.toml"
    file.write_text('[store]\nsecret_key = "open"\n')
    monkeypatch.setenv("ROLLSTREAM_STORE__SECRET_KEY", "sesame")
    assert load(file).store.secret_key == "sesame"
    assert overruled(file) == []


@pytest.mark.parametrize(
    ("variable", "wanted"),
    [
        ("ROLLSTREAM_ADMISION__MAX_LAG", "did you mean ROLLSTREAM_ADMISSION__MAX_LAG?"),
        ("ROLLSTREAM_ADMISSION__MAX_LAGG", "did you mean ROLLSTREAM_ADMISSION__MAX_LAG?"),
        ("rollstream_admision__max_lag", "did you mean ROLLSTREAM_ADMISSION__MAX_LAG?"),
        ("ROLLSTREAM_ADMISSION_MAX_LAG", "write ROLLSTREAM_ADMISSION__MAX_LAG"),
        ("ROLLSTREAM_SEDE", "did you mean ROLLSTREAM_SEED?"),
        ("ROLLSTREAM_ADMISSION", "set its keys"),
        ("ROLLSTREAM___", "one of:"),
    ],
)
def test_a_misspelt_variable_is_an_error(monkeypatch, variable, wanted):
    monkeypatch.setenv(variable, "3")
    with pytest.raises(UserError) as caught:
        load(None)
    assert variable in str(caught.value)
    assert wanted in str(caught.value)


def test_other_variables_pass(monkeypatch):
    for name in (*OTHERS, "TEST_KAFKA", "TEST_ANYTHING__X", "KAFKA_PORT", "STORE_SERVICE_HOST", "KAFKA_PORT_9092_TCP"):
        monkeypatch.setenv(f"ROLLSTREAM_{name}", "tcp://10.0.0.1:9092")
    monkeypatch.setenv("OTHER__THING", "1")
    assert load(None) == load(None)
    assert not is_setting("ROLLSTREAM_CACHE")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("ADMISSION__MAX_LAG", "soon", "admission.max_lag: Input should be a valid integer"),
        ("ADMISSION__MAX_LAG", "", "admission.max_lag"),
        ("KAFKA__TLS", "perhaps", "kafka.tls"),
        ("SAMPLING__TEMPERATURE", "nan", "sampling.temperature"),
    ],
)
def test_a_wrong_value_names_its_variable(monkeypatch, name, text, said):
    monkeypatch.setenv(f"ROLLSTREAM_{name}", text)
    with pytest.raises(UserError) as caught:
        load(None)
    assert said in str(caught.value)
    assert f"(it is {text!r})" in str(caught.value)
    assert caught.value.where == f"ROLLSTREAM_{name}"


@pytest.mark.parametrize(
    "wrong",
    [
        "seed=-1", f"seed={2**63}", f"seed={2**64}", "tasks.seed=-1", "dispatch.group_size=1", "dispatch.updates=-1",
        f"dispatch.updates={10**30}", "dispatch.wall_s=nan", "dispatch.wall_s=inf", "trainer.learning_rate=inf",
        "trainer.learning_rate=nan", "trainer.learning_rate=0", "trainer.kl_weight=0.1", "trainer.clip_low=1.5",
        "trainer.optimizer_steps=100000", "sampler.synthetic_min_s=-1", "sampler.synthetic_max_s=0.1",
        "sampler.synthetic_pass_rate=2", "sampler.concurrency=0", "model.hidden=130", "model.hidden=0", "model.heads=3",
        "model.kv_heads=3", "model.layers=-1", "model.vocabulary=10", "model.context=0", "closure.epsilon=-1",
        "recorder.segment_bytes=1e9", "scale.verifier=100000", "verifier.workers=1e9", "runtime.stuck_s=1e300",
        "verifier.format_weight=1", "kafka.partitions=0", "coldstart.max_wall_s=-inf", "dispatch.updates=", "seed=x",
        "dispatch.updates=[1,", "admission={}", "admission.max_lag=1\nseed=2", "run_dir=/tmp/x", "path=x", "self.x=1",
        "said_by=me", "file=x", "nothing", "=1", "a.=1", ".a=1",
    ],
)  # fmt: skip
def test_a_value_that_no_run_can_mean_is_refused(wrong):
    with pytest.raises(UserError) as caught:
        decide(None, parse_overrides([wrong], print), "the command line")
    name = wrong.partition("=")[0].partition(".")[2] or wrong.partition("=")[0]
    assert name in str(caught.value)


def test_text_stays_text_and_numbers_are_numbers():
    given = parse_overrides(
        [
            "run_id=12",
            'tasks.source="a b.jsonl"',
            "isolation.docker_image=1.10",
            "dispatch.updates=1e1",
            "kafka.tls=true",
        ],
        print,
    )
    settings = load(None, **given)
    assert (settings.run_id, settings.tasks.source, settings.isolation.docker_image) == ("12", "a b.jsonl", "1.10")
    assert settings.dispatch.updates == 10
    assert settings.kafka.tls is True


def test_of_one_setting_given_twice_the_last_counts_and_that_is_said():
    said = []
    given = parse_overrides(["admission.max_lag=1", "seed=1", "admission.max_lag=4", "seed=1"], said.append)
    assert given == {"admission": {"max_lag": 4}, "seed": 1}
    assert said == ["--set admission.max_lag was given twice: the last one counts, 4"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seed=-1",), "seed: Input should be greater than or equal to 0 (it is -1)\n  where: the command line"),
        ((f"--seed={2**64}",), f"seed: Input should be less than {2**63}"),
        (("--set", "dispatch.group_size=1"), "nothing could be learnt"),
        (("--set", "admision.max_lag=1"), "near names: admission.max_lag"),
    ],
)
def test_run_refuses_before_it_makes_a_folder(tmp_path, arguments, said):
    assert said in refused(*arguments, "--run-dir", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_base_without_our_harness_is_refused_at_the_start(tmp_path):
    base = tmp_path / "model"
    base.mkdir()
    settings = load(None, model={"base": str(base)})
    with pytest.raises(UserError, match=r"no config\.json"):
        require_inputs(settings)
    (base / "config.json").write_text("{}")
    with pytest.raises(UserError, match="no weights"):
        require_inputs(settings)
    (base / "model.safetensors").write_bytes(b"")
    (base / "tokenizer.json").write_text("{}")
    said = refused("--set", f"model.base={base}", "--run-dir", tmp_path / "run")
    assert "without our harness: harness.json is missing" in said
    assert "what to do: give the folder of a checkpoint that rollstream made" in said
    assert not (tmp_path / "run").exists()
    (base / "harness.json").write_text("[]")
    with pytest.raises(UserError, match="harness cannot be used"):
        require_inputs(settings)


def test_files_that_settings_name_are_looked_for_at_the_start(tmp_path):
    settings = load(None, kafka={"tls": True, "ca_file": str(tmp_path / "ca.pem")})
    with pytest.raises(UserError, match=r"kafka\.ca_file names no file"):
        require_inputs(settings)
    with pytest.raises(UserError, match="no object store"):
        require_inputs(load(None, hidden_store={"url": "ftp://x"}))


def test_a_run_goes_on_as_it_began(tmp_path, monkeypatch):
    """A variable that was set in between decides nothing in silence."""
    root = tmp_path / "run"
    RunDir(root).create(load(None, run_dir=str(root), admission={"max_lag": 2}))
    monkeypatch.setenv("ROLLSTREAM_ADMISSION__MAX_LAG", "2")
    monkeypatch.setenv("ROLLSTREAM_SAMPLING__TEMPERATURE", "1.00")
    monkeypatch.setenv("ROLLSTREAM_KAFKA__TLS", "0")
    assert open_run(root, None, {})[1].admission.max_lag == 2
    monkeypatch.setenv("ROLLSTREAM_ADMISSION__MAX_LAG", "9")
    with pytest.raises(UserError, match=r"admission\.max_lag is 9 by ROLLSTREAM_ADMISSION__MAX_LAG \(not 2 by"):
        open_run(root, None, {})


def test_a_runs_processes_inherit_no_setting(tmp_path, monkeypatch):
    """What the command line decided stands in the run's file; the services read that."""
    monkeypatch.setenv("ROLLSTREAM_ADMISSION__MAX_LAG", "9")
    monkeypatch.setenv("ROLLSTREAM_HIDDEN_STORE__ACCESS_KEY", "operator")
    monkeypatch.setenv("ROLLSTREAM_CACHE", "kept")
    ready = tmp_path / "ready"
    program = tmp_path / "shows_environment.py"
    program.write_text(
        "import os, sys, pathlib\n"
        "names = sorted(n for n in os.environ if n.startswith('ROLLSTREAM_'))\n"
        "pathlib.Path(sys.argv[1]).write_text(' '.join(names))\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    spec = ProcessSpec(
        "p", "shows_environment", (str(ready),), ready, tmp_path / "log", {"ROLLSTREAM_KAFKA__BOOTSTRAP": "h:1"}
    )
    process = Process(spec, RestartPolicy(), lambda: 0.0)
    process.start()
    assert process.wait(30)
    assert ready.read_text() == "ROLLSTREAM_CACHE ROLLSTREAM_KAFKA__BOOTSTRAP ROLLSTREAM_SUPERVISOR_PID"
