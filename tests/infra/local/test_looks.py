"""Looking is reading: no look at a run's folder changes it, whoever owns it and whatever is wrong; all of them end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.run import Display
from services.runtime.settings import load
from tests.infra.local.finished import ROOT, finished_run, rollstream, tree
from tests.services.monitor.synthetic import Run

TRIAL = "demo/00000000/0"
LOOKS = {
    "audit": ("audit", 0),
    "tap": ("tap all", 0),
    "trial": (f"trial {TRIAL}", 0),
    "verdicts": ("verdicts", 0),
    "recorded": ("recorded", 2),  # nothing is recorded of it
}
NOBODY = 65534
UNPRIVILEGED = ("setpriv", "--inh-caps=-all", "--bounding-set=-all")
"""Before a command: even root is then held to the rights of files."""


@pytest.fixture
def foreign(folder: Path) -> Iterator[Path]:
    """The run as somebody else's, whose folders nobody may write to."""
    with tempfile.TemporaryDirectory(prefix="looks-") as place:
        copy = Path(shutil.copytree(folder, Path(place) / "run"))
        for path in [copy, *copy.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield copy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    return finished_run(tmp_path_factory.mktemp("looks") / "run", Run(updates=2).build())


@pytest.fixture
def left_behind() -> Iterator[None]:
    """No look leaves a temporary folder."""
    before = set(Path(tempfile.gettempdir()).glob("rollstream-*"))
    yield
    assert set(Path(tempfile.gettempdir()).glob("rollstream-look-*")) <= before


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_changes_nothing(folder: Path, left_behind: None, look: str) -> None:
    arguments, code = LOOKS[look]
    before = tree(folder)
    done = rollstream(*arguments.split(), "--run-dir", folder)
    assert done.returncode == code, done.stderr
    assert done.stdout or code
    assert tree(folder) == before


@pytest.mark.parametrize("before_it", [(), UNPRIVILEGED], ids=["own", "foreign"])
def test_a_backup_changes_nothing_of_what_it_copies(foreign: Path, tmp_path: Path, before_it: tuple[str, ...]) -> None:
    before = tree(foreign)
    done = rollstream("backup", tmp_path / "copy", "--run-dir", foreign, before=before_it)
    assert done.returncode == 0, done.stderr
    assert tree(foreign) == before


def test_a_stack_that_is_gone_is_one_message_or_none(folder: Path, tmp_path: Path) -> None:
    """Its file names a process that lives and a broker that does not."""
    copy = Path(shutil.copytree(folder, tmp_path / "run"))
    (copy / "stack.json").write_text(json.dumps({"pid": os.getpid(), "bootstrap": "127.0.0.1:1"}))
    before = tree(copy)
    done = rollstream("audit", copy)
    assert done.returncode in (0, 2)
    assert b"Traceback" not in done.stderr
    assert tree(copy) == before


def test_a_broken_record_is_left_out_of_the_account(stack: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=stack)
    producer.send("verification.alarm.v1", b"\x1b[31mno arrow", b"bad").get(10)
    producer.close(timeout=5)
    done = rollstream("verdicts", "--bootstrap", stack)
    assert done.returncode == 0, done.stderr
    assert b"1 records break their contract and are left out" in done.stderr


@pytest.mark.parametrize("look", LOOKS)
def test_somebody_elses_folder_can_be_looked_at(foreign: Path, look: str) -> None:
    arguments, code = LOOKS[look]
    before = tree(foreign)
    done = rollstream(*arguments.split(), "--run-dir", foreign, before=UNPRIVILEGED)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert tree(foreign) == before


def test_a_log_that_may_not_be_read_is_one_message(foreign: Path) -> None:
    next((foreign / "broker" / "topics").rglob("*.log")).chmod(0)
    done = rollstream("audit", foreign, before=UNPRIVILEGED)
    assert done.returncode == 2
    assert done.stderr.startswith(b"rollstream: the run's log cannot be read: Permission denied")


def test_a_damaged_log_is_read_as_far_as_it_goes_and_stays_as_it_is(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "run"))
    log = max((copy / "broker" / "topics").glob("rollout.requested*/*/*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    (copy / "port").write_text("no port")
    before = tree(copy)
    done = rollstream("tap", "rollout.requested", "--run-dir", copy)
    assert done.returncode == 0, done.stderr
    whole = rollstream("tap", "rollout.requested", "--run-dir", folder)
    assert 0 < done.stdout.count(b"\n") < whole.stdout.count(b"\n")
    assert tree(copy) == before


def test_a_damaged_port_file_does_not_stop_a_start(tmp_path: Path) -> None:
    from infra.local.rundir import RunDir
    from infra.local.stack import broker_process

    for content in ("no port", "", "99999999", "-4"):
        (tmp_path / "port").write_text(content)
        broker_process(RunDir(tmp_path))
        assert 0 < int((tmp_path / "port").read_text()) < 65536


@pytest.mark.parametrize("look", ["audit", "tap all", f"trial {TRIAL}", "verdicts"])
def test_a_dead_broker_is_one_message(look: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        done = rollstream(*look.split(), "--bootstrap", f"127.0.0.1:{unused.getsockname()[1]}")
    assert done.returncode == 2
    assert done.stderr.startswith(b"rollstream: no broker ")
    assert b"Traceback" not in done.stderr


# -- where the output goes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "look", [*(LOOKS[name][0] for name in ("audit", "tap", "trial", "verdicts")), "tap all --json"]
)
def test_a_full_output_is_one_message_and_an_end(folder: Path, left_behind: None, look: str) -> None:
    with open("/dev/full", "wb") as full:
        done = rollstream(*look.split(), "--run-dir", folder, stdout=full)
    assert done.returncode == 1
    assert done.stderr == b"rollstream: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("look", [LOOKS[name][0] for name in ("audit", "tap", "trial", "verdicts")])
def test_a_reader_that_goes_away_ends_a_look_quietly(folder: Path, left_behind: None, look: str) -> None:
    """Also where SIGINT is ignored, as in a script's background."""
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "services.cli", *look.split(), "--run-dir", str(folder)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, ignored)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_following_a_quiet_topic_ends_with_its_reader(stack: str) -> None:
    """`tap TOPIC | head -1` on a live broker: nothing comes that could fail to be written."""
    process = subprocess.Popen(
        [sys.executable, "-m", "services.cli", "tap", "policy.gate", "--bootstrap", stack],
        stdout=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    time.sleep(3)
    assert process.poll() is None
    process.stdout.close()
    assert process.wait(10) == 141


def test_json_on_a_closed_standard_error_still_ends(folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} -m services.cli verdicts --json --run-dir {folder} 2>&-"],
        stdout=subprocess.PIPE, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    assert json.loads(done.stdout)["alarms"] == []


def test_any_locale_can_be_printed_to(folder: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "services.cli", "trial", TRIAL, "--run-dir", str(folder)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_a_run_goes_on_when_nobody_reads_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C on `run | tee` ends tee at once; the run still drains, reports and audits."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        display = Display(load(None))
        display.say("draining the services")
        assert display.gone
        display.refresh()
        display.waiting(["gate"])


@pytest.mark.parametrize("words", [(), ("run",), ("audit",), ("tasks", "certify")])
def test_help_can_be_read_through_a_pipe(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "services.cli", *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout
