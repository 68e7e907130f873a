"""Trials per hour of synchronous and asynchronous training with heavy-tailed trials (run by hand, a few minutes).

Same code, same synthetic engine (trials of 0.2 s to 16.8 s), only `admission.max_lag` differs: 0 waits for every group
of a batch before the next may start, 2 lets the stragglers overlap with later batches.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from schemas.group import GroupAdmission
from schemas.policy import TrainingUpdate
from schemas.rollout import RolloutCompleted
from tests.e2e.conftest import running, tiny

UPDATES = 8
GROUPS, SIZE = 4, 4


def measure(root: Path, max_lag: int) -> float:
    """Trained trials per hour between the first request and the last update."""
    settings = tiny(
        root / f"lag{max_lag}",
        admission={"max_lag": max_lag},
        dispatch={"updates": UPDATES, "group_size": SIZE, "batch_groups": GROUPS},
        sampler={"engine": "synthetic", "concurrency": 256},
        trainer={"kind": "synthetic", "synthetic_update_s": 1.0},
        evaluation={"train_tasks": 0, "heldout_bugs": 0, "heldout_families": 0},
    )
    with running(settings) as live:
        began = time.monotonic()
        while not live.stack.finished:
            live.stack.supervisor.check()
            time.sleep(0.1)
            if int(time.monotonic() - began) % 10 == 0:
                print(f"\r  max_lag={max_lag}: update {live.count(TrainingUpdate)}/{UPDATES}", end="", flush=True)
        live.watcher.settle()
        records = live.watcher.records
    updates = [r for r in records if isinstance(r, TrainingUpdate)]
    completed = [r for r in records if isinstance(r, RolloutCompleted)]
    excluded = sum(1 for r in records if isinstance(r, GroupAdmission) and r.decision == "excluded")
    seconds = (max(u.finished_ms for u in updates) - min(c.requested_ms for c in completed)) / 1000
    rate = sum(u.sequences for u in updates) / seconds * 3600
    print(f"\r  max_lag={max_lag}: {len(updates)} updates in {seconds:.1f} s, {excluded} out: {rate:,.0f} trials/h")
    return rate


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ROLLSTREAM_CACHE"] = str(Path(folder) / "cache")
        synchronous = measure(Path(folder), 0)
        asynchronous = measure(Path(folder), 2)
    ratio = asynchronous / synchronous
    print(f"asynchronous / synchronous: {ratio:.2f}x (wanted: at least 2.5x)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
