"""The supervisor keeps processes alive, gives up loudly, and leaves nothing behind, not even when it is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from infra.local.supervisor import ProcessSpec, RestartPolicy, StackFailed, Supervisor

ROOT = Path(__file__).parents[3]
CODE = """
import json, os, pathlib, signal, sys, time
ready, mode, marks = sys.argv[1:4]
with open(marks, "a") as f: f.write(f"{os.getpid()}\\n")
if mode == "crash": print("boom: no luck"); sys.exit(1)
if mode == "refuse": print("rollstream: bad setting"); sys.exit(2)
if mode == "deaf": signal.signal(signal.SIGTERM, signal.SIG_IGN)
else: signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))
pathlib.Path(ready).write_text(json.dumps({"pid": os.getpid(), "over": mode == "done"}))
if mode == "done": sys.exit(0)
while True: time.sleep(0.05)
"""


@pytest.fixture
def supervisor():
    made = Supervisor(RestartPolicy(first_s=0.05, longest_s=0.2, limit=3, window_s=60))
    yield made
    made.kill_all()


@pytest.fixture
def spec(tmp_path, monkeypatch):
    (tmp_path / "worker.py").write_text(CODE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")

    def make(mode, name="worker", **more):
        ready = tmp_path / f"{name}.ready"
        arguments = (str(ready), mode, str(tmp_path / f"{name}.pids"))
        return ProcessSpec(name, "worker", arguments, ready, tmp_path / f"{name}.log", **more)

    return make


def drive(supervisor, until, timeout=15):
    deadline = time.monotonic() + timeout
    while not until():
        assert time.monotonic() < deadline
        supervisor.check()
        time.sleep(0.02)


def test_a_killed_process_comes_back(supervisor, spec):
    process = supervisor.start(spec("serve"))
    supervisor.wait_ready(["worker"], 15)
    first = process.pid
    os.kill(first, signal.SIGKILL)
    drive(supervisor, lambda: process.pid not in (None, first))
    assert process.restarts == 1
    assert supervisor.stop([["worker"]]) == []
    assert not psutil.pid_exists(first)


def test_what_keeps_dying_stops_the_stack_with_the_end_of_its_log(supervisor, spec):
    supervisor.start(spec("crash"))
    with pytest.raises(StackFailed, match="boom: no luck"):
        drive(supervisor, lambda: False)


def test_a_refusal_is_not_retried(supervisor, spec, tmp_path):
    supervisor.start(spec("refuse"))
    with pytest.raises(StackFailed, match="bad setting"):
        drive(supervisor, lambda: False)
    assert len((tmp_path / "worker.pids").read_text().splitlines()) == 1


def test_a_process_whose_work_is_over_is_finished_and_not_restarted(supervisor, spec):
    process = supervisor.start(spec("done", restart="until_over"))
    drive(supervisor, lambda: process.finished)
    assert process.restarts == 0


def test_a_process_that_somebody_else_asked_to_end_comes_back(supervisor, spec):
    """SIGTERM to dispatch alone leaves with 0 too; the run is not over for that."""
    process = supervisor.start(spec("serve", restart="until_over"))
    supervisor.wait_ready(["worker"], 15)
    first = process.pid
    os.kill(first, signal.SIGTERM)
    drive(supervisor, lambda: process.pid not in (None, first))
    assert (process.finished, process.restarts) == (False, 1)


def test_one_that_ignores_sigterm_is_killed_and_named(supervisor, spec):
    supervisor.start(spec("deaf", stop_s=0.3))
    supervisor.wait_ready(["worker"], 15)
    assert supervisor.stop([["worker"]]) == ["worker"]
    assert supervisor.processes["worker"].pid is None


def test_kill_9_of_the_supervisor_leaves_nothing(tmp_path, spec):
    made = spec("serve")
    script = f"""
import time
from pathlib import Path
from infra.local.supervisor import ProcessSpec, Supervisor
s = Supervisor()
ready, log = Path({str(made.ready_file)!r}), Path({str(made.log_file)!r})
s.start(ProcessSpec("worker", "worker", {made.arguments!r}, ready, log))
s.wait_ready(["worker"], 15)
print(s.processes["worker"].pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the worker outlived its supervisor"
        time.sleep(0.05)
