"""The README's learning result: `python -m tests.bench.seeds [RUN_DIR …]`.

Pools finished runs of several seeds: by task set, pass@1 before and after, the difference per seed, and the pooled
difference with a paired 95 % interval (bootstrap over tasks; a task measured under several seeds counts once, with the
mean of its differences). Without arguments it first runs seeds 0, 1 and 2 into runs/seed-N: half an hour on two cores.
"""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from infra.local.rundir import RunDir
from infra.local.stack import readable
from infra.local.watch import read_everything
from schemas.policy import EvaluationResult
from services.monitor.paired import paired_difference

SEEDS = (0, 1, 2)


def make_runs() -> list[Path]:
    """One run per seed, each in its own folder; a finished one is not run again."""
    folders = []
    for seed in SEEDS:
        folder = Path("runs") / f"seed-{seed}"
        command = [sys.executable, "-m", "services.cli", "run", "--run-dir", str(folder), "--seed", str(seed)]
        subprocess.run(command, check=True)
        folders.append(folder)
    return folders


def evaluations(folder: Path) -> dict[str, tuple[EvaluationResult, EvaluationResult]]:
    """Task set -> its first and its last evaluation."""
    with readable(RunDir(folder)) as bootstrap:
        found = [r for r in read_everything(bootstrap) if isinstance(r, EvaluationResult)]
    by_set: dict[str, list[EvaluationResult]] = defaultdict(list)
    for result in sorted(found, key=lambda r: r.policy_version):
        by_set[result.task_set].append(result)
    return {name: (results[0], results[-1]) for name, results in by_set.items()}


def rates(result: EvaluationResult) -> dict[str, float]:
    """pass@1 of every task that was sampled."""
    counts = zip(result.task_ids, result.task_samples, result.task_passes, strict=True)
    return {task: passes / samples for task, samples, passes in counts if samples}


def pooled(seeds: list[dict[str, float]]) -> dict[str, float]:
    """Task -> its mean over the seeds that measured it."""
    values: dict[str, list[float]] = defaultdict(list)
    for one in seeds:
        for task, value in one.items():
            values[task].append(value)
    return {task: sum(v) / len(v) for task, v in values.items()}


def main() -> int:
    folders = [Path(a) for a in sys.argv[1:]] or make_runs()
    runs = [evaluations(folder) for folder in folders]
    for name in runs[0]:
        before = [rates(run[name][0]) for run in runs]
        after = [rates(run[name][1]) for run in runs]
        print(name)
        for folder, b, a in zip(folders, before, after, strict=True):
            one = paired_difference(b, a)
            start, end = sum(b.values()) / len(b), sum(a.values()) / len(a)
            print(
                f"  {folder.name:10} {start:.3f} -> {end:.3f}  {one.difference:+.3f} [{one.low:+.3f}, {one.high:+.3f}]"
            )
        all_of = paired_difference(pooled(before), pooled(after))
        print(
            f"  pooled     {all_of.difference:+.3f} [{all_of.low:+.3f}, {all_of.high:+.3f}] over {all_of.tasks} tasks"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
