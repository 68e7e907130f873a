"""Instances of every scalable service come, go, freeze, roll and differ in version while trials run: nothing lost."""

import dataclasses
import os
import signal
import time
from collections import defaultdict

import pytest

from infra.local.stack import Stack
from schemas import topics
from schemas.policy import TrainingUpdate
from schemas.verification import VerificationVerdict
from services.runtime.tap import read_all
from tests.chaos.reckoning import reckon
from tests.e2e.conftest import running, tiny

SCALED = ("sampler", "sandbox", "verifier", "closure", "admission", "recorder")
SESSION_S = 3.0
PATIENCE_S = 180.0
"""A shared machine may be slow; how quick things are is measured elsewhere."""
UPDATES = 1_000_000

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def live(cache, tmp_path_factory):
    """Two instances of everything that scales, working on one endless synthetic run."""
    settings = tiny(
        tmp_path_factory.mktemp("elastic") / "run",
        kafka={"session_timeout_ms": int(1000 * SESSION_S)},
        dispatch={"updates": UPDATES, "group_size": 4, "batch_groups": 3},
        evaluation={"train_tasks": 0, "heldout_bugs": 0, "heldout_families": 0},
        sampler={"engine": "synthetic", "synthetic_min_s": 0.05, "synthetic_max_s": 0.4, "concurrency": 24},
        verifier={"trials": 1},
        trainer={"kind": "synthetic", "synthetic_update_s": 0.1},
        closure={"deadline_s": 120.0},
        scale=dict.fromkeys(SCALED, 2),
    )
    with running(settings) as stack:
        yield stack


def updates(live) -> int:
    return live.count(TrainingUpdate)


def goes_on(live, after: str, more: int = 2) -> None:
    before = updates(live)
    live.until(lambda: updates(live) >= before + more, PATIENCE_S, f"{more} more updates after {after}")


def start(live, instances: dict[str, str], module: str = "services.cli") -> None:
    """Start these (process name -> service) and wait until all serve."""
    stack: Stack = live.stack
    for name, service in instances.items():
        stack.supervisor.start(dataclasses.replace(stack.process(name, service), module=module))
    stack.supervisor.wait_ready(list(instances), PATIENCE_S)


def test_two_of_each_share_the_partitions(live):
    assert {f"{name}-2" for name in SCALED} <= set(live.stack.services)
    goes_on(live, "the start")
    for name in SCALED:
        for instance in (name, f"{name}-2"):
            live.until(lambda n=instance: '"owned": ' in log(live, n), 30, f"partitions for {instance}")


def log(live, name: str) -> str:
    return live.stack.supervisor.processes[name].spec.log_file.read_text(errors="replace")


def test_a_third_of_each_comes_and_goes(live):
    start(live, {f"{name}-3": name for name in SCALED})
    goes_on(live, "adding a third")
    assert live.stack.supervisor.stop([[f"{name}-3" for name in SCALED]]) == [], "each drained by itself"
    goes_on(live, "taking the third away")


def test_one_of_each_freezes_past_its_session_and_wakes_as_a_zombie(live):
    pids = [live.stack.supervisor.processes[f"{name}-2"].pid for name in SCALED]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        asleep = time.monotonic()
        goes_on(live, "freezing", more=1)
        live.until(lambda: time.monotonic() - asleep > 1.5 * SESSION_S, 30, "the session to end")
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    goes_on(live, "waking")


@pytest.mark.parametrize("mark", ["-2", ""], ids=["the second ones", "the first ones"])
def test_each_is_rolled_and_half_of_them_to_the_minor_version_before(live, mark):
    names = [f"{name}{mark}" for name in SCALED]
    assert live.stack.supervisor.stop([names]) == [], "each drained by itself"
    start(live, dict(zip(names, SCALED, strict=True)), "tests.e2e.older" if mark else "services.cli")
    goes_on(live, f"rolling {names}")


def test_at_the_end_nothing_is_lost_and_nothing_twice(live):
    supervisor = live.stack.supervisor
    supervisor.stop([["dispatch"]])
    goes_by = time.monotonic() + PATIENCE_S

    def settled() -> bool:
        report = reckon(live.stack.cluster, deadline_s=180)
        return not any(" in flight" in line and "admitted" not in line for line in report.audit)

    while not settled() and time.monotonic() < goes_by:
        supervisor.check()
        time.sleep(0.5)
    live.stack.stop_services()
    found = reckon(live.stack.cluster, deadline_s=180)
    assert not found.problems, "\n".join([*found.problems, *found.audit])
    assert found.losses == 0
    assert found.trials > 100
    forms = defaultdict(set)
    for message in read_all(live.stack.cluster, topics.VERIFICATION_VERDICT):
        assert isinstance(message.record, VerificationVerdict)
        forms[message.headers["ce_dataschema"]].add(message.record.trial_id)
    assert len(forms) == 2, f"both minor versions were written: {list(forms)}"
