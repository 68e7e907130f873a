"""A run that was copied while it trained is restored elsewhere: it audits, goes on training, and ends balanced."""

from pathlib import Path

import pytest

from infra.local.backup import backup, restore
from infra.local.rundir import RunDir
from infra.local.stack import readable
from infra.local.watch import read_everything
from schemas.policy import TrainingUpdate
from services.runtime.errors import UserError
from services.runtime.ledger import audit
from tests.e2e.conftest import running, tiny, watched_to_its_end

UPDATES = 8


def updates(records):
    return [r.policy_version for r in records if isinstance(r, TrainingUpdate)]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_live_run_is_copied_and_goes_on_elsewhere(cache, tmp_path):
    settings = tiny(
        tmp_path / "run",
        dispatch={"updates": UPDATES, "group_size": 4, "batch_groups": 2},
        sampler={"engine": "synthetic", "synthetic_min_s": 0.05, "synthetic_max_s": 0.4},
        trainer={"kind": "synthetic", "synthetic_update_s": 0.3},
    )
    place = str(tmp_path / "backup")
    with running(settings) as live:
        live.until(lambda: live.count(TrainingUpdate) >= 3, 120, "three updates")
        counts = backup(tmp_path / "run", place, lambda line: None)
    assert counts.records > 100
    assert counts.objects >= 5
    with pytest.raises(UserError, match="backup already"):
        backup(tmp_path / "run", place, lambda line: None)
    restored = tmp_path / "restored"
    assert restore(place, restored, {}, lambda line: None) == counts
    with readable(RunDir(restored)) as cluster:
        before = read_everything(cluster)
    assert audit(before).balanced
    done = updates(before)
    assert 3 <= len(done) < UPDATES
    assert updates(watched_to_its_end(RunDir(restored))) == list(range(1, UPDATES + 1))


def test_what_is_no_backup_and_where_a_run_stands_already(tmp_path):
    with pytest.raises(UserError, match="no finished backup"):
        restore(str(tmp_path / "nothing"), tmp_path / "run", {}, lambda line: None)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.toml").write_text('run_id = "a"\n')
    with pytest.raises(UserError, match="holds a run already"):
        restore(str(tmp_path / "nothing"), tmp_path / "run", {}, lambda line: None)
    with pytest.raises(UserError, match="holds no run"):
        backup(Path(tmp_path / "none"), str(tmp_path / "b"), lambda line: None)
