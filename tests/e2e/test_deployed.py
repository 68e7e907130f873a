"""Services brought up one by one, in any order, on a cluster that is prepared meanwhile: how Kubernetes runs them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.broker.testing import running_broker
from infra.local.stack import SERVICES
from services.runtime.settings import dump_toml, load

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600.0


class Pods:
    """Processes with the environment of pods; no run folder, and a file of settings that names no task set."""

    def __init__(self, folder, bootstrap):
        self.folder = folder
        settings = load(
            run_id="pods", kafka={"bootstrap": bootstrap},
            store={"url": f"file://{folder}/store"}, hidden_store={"url": f"file://{folder}/hidden"},
            sampler={"engine": "synthetic", "synthetic_min_s": 0.05, "synthetic_max_s": 0.2},
            trainer={"kind": "synthetic", "synthetic_update_s": 0.1}, verifier={"trials": 1, "workers": 1},
            dispatch={"updates": 2, "batch_groups": 4, "group_size": 4}, sandbox={"workers": 1},
            model={"hidden": 32, "layers": 1, "heads": 2, "feed_forward": 64},
            evaluation={"train_tasks": 2, "heldout_bugs": 0, "heldout_families": 0, "samples": 1},
        )  # fmt: skip
        (folder / "etc").mkdir()
        (folder / "etc" / "run.toml").write_text(dump_toml(settings))
        self.grace_s = settings.runtime.grace_s
        self.environment = {
            **os.environ, "ROLLSTREAM_CONFIG": str(folder / "etc" / "run.toml"), "ROLLSTREAM_STAY": "1",
            "ROLLSTREAM_HEALTH_HOST": "0.0.0.0", "HOME": str(folder), "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        self.environment.pop("ROLLSTREAM_CACHE", None)
        self.running = {}

    def command(self, *arguments):
        command = [sys.executable, "-m", "services.cli", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S
        )

    def up(self, service):
        with (self.folder / f"{service}.log").open("ab") as log:
            self.running[service] = subprocess.Popen(
                [sys.executable, "-m", "services.cli", "up", "--service", service],
                cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def down(self, service):
        """Seconds from SIGTERM to an exit with code 0."""
        start = time.monotonic()
        process = self.running.pop(service)
        process.send_signal(signal.SIGTERM)
        assert process.wait(self.grace_s) == 0, self.lines(service)[-5:]
        return time.monotonic() - start

    def lines(self, service):
        """Of its log, each a JSON object with the service's name in it."""
        lines = [json.loads(line) for line in (self.folder / f"{service}.log").read_text().splitlines()]
        assert all(line["service"] == service and line["run"] == "pods" for line in lines)
        return lines

    def until(self, service, event, count=1):
        deadline = time.monotonic() + PATIENCE_S
        while sum(line["event"] == event for line in self.lines(service)) < count:
            assert time.monotonic() < deadline, self.lines(service)[-5:]
            assert self.running[service].poll() is None, self.lines(service)[-5:]
            time.sleep(0.1)


@pytest.fixture
def pods(tmp_path):
    with running_broker(tmp_path / "broker") as broker:
        made = Pods(tmp_path, broker.bootstrap)
        try:
            yield made
        finally:
            for process in made.running.values():
                process.kill()
                process.wait(10)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)  # on a machine that does much else, too
def test_a_run_of_services_that_nobody_starts_in_order(pods):
    for service in SERVICES:
        pods.up(service)
    pods.until("dispatch", "waiting for the preparation")
    prepared = pods.command("prepare")
    assert prepared.returncode == 0, prepared.stderr
    pods.until("dispatch", "the work is over; staying until SIGTERM, since a restart would find nothing to do")
    looked = pods.command("audit")
    assert (looked.returncode, "balanced" in looked.stdout) == (0, True), looked.stdout + looked.stderr
    assert pods.command("trial", "pods/00000000/0").returncode == 0
    assert pods.command("tap", "group.closed", "--from", "earliest", "--limit", "2").returncode == 0
    # A Deployment that is rolled after the run: it finds that it is over, says so, and stays again.
    pods.down("dispatch")
    pods.up("dispatch")
    pods.until("dispatch", "run finished", 2)
    pods.until("dispatch", "the work is over; staying until SIGTERM, since a restart would find nothing to do", 2)
    took = {service: round(pods.down(service), 1) for service in SERVICES}
    print(took)
    assert {p.name for p in pods.folder.iterdir()} <= {
        *(f"{service}.log" for service in SERVICES), "etc", "store", "hidden", "broker", "broker.ready", ".cache",
    }, "nothing is written but to HOME and the temporary folder"  # fmt: skip
