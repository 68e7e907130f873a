"""What jails cost: check runs per second on two workers, fresh launches, warm operations, each beside its bare limit.

`python -m tests.bench.sandbox_bench [--json]`. The bare limit is `bwrap --unshare-all` around the same interpreter that
does nothing, started from two threads: no verification that makes a fresh sandbox per check run can be faster.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from services.runtime.jail import tree
from services.runtime.jail.bubblewrap import find_bwrap
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import Limits
from services.runtime.jail.session import Server
from services.runtime.settings import Sandbox, Verifier
from services.sandbox import checks
from services.sandbox import main as sandbox_main
from services.tasks import catalogue
from services.tasks.build import build_catalogue
from services.verifier import main as verifier_main
from services.verifier import trial
from services.verifier.attribution import attribute

WORKERS = 2


class _Counter:
    """Counts the calls of a function over threads."""

    def __init__(self, work: Callable[[int], object]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self.count = 0

    def __call__(self, number: int) -> None:
        self._work(number)
        with self._lock:
            self.count += 1


def _rate(work: Callable[[int], None], seconds: float) -> float:
    """Calls of `work` per second from WORKERS threads."""
    counts = [0] * WORKERS
    end = time.monotonic() + seconds

    def loop(index: int) -> None:
        while time.monotonic() < end:
            work(counts[index] * WORKERS + index)
            counts[index] += 1

    threads = [threading.Thread(target=loop, args=(index,)) for index in range(WORKERS)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - started)


def _cpu_s(host: JailHost) -> float:
    """CPU seconds so far of this process, of the spawner, and of every jail that has ended."""
    fields = Path(f"/proc/{host.spawner_pid}/stat").read_text().rsplit(")", 1)[1].split()
    return time.process_time() + sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _milliseconds(work: Callable[[], object], count: int) -> float:
    """Median wall time of `count` calls."""
    taken = []
    for _ in range(count):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1000


def measure(seconds: float = 5.0) -> dict[str, float]:
    """All figures; ratios are bare limit over ours (1: nothing lost)."""
    bwrap = find_bwrap()
    tasks = build_catalogue(0)
    fixtures = list({fixture.problem: fixture for fixture in tasks.fixtures}.values())
    found: dict[str, float] = {}
    with JailHost(8) as host:
        limits = Limits()
        bare = [
            bwrap,
            "--unshare-all",
            "--as-pid-1",
            "--die-with-parent",
            "--ro-bind",
            str(host.root),
            "/",
            "--",
            tree.PYTHON,
        ]
        bare += ["-I", "-S", "-B", "-c", "pass"]
        ran = _Counter(lambda n: subprocess.run(bare, env={}, check=True))
        found["bare_per_s"] = _rate(ran, seconds)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        found["bare_cpu_ms"] = (usage.ru_utime + usage.ru_stime) / ran.count * 1000

        bounds = verifier_main.bounds(Verifier())

        def verify(number: int) -> None:
            fixture = fixtures[number % len(fixtures)]
            (path,) = fixture.base_tree
            right = {path: catalogue.problem(fixture.problem).source}
            facts = trial.run(host, right, tasks.checks.get(fixture.task_id), number, bounds)
            if attribute(facts) != ("pass", "ok"):
                raise AssertionError(f"{fixture.task_id}: {attribute(facts)}")

        before_s, ran = _cpu_s(host), _Counter(verify)
        found["check_runs_per_s"] = _rate(ran, seconds)
        found["check_run_cpu_ms"] = (_cpu_s(host) - before_s) / ran.count * 1000
        found["bare_over_check_runs"] = found["bare_per_s"] / found["check_runs_per_s"]

        def launch() -> None:
            jail = host.launch(limits)
            Server(jail, limits, 15.0)
            jail.close()

        found["fresh_jail_ms"] = _milliseconds(launch, 40)
        warm_limits = sandbox_main.limits(Sandbox())
        jail = host.launch(warm_limits)
        server = Server(jail, warm_limits, 15.0)
        fixture = fixtures[0]
        asked, calls = checks.program_of(fixture, fixture.base_tree), checks.calls(fixture)
        before, count = jail.cpu_s(), 200
        found["warm_operation_ms"] = _milliseconds(lambda: server.run(asked, calls, 0.1, 5.0), count)
        after = jail.cpu_s()
        if before is not None and after is not None:
            found["warm_operation_cpu_ms"] = (after - before) / count * 1000
        jail.close()
    return found


def main() -> None:
    """Print the figures, as a table or as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    found = measure(given.seconds)
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:26s}{value:10.2f}")


if __name__ == "__main__":
    main()
