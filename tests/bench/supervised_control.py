"""What as much wall-clock of more supervised training gives: `python -m tests.bench.supervised_control RUN_DIR`.

Goes on from the run's own cold start for as long as its RL took (both with the whole machine), then measures the
result on the run's own evaluation tasks through the same sampler, sandbox and verifier.
"""

import sys
import tempfile
from pathlib import Path

from infra.local.run import run as run_stack
from infra.local.rundir import RunDir
from infra.local.stack import read_json, readable
from infra.local.watch import read_everything
from infra.prepare.coldstart import cache_folder
from schemas.policy import EvaluationResult, TrainingUpdate
from schemas.rollout import RolloutRequested
from services.runtime.store import open_store


def rl_seconds(records) -> float:
    """From the first training request to the last update."""
    first = min(r.requested_ms for r in records if isinstance(r, RolloutRequested) and r.split == "train")
    return (max(r.finished_ms for r in records if isinstance(r, TrainingUpdate)) - first) / 1000


def results(records, version: int | None = None) -> dict[str, float]:
    """pass@1 by task set, of the given or the newest version."""
    found = [r for r in records if isinstance(r, EvaluationResult)]
    wanted = max(r.policy_version for r in found) if version is None else version
    return {r.task_set: r.pass_at_1 for r in found if r.policy_version == wanted}


def read(folder: Path):
    with readable(RunDir(folder)) as bootstrap:
        return read_everything(bootstrap)


def main() -> int:
    root = Path(sys.argv[1])
    settings, records = RunDir(root).settings(), read(root)
    seconds = rl_seconds(records)

    from services.tasks.taskset import load_public
    from services.trainer.coldstart import continue_supervised

    report = read_json(RunDir(root).preparation)["coldstart"]
    start = cache_folder() / "coldstart" / str(report["digest"]).removeprefix("sha256:")
    tasks = load_public(open_store(settings.store).get(f"tasks/{settings.taskset_digest}/public.json"))
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "policy"
        print(f"continuing supervised training for {seconds:.0f} s", flush=True)
        more = continue_supervised(settings, tasks, start, seconds, out)
        overrides = {
            "seed": settings.seed,
            "model": {"base": str(out)},
            "coldstart": {"max_steps": 0},
            "dispatch": {"updates": 0},
            "evaluation": settings.evaluation.model_dump(),
        }
        run_stack(Path(scratch) / "run", None, overrides)
        control = results(read(Path(scratch) / "run"))
    before, after = results(records, 0), results(records)
    print(
        f"{'task set':18} {'start':>7} {'RL':>7} {'supervised':>11}   (RL and more supervision: {seconds:.0f} s each)"
    )
    for name in before:
        print(f"{name:18} {before[name]:7.3f} {after[name]:7.3f} {control[name]:11.3f}")
    print(f"supervised: {more.steps} steps, {more.traces} traces")
    return 0


if __name__ == "__main__":
    sys.exit(main())
