"""A whole run on a real S3 server with a login per service; the server dies in the middle and nothing is lost by it."""

import os
import signal
import time

import pytest

from infra.local.rundir import RunDir
from schemas.policy import PolicyGate, TrainingUpdate
from schemas.rollout import INFRA_STOPS, RolloutCompleted
from schemas.verification import VerificationVerdict
from services.runtime.errors import UserError
from services.runtime.ledger import audit
from services.runtime.store import open_hidden, open_store
from tests.e2e.conftest import running, tiny
from tests.s3 import s3_server

UPDATES = 6
OUTAGE_S = 20.0


@pytest.fixture
def server(shared_equipment, tmp_path):
    folder = tmp_path / "s3"
    folder.mkdir()
    with s3_server(shared_equipment, folder) as running_server:
        yield running_server


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_run_outlives_an_outage_of_its_object_store(cache, server, tmp_path):
    """The trainer has a version to publish, the gate and the sampler to load it; verifier and sandbox are killed while
    the store is down, and must wait for it when they start again."""
    made = server.least_privilege(tmp_path / "secrets")
    settings = tiny(
        tmp_path / "run",
        store=made.store.model_dump(),
        hidden_store=made.hidden_store.model_dump(),
        dispatch={"updates": UPDATES, "group_size": 4, "batch_groups": 2},
        sampler={"engine": "synthetic", "synthetic_min_s": 0.05, "synthetic_max_s": 0.3},
        trainer={"kind": "synthetic", "synthetic_update_s": 0.3},
    )
    with running(settings) as live:
        live.until(lambda: live.count(TrainingUpdate) >= 1, 120, "the first update")
        server.signal("KILL")
        killed = [live.stack.supervisor.processes[name] for name in ("verifier", "sandbox")]
        for process in killed:
            os.kill(process.pid, signal.SIGKILL)
        back = time.monotonic() + OUTAGE_S
        live.until(lambda: time.monotonic() > back, OUTAGE_S + 60, "the end of the outage")
        before = live.count(TrainingUpdate)
        assert before < UPDATES, "the run ended before it could feel the outage"
        server.start()
        live.until(lambda: live.stack.finished, 200, "the end of the run")
        live.stack.stop_services()
        live.watcher.settle()
        records, restarts = list(live.watcher.records), live.stack.restarts()
    result = audit(records)
    assert result.balanced, "\n".join(result.lines())
    assert [r.policy_version for r in records if isinstance(r, TrainingUpdate)] == list(range(1, UPDATES + 1))
    assert restarts == {"verifier": 1, "sandbox": 1}, "a store that is down is waited for, never a reason to end"
    assert {r.decision for r in records if isinstance(r, PolicyGate)} == {"promoted"}
    verdicts = [r for r in records if isinstance(r, VerificationVerdict) and r.verdict != "pending"]
    assert {r.verdict for r in verdicts} == {"pass", "fail"}
    lost = [r for r in records if isinstance(r, RolloutCompleted) and r.stop_reason in INFRA_STOPS and r.final_attempt]
    assert lost == []
    _where_everything_lies(RunDir(tmp_path / "run").settings())


def _where_everything_lies(settings):
    """The hidden checks in their bucket alone, no secret in the run's folder, and the sampler's login shut out."""
    tasks = f"tasks/{settings.taskset_digest}"
    assert [*open_hidden(settings).list()] == [f"{tasks}/hidden.json"]
    assert [*open_store(settings.store).list("tasks/")] == [f"{tasks}/certificates.json", f"{tasks}/public.json"]
    assert settings.store.secret_key == settings.hidden_store.secret_key == ""
    for service in ("sampler", "sandbox"):
        with pytest.raises(UserError, match="may not do this"):
            open_hidden(settings, service)
