"""Protects a service as it is deployed: health before anything else, waits that say why, SIGTERM in each of them."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from services.runtime.prepared import Prepared, load_prepared, publish_prepared, wanted_by
from services.runtime.settings import load
from services.runtime.store_local import LocalStore
from tests.services.runtime.bus import wait_for

ROOT = Path(__file__).parents[3]
NOBODY = "127.0.0.1:9"
"""Where no broker answers."""


class Deployed:
    """`rollstream up` with the environment of a pod; its settings come from a file that ROLLSTREAM_CONFIG names."""

    def __init__(self, service, folder, **environment):
        config = folder / "run.toml"
        config.write_text(
            f'run_id = "r"\n[kafka]\nbootstrap = "{NOBODY}"\n[store]\nurl = "file://{folder / "store"}"\n'
        )
        self.ready_file = folder / "ready.json"
        self.log_file = folder / "log"
        variables = {**os.environ, "ROLLSTREAM_CONFIG": str(config), **environment}
        command = [sys.executable, "-m", "services.cli", "up", "--service", service]
        with self.log_file.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--ready-file", str(self.ready_file)], cwd=ROOT, env=variables,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip

    def lines(self):
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    def said(self, event):
        return [line for line in self.lines() if line["event"] == event]

    def status(self, path):
        port = json.loads(self.ready_file.read_text())["health_port"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status
        except urllib.error.HTTPError as e:
            return e.code

    def end(self, seconds=5):
        """Exit code after SIGTERM, within seconds however long the wait under way may take."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


@pytest.fixture
def deploy(tmp_path):
    made = []

    def start(service, **environment):
        made.append(Deployed(service, tmp_path, **environment))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait(10)


def test_a_service_waits_for_the_preparation_and_goes_on_with_it(deploy, tmp_path):
    """Live and not ready, as it says every few seconds; then it waits for the broker, and SIGTERM ends that."""
    service = deploy("gate")
    wait_for(service.ready_file.exists, 30, "health")
    assert (service.status("/healthz/live"), service.status("/healthz/ready")) == (200, 503)
    assert service.status("/metrics") == 200
    (line,) = wait_for(lambda: service.said("waiting for the preparation")[:1], 20, "waiting")
    assert "rollstream prepare" in line["why"]
    publish_prepared(LocalStore(tmp_path / "store"), Prepared("r", "d" * 64, "runs/r/checkpoints/00000000.json"))
    wait_for(lambda: service.said("prepared"), 20, "prepared")
    wait_for(lambda: service.said("waiting for the broker"), 20, "broker")
    assert service.status("/healthz/live") == 200
    assert service.end() == 0
    assert service.said("stopped")


def test_sigterm_while_waiting_for_the_preparation_ends_at_once(deploy):
    service = deploy("dispatch")
    wait_for(lambda: service.said("waiting for the preparation"), 30, "waiting")
    start = time.monotonic()
    assert service.end() == 0
    assert time.monotonic() - start < 3
    assert service.lines()[-1]["event"] == "stopped before it had begun"


def test_a_preparation_that_does_not_come_is_one_message(deploy):
    service = deploy("dispatch", ROLLSTREAM_RUNTIME__PREPARED_S="0.5")
    assert service.process.wait(40) == 2
    assert "runs/r/prepared.json" in service.said("stopped")[-1]["message"]


def test_a_service_without_business_in_the_store_does_not_wait_for_it(deploy):
    """Closure may not even reach the store."""
    service = deploy("closure", ROLLSTREAM_STORE__URL="s3://nobody/answers", ROLLSTREAM_STORE__ENDPOINT=NOBODY)
    wait_for(lambda: service.said("waiting for the broker"), 30, "broker")
    assert not service.said("waiting for the preparation")
    assert service.end() == 0


def test_a_store_that_is_down_is_waited_for(deploy):
    """Silent, not refusing: the try under way would take half a minute, and SIGTERM ends it."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        service = deploy(
            "dispatch", ROLLSTREAM_STORE__URL="s3://bucket/x", ROLLSTREAM_STORE__ENDPOINT=where,
            ROLLSTREAM_STORE__ACCESS_KEY="a", ROLLSTREAM_STORE__SECRET_KEY="not-to-be-seen",
            ROLLSTREAM_STORE__SECURE="false",
        )  # fmt: skip
        wait_for(service.ready_file.exists, 30, "health")
        silent.settimeout(20)
        silent.accept()[0].close()  # the first try is cut, and another is made
        held = silent.accept()[0]
        assert service.status("/healthz/live") == 200
        assert service.end() == 0
        held.close()
    assert "not-to-be-seen" not in service.log_file.read_text()


def test_a_mistake_ends_it_in_one_line(deploy):
    service = deploy("dispatch", ROLLSTREAM_STORE__URL="nonsense")
    assert service.process.wait(40) == 2
    assert service.lines()[-1]["level"] == "error"
    assert "is no object store" in service.lines()[-1]["message"]


def test_lines_of_a_pod_name_it(deploy):
    service = deploy("closure", KUBERNETES_SERVICE_HOST="10.0.0.1", POD_NAME="closure-7d-x1")
    wait_for(lambda: service.said("starting"), 30, "the first line")
    assert {"service": "closure", "run": "r", "pod": "closure-7d-x1"}.items() <= service.lines()[0].items()
    assert service.end() == 0


def test_a_signal_interrupts_work_that_takes_no_turns(tmp_path):
    """Even one whose library catches every exception of a failed try and makes another."""
    program = textwrap.dedent("""
        import sys, time
        from services.runtime.process import ServiceProcess, Stopped
        from services.runtime.settings import load
        process = ServiceProcess("trainer", load())
        process.watch_signals()
        try:
            with process.unturned():
                print("begun", flush=True)
                while True:
                    try:
                        time.sleep(60)
                    except Exception:
                        pass
        except Stopped:
            sys.exit(0)
    """)
    child = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(5) == 0
    finally:
        child.kill()
        child.wait(10)
        child.stdout.close()


def test_who_waits_is_who_may_read(tmp_path):
    waits = {name for name in ("dispatch", "sampler", "sandbox", "verifier", "trainer", "gate") if wanted_by(name, "r")}
    assert len(waits) == 6
    assert not any(wanted_by(name, "r") for name in ("closure", "admission", "recorder", "nobody"))


def test_the_first_preparation_counts_and_a_damaged_one_is_said(tmp_path):
    store = LocalStore(tmp_path)
    assert load_prepared(store, "r") is None
    first = Prepared("r", "d1", "runs/r/checkpoints/00000000.json", {"seed": 0})
    assert publish_prepared(store, first)
    assert not publish_prepared(store, Prepared("r", "d2", "other"))
    assert load_prepared(store, "r") == first
    settings = first.complete(load(run_id="r"))
    assert (settings.taskset_digest, settings.base_manifest) == ("d1", "runs/r/checkpoints/00000000.json")
    store.put("runs/s/prepared.json", store.get("runs/r/prepared.json"))
    with pytest.raises(Exception, match="another run"):
        load_prepared(store, "s")
