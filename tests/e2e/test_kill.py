"""Kill -9 of any one service in the middle of a run: the run completes and the audit still balances."""

import os
import signal

import pytest

from infra.local.stack import BROKER, SERVICES
from schemas.policy import TrainingUpdate
from services.runtime.ledger import audit
from tests.e2e.conftest import running, tiny

# More than the one that each kill waits for: on a quick machine training goes on while a service comes back.
UPDATES = 4 * (len(SERVICES) + 1)


@pytest.fixture(scope="module")
def live(cache, tmp_path_factory):
    """One synthetic run that all kills of this module hit, one after the other."""
    settings = tiny(
        tmp_path_factory.mktemp("kill") / "run",
        dispatch={"updates": UPDATES, "group_size": 4, "batch_groups": 2},
        sampler={"engine": "synthetic", "synthetic_min_s": 0.05, "synthetic_max_s": 0.6, "concurrency": 24},
        trainer={"kind": "synthetic", "synthetic_update_s": 1.0},
        closure={"deadline_s": 120.0},
    )
    with running(settings) as stack:
        yield stack


def updates(live) -> int:
    return live.count(TrainingUpdate)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", [*(s for s in SERVICES if s != "dispatch"), BROKER, "dispatch"])
def test_killed_service_comes_back_and_training_goes_on(live, name):
    live.until(lambda: updates(live) >= 1, 90, "the first update")
    process = live.stack.supervisor.processes[name]
    before, pid = updates(live), process.pid
    assert pid is not None
    assert before < UPDATES, "the run ended before every service was killed; give it more updates"
    os.kill(pid, signal.SIGKILL)
    live.until(lambda: process.pid not in (None, pid), 20, f"restart of {name}")
    live.until(lambda: updates(live) >= min(before + 1, UPDATES), 90, f"another update after the kill of {name}")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_after_all_kills_the_run_completes_and_the_audit_balances(live):
    live.until(lambda: live.stack.finished, 200, "the end of the run")
    live.stack.stop_services()
    live.watcher.settle()
    result = audit(live.watcher.records)
    assert result.balanced, "\n".join(result.lines())
    assert updates(live) == UPDATES
    versions = [r.policy_version for r in live.watcher.records if isinstance(r, TrainingUpdate)]
    assert versions == sorted(set(versions)), "an update was published twice"
