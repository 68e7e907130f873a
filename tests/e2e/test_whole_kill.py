"""Kill -9 of every process of a run at once, and of the sandbox alone: no call is sampled again, no attempt spent."""

import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

from infra.local.rundir import RunDir
from infra.local.stack import readable
from schemas import topics
from schemas.policy import TrainingUpdate
from services.runtime.ledger import audit
from services.runtime.tap import read_all
from tests.e2e.conftest import running, tiny
from tests.e2e.test_run import TINY, rollstream, start
from tests.e2e.test_stop import LONG, trained

UPDATES = 9


def kill_everything(run: subprocess.Popen[str]) -> int:
    """SIGKILL to the command, its services, its broker and all that they started; how many processes that were."""
    whole = psutil.Process(run.pid)
    victims = [whole, *whole.children(recursive=True)]
    for victim in victims:
        victim.send_signal(signal.SIGKILL)
    run.communicate(timeout=30)
    psutil.wait_procs(victims, timeout=30)
    return len(victims)


def live_bootstrap(root: Path, run: subprocess.Popen[str]) -> str:
    end = time.monotonic() + 120
    while (found := RunDir(root).live_bootstrap()) is None:
        assert time.monotonic() < end
        assert run.poll() is None, run.communicate()[0]
        time.sleep(0.1)
    return found


def records(cluster, topic) -> list:
    return [message.record for message in read_all(cluster, topic)]


def same_call(one, other) -> bool:
    """Two records of a model call with the same content."""
    arrays = ("sampled_ids", "logprobs", "appended_ids")
    return one.prefix_digest == other.prefix_digest and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_run_that_is_killed_whole_goes_on_to_a_balanced_end(cache, tmp_path):
    config, root = tmp_path / "run.toml", tmp_path / "run"
    config.write_text(TINY.format(lag=1).replace("updates = 2", f"updates = {UPDATES}") + LONG)
    before: list = []
    for wanted in (2, 5):
        run = start("run", "--config", str(config), "--run-dir", str(root))
        try:
            trained(live_bootstrap(root, run), run, wanted)
        finally:
            count = kill_everything(run)
        assert count >= 10, "the command, the broker and eight services"
        with readable(RunDir(root)) as cluster:
            before.append(records(cluster, topics.ROLLOUT_INVOCATION))
    done = rollstream("run", "--run-dir", str(root), timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    audited = rollstream("audit", str(root), timeout=60)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    with readable(RunDir(root)) as cluster:
        calls = records(cluster, topics.ROLLOUT_INVOCATION)
        updates = records(cluster, topics.TRAINING_UPDATE)
        published = records(cluster, topics.POLICY_PUBLISHED)
        ends = records(cluster, topics.ROLLOUT_COMPLETED)
    # Every wire record of a version is one and the same, and every version follows the one before.
    assert sorted({u.policy_version: u.group_ids for u in updates}) == list(range(1, UPDATES + 1))
    assert len({(u.policy_version, u.group_ids) for u in updates}) == UPDATES
    assert len({(p.policy_version, p.manifest_digest) for p in published}) == UPDATES + 1
    counted = Counter(call.invocation_id for call in calls)
    for recorded in before:
        # The topic's records at the kill are all still there, and nobody sampled any of those calls again.
        assert recorded
        ids = Counter(call.invocation_id for call in recorded)
        assert all(counted[name] == count == 1 for name, count in ids.items())
    first: dict = {}
    for call in calls:
        assert same_call(first.setdefault(call.invocation_id, call), call), "two contents under one id"
    assert {end.attempt for end in ends} == {0}, "no loss of a process costs an attempt"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_sandbox_that_is_killed_costs_no_attempt(cache, tmp_path):
    """Its workspaces are made again from the log: the catalogue's fixtures are deterministic."""
    settings = tiny(
        tmp_path / "run",
        dispatch={"updates": 10, "group_size": 4, "batch_groups": 2},
        # Commits sooner than a trial's next operation: what was committed is not read again, so the workspace is lost.
        runtime={"commit_s": 0.05},
        sampler={"engine": "synthetic", "synthetic_min_s": 0.7, "synthetic_max_s": 1.4, "concurrency": 24},
        trainer={"kind": "synthetic", "synthetic_update_s": 0.2},
    )
    with running(settings) as live:
        process = live.stack.supervisor.processes["sandbox"]
        for wanted in (1, 3, 5):
            live.until(lambda wanted=wanted: live.count(TrainingUpdate) >= wanted, 120, f"update {wanted}")
            pid = process.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            live.until(lambda pid=pid: process.pid not in (None, pid), 30, "the sandbox's restart")
        live.until(lambda: live.stack.finished, 200, "the end of the run")
        live.stack.stop_services()
        live.watcher.settle()
        result = audit(live.watcher.records)
        assert result.balanced, "\n".join(result.lines())
        commands = records(live.stack.cluster, topics.SANDBOX_COMMAND)
        answers = records(live.stack.cluster, topics.SANDBOX_RESULT)
        ends = records(live.stack.cluster, topics.ROLLOUT_COMPLETED)
    assert {end.attempt for end in ends} == {0}
    again = {command.operation_id for command in commands if command.history is not None}
    assert again, "three kills found no trial between two operations"
    assert {answer.status for answer in answers if answer.operation_id in again} <= {"ok", "refused"}
