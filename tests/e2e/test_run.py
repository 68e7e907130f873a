"""`rollstream run` end to end with the real engine, sandbox, verifier and trainer: runs, stops, resumes, reports."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.local.rundir import RunDir
from infra.local.stack import SERVICES

ROOT = Path(__file__).parents[2]
TINY = """
run_id = "tiny"
[model]
hidden = 32
layers = 1
heads = 2
feed_forward = 64
[coldstart]
max_steps = 2
max_wall_s = 20.0
threads = 1
[gate]
min_entropy = 0.0
min_valid_actions = 0.0
probe_prompts = 2
[dispatch]
updates = 2
group_size = 4
batch_groups = 2
[admission]
max_lag = {lag}
[evaluation]
train_tasks = 4
heldout_bugs = 2
heldout_families = 2
samples = 1
[sampler]
engine = "synthetic"
synthetic_min_s = 0.05
synthetic_max_s = 0.3
"""


def rollstream(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "services.cli", *arguments], cwd=ROOT, capture_output=True, text=True, **more
    )


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "services.cli", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_interrupted_run_resumes_to_a_balanced_audit_and_a_report(cache, tmp_path):
    config, root = tmp_path / "run.toml", tmp_path / "a run #1, 100%25 'é'"
    config.write_text(TINY.format(lag=0))
    first = start("run", "--config", str(config), "--run-dir", str(root))
    deadline = time.monotonic() + 120
    while not all((root / "ready" / f"{name}.json").exists() for name in SERVICES):
        assert time.monotonic() < deadline
        assert first.poll() is None, first.communicate()[0]
        time.sleep(0.1)
    time.sleep(0.5)  # the run itself looks at its services four times a second
    second = rollstream("run", "--run-dir", str(root), timeout=60)
    assert second.returncode == 2
    assert "running already" in second.stderr
    assert RunDir(root).live_bootstrap(), "the refused one took nothing of the first one's away"
    first.send_signal(signal.SIGINT)
    said, _ = first.communicate(timeout=90)
    assert first.returncode == 130, said
    assert "go on with" in said

    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}

    other = rollstream("run", "--run-dir", str(root), "--set", "dispatch.updates=9", timeout=60)
    assert other.returncode == 2
    assert "dispatch.updates" in other.stderr

    done = rollstream("run", "--run-dir", str(root), timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert before == {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    # The copy goes on from where it was made, in its own store alone, wherever it lies.
    moved, store = tmp_path / "moved", sorted(path for path in (root / "store").rglob("*") if path.is_file())
    copy.rename(moved)
    again = rollstream("run", "--run-dir", str(moved), timeout=240)
    assert again.returncode == 0, again.stdout + again.stderr
    assert store == sorted(path for path in (root / "store").rglob("*") if path.is_file())
    report = (root / "report.md").read_text()
    assert "held-out" in report.lower()
    for name in ("run.toml", "versions.json", "README.md", "report.md"):
        assert (root / name).exists()

    audited = rollstream("audit", str(root), timeout=60)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    tapped = rollstream("tap", "group.closed", "--run-dir", str(root), "--json", "--limit", "3", timeout=60)
    assert tapped.returncode == 0, tapped.stderr
    assert len(tapped.stdout.splitlines()) == 3
    trial = rollstream("trial", "tiny/00000000/0", "--run-dir", str(root), timeout=60)
    assert trial.returncode == 0, trial.stderr
    assert "verdict" in trial.stdout
    assert not re.search(r"Traceback", done.stdout + done.stderr + trial.stdout)


PROGRAM = json.dumps(
    {
        "name": "total",
        "buggy": "def total(xs):\n    return 0\n",
        "correct": "def total(xs):\n    return sum(xs)\n",
        "cases": [[[[1, 2]], 3], [[[4]], 4]],
    }
)


@pytest.mark.parametrize(
    ("arguments", "text", "says"),
    [
        (("run", "--config", "CONFIG"), "[dispatch\nupdates=3", "no TOML"),
        (("run", "--config", "CONFIG"), "[dispatch]\nupdates = -3", "dispatch.updates"),
        (("run", "--config", "CONFIG"), "[dispatch]\nupdatez = 3", "dispatch.updatez"),
        (("run", "--config", "CONFIG"), "[verifier]\nformat_weight=0.4\nlength_weight=0.7", "must be < 1"),
        (("run", "--config", "/nowhere/run.toml"), "", "no such configuration"),
        (
            ("run", "--set", "tasks.source=CONFIG", "--run-dir", "/nowhere/x"),
            PROGRAM,
            "none of its 1 tasks is for training",
        ),
        (("run", "--set", "tasks.source=CONFIG", "--run-dir", "/nowhere/x"), "\n" + "[" * 100_000, "line 2: not JSON"),
        (("tasks", "check", "--all", "--source", "CONFIG"), PROGRAM.replace("sum", "\\ud800"), "line 1: 'correct'"),
        (("run", "--set", "nonsense"), "", "section.key=value"),
        (("up", "--service", "nobody"), "", "one of: "),
        (("up", "--service", "closure"), "", "kafka.bootstrap is empty"),
        (("audit", "/nowhere/run"), "", "holds no run"),
        (("tap", "group.closed", "--run-dir", "/nowhere/run"), "", "holds no run"),
        (("tap", "group.closed", "--bootstrap", "127.0.0.1:1"), "", "127.0.0.1:1"),
        (("trial", "nonsense", "--run-dir", "/nowhere/run"), "", "holds no run"),
        (("tasks", "show", "sorting/nothing"), "", "unknown task"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, tuple) else None,
)
def test_bad_input_gives_one_clear_message(arguments, text, says, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(text)
    done = rollstream(*[a.replace("CONFIG", str(config)) for a in arguments], timeout=60)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (ROOT / "runs" / "quickstart").exists() or os.environ.get("CI") is None


def test_help_is_quick_to_import_nothing_heavy():
    heavy = ["torch", "transformers", "pyarrow", "kafka", "matplotlib"]
    code = (
        "import sys; sys.argv=['rollstream','tap','--help']\n"
        "import services.cli\n"
        "try: services.cli.main()\n"
        "except SystemExit: pass\n"
        f"print('HEAVY', [m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "HEAVY []" in done.stdout, done.stdout + done.stderr


def test_a_missing_bubblewrap_is_said_before_anything_is_started(tmp_path):
    empty = tmp_path / "bin"
    empty.mkdir()
    done = rollstream("run", "--run-dir", str(tmp_path / "run"), timeout=60, env={**os.environ, "PATH": str(empty)})
    assert done.returncode == 2
    assert "apt-get install bubblewrap" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_busy_health_port_is_said(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        environment = {**os.environ, "ROLLSTREAM_KAFKA__BOOTSTRAP": "127.0.0.1:1"}
        done = rollstream("up", "--service", "closure", "--health-port", str(port), timeout=60, env=environment)
    assert done.returncode == 2, done.stdout + done.stderr
    assert str(port) in done.stdout + done.stderr
