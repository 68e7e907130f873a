"""The end of the run: every pod that was asked to go drained, nothing crashed, and every trial has one fate."""

import json
import subprocess
import sys

import pytest

from schemas.topics import TRAINING_UPDATE
from tests.k8s.cluster import until
from tests.k8s.progress import say

CLOSURE_DEADLINE_S = 240
UPDATES_MORE = 3


def inside(run, namespace, *command, timeout_s=120):
    return subprocess.run(
        run.cluster.inside(namespace, sys.executable, *command), capture_output=True, text=True, timeout=timeout_s
    )


@pytest.mark.timeout(300)
def test_the_run_ends_and_its_audit_balances(run, namespaces, bootstrap):
    goal = run.outside.count(TRAINING_UPDATE.name) + UPDATES_MORE
    say(f"ending the run at {goal} updates")
    run.kubectl("dispatch", "set", "env", run.workloads["dispatch"].name, f"ROLLSTREAM_DISPATCH__UPDATES={goal}")
    run.kubectl("dispatch", "rollout", "status", run.workloads["dispatch"].name, "--timeout=120s", timeout_s=130)
    until(lambda: run.outside.count(TRAINING_UPDATE.name) >= goal, 120, f"{goal} updates")
    said = lambda: run.kubectl("dispatch", "logs", run.pod("dispatch").name, "--tail=50")  # noqa: E731
    until(lambda: "run finished" in said(), 60, "dispatch saying that the run is finished")
    until(lambda: not _audit(run, namespaces, bootstrap).stdout.count("owed by"), 90, "every group decided", every_s=2)
    audit = _audit(run, namespaces, bootstrap)
    for line in audit.stdout.splitlines():
        run.table.note(line)
    assert audit.returncode == 0, audit.stdout + audit.stderr[-1000:]


def _audit(run, namespaces, bootstrap):
    return inside(run, namespaces[0], "-m", "services.cli", "audit", "--bootstrap", bootstrap)


@pytest.mark.timeout(200)
def test_nothing_is_lost_and_nothing_counted_twice(run, namespaces, bootstrap):
    done = inside(run, namespaces[0], "-m", "tests.k8s.outside", "reckon", bootstrap, str(CLOSURE_DEADLINE_S + 60))
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    run.table.note(f"{found['trials']} trials, {found['updates']} updates, repeated records that changed nothing: "
                   f"{sum(found['duplicates'].values())} {found['duplicates']}, losses: {found['losses']}")  # fmt: skip
    assert found["problems"] == []
    assert found["losses"] == 0
    assert found["trials"] > 0


def test_no_container_ended_unless_its_pod_was_deleted(run):
    crashed = {
        life.name: life.ends for life in run.pods.lives.values() if life.restarts and life.service in run.workloads
    }
    assert not crashed


def test_every_pod_that_was_asked_to_go_drained(run):
    """Those deleted by force aside: their end is not told. The rest ended by themselves with exit code 0."""
    asked = [life for life in run.pods.lives.values() if life.service in run.workloads and life.gone is not None]
    told = [life for life in asked if life.exit_code is not None]
    hard = {life.name: life.ends for life in told if life.exit_code != 0}
    untold = set(run.workloads) - {life.service for life in told}
    assert not untold, "each service was rolled, so each has a pod that was asked to go"
    for service in run.workloads:
        times = sorted(life.gone - life.asked for life in told if life.service == service)
        if times:
            shown = f"{times[len(times) // 2]:.1f} s, at most {times[-1]:.1f} s of {len(times)}"
            run.table.put(service, "SIGTERM to gone", shown)
    assert not hard
