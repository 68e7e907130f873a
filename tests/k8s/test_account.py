"""The end of the run: every pod that was asked to go drained, nothing crashed, and every trial has one fate."""

import json
import os
import subprocess
import sys

import pytest

from schemas.topics import TRAINING_UPDATE
from tests.k8s.cluster import Refused, until
from tests.k8s.progress import say

CLOSURE_DEADLINE_S = 240
UPDATES_MORE = 3


def inside(run, namespace, *command, timeout_s=120, **environment):
    return subprocess.run(
        run.cluster.inside(namespace, sys.executable, *command), capture_output=True, text=True, timeout=timeout_s,
        env={**os.environ, **environment},
    )  # fmt: skip


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


@pytest.mark.timeout(300)
def test_a_copy_made_in_the_cluster_audits_equal_elsewhere(run, namespaces, bootstrap, tmp_path):
    """The page's way: a job from the CronJob. Its copy is put back as a run folder of this machine."""
    here = namespaces[0]
    run.cluster.kubectl("-n", here, "create", "job", "copy-1", "--from=cronjob/backup")
    try:
        run.cluster.kubectl("-n", here, "wait", "--for=condition=Complete", "job/copy-1", "--timeout=120s",
                            timeout_s=130)  # fmt: skip
    except Refused as refused:
        pytest.fail(f"{refused}\n{run.cluster.kubectl('-n', here, 'logs', 'job/copy-1', '--all-pods', '--tail=40')}")
    said = run.cluster.kubectl("-n", here, "logs", "job/copy-1", "--tail=1")
    run.table.note(said.strip())
    assert said.startswith("backed up ")
    folder = tmp_path / "restored"
    back = inside(
        run, here, "-m", "services.cli", "restore", "s3://backup/copy-1", "--run-dir", str(folder),
        ROLLSTREAM_STORE__ENDPOINT=f"store.{here}.svc:7070", ROLLSTREAM_STORE__SECURE="false",
        ROLLSTREAM_STORE__ACCESS_KEY="operator", ROLLSTREAM_STORE__SECRET_KEY="laptop-operator-secret",
    )  # fmt: skip
    assert back.returncode == 0, back.stdout + back.stderr
    copied = inside(run, here, "-m", "services.cli", "audit", "--run-dir", str(folder))
    assert copied.returncode == 0, copied.stdout + copied.stderr
    assert copied.stdout == _audit(run, namespaces, bootstrap).stdout


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
