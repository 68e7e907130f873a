"""A stop alarm in the middle of a run: no version collects data any more, the run ends and says which alarm it was."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from infra.local.rundir import RunDir
from infra.local.watch import Watcher
from schemas import codec
from schemas.policy import TrainingUpdate
from schemas.topics import VERIFICATION_ALARM
from schemas.verification import VerificationAlarm
from services.runtime.producer import make_producer
from services.runtime.settings import load
from tests.e2e.test_run import TINY, rollstream, start

LONG = """
[trainer]
kind = "synthetic"
synthetic_update_s = 0.3
"""
ALARM = VerificationAlarm(
    run_id="tiny", alarm_id="soundness:known_bad:tiny/00000000/0.0", kind="soundness", severity="stop",
    task_id="sorting/x", check_digest="sha256:c", policy_version=None, count=1, total=1, bound=None,
    detail="a candidate of sorting/x that is known to be wrong passed", raised_ms=1,
)  # fmt: skip


def trained(bootstrap: str, run: subprocess.Popen[str], updates: int, seconds: float = 120) -> None:
    """Wait until the run has made so many updates."""
    watcher = Watcher(bootstrap)
    watcher.start()
    try:
        end = time.monotonic() + seconds
        while sum(isinstance(record, TrainingUpdate) for record in list(watcher.records)) < updates:
            assert time.monotonic() < end
            assert run.poll() is None, run.communicate()[0]
            time.sleep(0.1)
    finally:
        watcher.stop()


def raise_alarm(bootstrap: str) -> None:
    producer = make_producer(load(run_id="tiny", kafka={"bootstrap": bootstrap}), "verifier")
    headers = codec.headers(ALARM)
    producer.send(VERIFICATION_ALARM.name, codec.encode(ALARM), key=b"tiny", headers=headers).get(20)
    producer.close(5)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_stop_alarm_ends_the_run_unsuccessfully_and_its_account_balances(cache: Path, tmp_path: Path) -> None:
    config, root = tmp_path / "run.toml", tmp_path / "run"
    config.write_text(TINY.format(lag=1).replace("updates = 2", "updates = 500") + LONG)
    run = start("run", "--config", str(config), "--run-dir", str(root))
    try:
        end = time.monotonic() + 120
        while (bootstrap := RunDir(root).live_bootstrap()) is None:
            assert time.monotonic() < end
            assert run.poll() is None, run.communicate()[0]
            time.sleep(0.1)
        trained(bootstrap, run, 2)
        raise_alarm(bootstrap)
        said, _ = run.communicate(timeout=120)
    finally:
        run.kill()
    assert run.returncode == 1, said
    assert ALARM.alarm_id in said
    assert "known to be wrong passed" in said
    assert "of 500 updates" in said
    audited = rollstream("audit", str(root), timeout=60)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    tapped = rollstream("tap", "policy.gate", "--run-dir", str(root), "--json", timeout=60)
    records = [json.loads(line)["record"] for line in tapped.stdout.splitlines()]
    last = {record["policy_version"]: record["decision"] for record in records}
    assert set(last.values()) == {"halted"}
