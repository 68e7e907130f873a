"""A whole run, recorded as it went: its topics are lost, come back from what was recorded, and it ends as any other."""

import pytest

from infra.local.recorded import put_back
from infra.local.rundir import RunDir
from schemas.policy import TrainingUpdate
from services.recorder.main import keyed
from services.recorder.reading import look, records
from services.runtime.archive import read_raw, spans
from services.runtime.store import open_store
from services.runtime.topics_admin import declared
from tests.e2e.conftest import cache, running, tiny, watched_to_its_end  # noqa: F401  # a fixture

UPDATES = 8


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_that_lost_its_topics_goes_on_from_what_was_recorded(cache, tmp_path):  # noqa: F811
    settings = tiny(
        tmp_path / "run",
        dispatch={"updates": UPDATES, "group_size": 4, "batch_groups": 2},
        evaluation={"train_tasks": 0, "heldout_bugs": 0, "heldout_families": 0},
        sampler={"engine": "synthetic", "synthetic_min_s": 0.05, "synthetic_max_s": 0.4},
        trainer={"kind": "synthetic", "synthetic_update_s": 0.3},
        scale={"recorder": 2},
    )
    with running(settings) as live:
        live.until(lambda: live.count(TrainingUpdate) >= 3, 200, "three updates")
        assert live.stack.stop_services() == []
        place = live.stack.cluster
        there = {
            at: list(read_raw(place, *at, span))
            for at, span in spans(place, list(declared(settings))).items()
            if span.end
        }
    run = RunDir(tmp_path / "run")
    store = open_store(run.settings().store)
    kept = look(store, "tiny", keyed)
    assert {tuple(at): list(records(store, "tiny", each)) for at, each in kept.items()} == there
    assert put_back(run.root, None, tmp_path / "again") == 0
    ended = watched_to_its_end(RunDir(tmp_path / "again"))
    done = [r.policy_version for r in ended if isinstance(r, TrainingUpdate)]
    assert done == list(range(1, UPDATES + 1))
