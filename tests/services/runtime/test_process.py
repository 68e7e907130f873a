"""Protects the life of a service process: ready file, SIGTERM drains, a second signal ends, kill -9 loses nothing."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.services.runtime.bus import wait_for

ROOT = Path(__file__).parents[3]


class Child:
    def __init__(self, bus, folder, seconds):
        self.ready_file = folder / "ready.json"
        self.ready_file.unlink(missing_ok=True)
        self.diary = folder / "diary"
        self.log = folder / "log"
        command = [sys.executable, "-m", "tests.services.runtime.child", bus.bootstrap, self.ready_file, self.diary]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen([*map(str, command), str(seconds)], cwd=ROOT, stderr=out)

    def begun(self):
        return [int(line) for line in self.diary.read_text().split()] if self.diary.exists() else []

    def get(self, path):
        port = json.loads(self.ready_file.read_text())["health_port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.read().decode()

    def terminate(self, number=signal.SIGTERM, seconds=20):
        self.process.send_signal(number)
        return self.process.wait(seconds)


@pytest.fixture
def child(bus, tmp_path):
    made = []

    def start(seconds):
        made.append(Child(bus, tmp_path, seconds))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait(10)


def test_sigterm_drains_and_exits_0(bus, child):
    """Running jobs end and are answered, queued ones never start, what is finished is committed; health answers."""
    bus.send(range(20))
    service = child(0.6)
    wait_for(lambda: len(service.begun()) >= 2)
    assert json.loads(service.ready_file.read_text())["pid"] == service.process.pid
    assert service.get("/healthz/live") == "ok\n"
    metrics = service.get("/metrics")
    assert 'rlvr_inflight_jobs{service="sandbox"} 4.0' in metrics
    assert service.terminate() == 0
    begun = service.begun()
    assert len(begun) < 20, "queued jobs were not started"
    assert bus.answered() == sorted(begun), "every begun job was answered, within the drain budget"
    assert bus.committed() >= 1
    assert "stopped" in service.log.read_text().splitlines()[-1]


@pytest.mark.long
def test_a_job_beyond_the_budget_is_done_again(bus, child):
    """The drain gives up at its deadline, exits 0, and leaves the record for the next start."""
    bus.send([0])
    service = child(60)
    wait_for(service.begun)
    start = time.monotonic()
    assert service.terminate() == 0
    assert time.monotonic() - start < 10
    assert bus.committed() == 0
    again = child(0)
    wait_for(lambda: bus.answered() == [0])
    assert again.terminate() == 0


def test_a_second_signal_exits_at_once(bus, child):
    bus.send([0])
    service = child(60)
    wait_for(service.begun)
    service.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    start = time.monotonic()
    assert service.terminate() == 128 + signal.SIGTERM
    assert time.monotonic() - start < 2


def test_kill_9_in_the_middle_loses_nothing(bus, child):
    """Twice killed without warning: every command is answered, and only what was not committed is done again."""
    bus.send(range(60))
    for _ in range(2):
        service = child(0.05)
        enough = len(service.begun()) + 12
        wait_for(lambda s=service, n=enough: len(s.begun()) >= n, 30)
        service.terminate(signal.SIGKILL)
    committed = bus.committed()
    before = len(service.begun())
    service = child(0.01)
    wait_for(lambda: set(bus.answered()) == set(range(60)), 30)
    assert service.terminate() == 0
    assert bus.committed() == 60
    assert len(service.begun()) - before <= 60 - committed, "nothing below the committed watermark was handled again"
