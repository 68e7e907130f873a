"""How light the stack is: start, memory, idle CPU, and how quickly the command line answers (run by hand)."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from infra.local.stack import SERVICES
from schemas.rollout import RolloutCompleted, RolloutRequested
from services.runtime.settings import load
from tests.e2e.conftest import running

IDLE_S = 20.0


def tree() -> list[psutil.Process]:
    """All processes below this one."""
    return psutil.Process().children(recursive=True)


def resident_mb() -> float:
    """Sum of resident memory of the stack; pages shared between processes count once per process."""
    return sum(p.memory_info().rss for p in tree()) / 2**20


def cpu_seconds() -> float:
    return sum(t.user + t.system for t in (p.cpu_times() for p in tree()))


def settings(root: Path, **sections):
    return load(None, run_dir=str(root), coldstart={"max_steps": 2}, gate={"min_valid_actions": 0.0}, **sections)


def main() -> None:
    for arguments in (["--help"], ["tap", "--help"]):
        times = []
        for _ in range(5):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-m", "services.cli", *arguments], stdout=subprocess.DEVNULL, check=True)
            times.append(time.perf_counter() - started)
        print(f"rollstream {' '.join(arguments)}: {sorted(times)[2]:.2f} s median (wanted: under 0.5)")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ROLLSTREAM_CACHE"] = str(Path(folder) / "cache")
        with running(settings(Path(folder) / "warm"), tuple(s for s in SERVICES if s != "dispatch")) as live:
            time.sleep(15)  # version 0 is gated and loaded first
            before = cpu_seconds()
            time.sleep(IDLE_S)
            share = (cpu_seconds() - before) / IDLE_S
            print(f"idle: {share:.1%} of one core (wanted: under 10 %), {resident_mb():.0f} MB resident")
            for name, process in live.stack.supervisor.processes.items():
                if process.pid is not None:
                    print(f"  {name:10} {psutil.Process(process.pid).memory_info().rss / 2**20:6.0f} MB")
        started = time.time()
        with running(settings(Path(folder) / "run")) as live:
            live.until(lambda: live.count(RolloutRequested) > 0, 60, "the first request")
            live.until(lambda: live.count(RolloutCompleted) > 0, 60, "the first trial")
            first = min(r.started_ms for r in live.watcher.records if isinstance(r, RolloutCompleted)) / 1000
            print(f"cached cold start to first sampled token: at most {first - started:.1f} s (wanted: under 15)")
            peak = 0.0
            for _ in range(30):
                live.stack.supervisor.check()
                peak = max(peak, resident_mb())
                time.sleep(1)
            print(f"busy: {peak:.0f} MB resident at most (wanted: under 4096)")


if __name__ == "__main__":
    main()
