"""What jails cost: check runs per second, fresh launches, warm operations, resets, and the slots that each kind fills.

`python -m tests.bench.sandbox_bench [--json]`. The bare limit is `bwrap --unshare-all` around the same interpreter that
does nothing, from as many threads as a verifier has workers: no verification with a fresh sandbox per check run can be
faster.
"""

from __future__ import annotations

import argparse
import functools
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
from services.runtime.jail.backend import PLAIN, Backend, Options
from services.runtime.jail.bubblewrap import find_bwrap
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import Limits
from services.runtime.jail.session import Program, Server
from services.runtime.settings import Sandbox, Verifier
from services.sandbox import checks
from services.sandbox import main as sandbox_main
from services.sandbox.reset import Warm
from services.tasks import catalogue
from services.tasks.build import build_catalogue
from services.verifier import main as verifier_main
from services.verifier import trial
from services.verifier.attribution import attribute
from tests.bench import containers

WORKERS = Verifier().workers
TREES = (20, 200, 2000)


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


def _check_runs(host: JailHost, bwrap: str, seconds: float) -> dict[str, float]:
    """Bare interpreters in bubblewrap, and whole check runs, each per second."""
    tasks = build_catalogue(0)
    fixtures = list({fixture.problem: fixture for fixture in tasks.fixtures}.values())
    found: dict[str, float] = {}
    bare = [bwrap, "--unshare-all", "--as-pid-1", "--die-with-parent", "--ro-bind", str(tree.staged()), "/", "--"]
    bare += [tree.PYTHON, "-I", "-S", "-B", "-c", "pass"]
    ran = _Counter(lambda n: subprocess.run(bare, env={}, check=True))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found["bare_per_s"] = _rate(ran, seconds)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = usage.ru_utime + usage.ru_stime - used.ru_utime - used.ru_stime
    found["bare_cpu_ms"] = used_s / ran.count * 1000
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
    return found


def _start(host: Backend, limits: Limits, options: Options = PLAIN) -> None:
    jail = host.launch(limits, options)
    try:
        Server(jail, limits, 60.0)
    finally:
        jail.close()


def _warm_operations(host: JailHost) -> dict[str, float]:
    fixture = build_catalogue(0).fixtures[0]
    limits, count = sandbox_main.limits(Sandbox()), 200
    jail = host.launch(limits)
    server = Server(jail, limits, 15.0)
    asked, calls = checks.program_of(fixture, fixture.base_tree), checks.calls(fixture)
    before = jail.cpu_s()
    found = {"warm_operation_ms": _milliseconds(lambda: server.run(asked, calls, 0.1, 5.0), count)}
    after = jail.cpu_s()
    if before is not None and after is not None:
        found["warm_operation_cpu_ms"] = (after - before) / count * 1000
    jail.close()
    return found


def _tree(size: int) -> dict[str, str]:
    """`size` files of 20 lines, 20 to a folder."""
    return {f"package{n // 20}/module{n}.py": f"VALUE_{n} = {n}\n" * 20 for n in range(size)}


def _resets(host: JailHost) -> dict[str, float]:
    """Fresh jails that show a tree, and the proved reset of one whose run changed every tenth file and left others."""
    found: dict[str, float] = {}
    limits = sandbox_main.limits(Sandbox())
    for size in TREES:
        files = _tree(size)
        options = Options(files=files, files_digest=f"bench-{size}")
        _start(host, limits, options)  # lays it out
        found[f"fresh_overlay_{size}_files_ms"] = _milliseconds(functools.partial(_start, host, limits, options), 20)
        warm = Warm(Server(host.launch(limits, options), limits, 60.0), files, f"bench-{size}")
        source = (
            f"import os\ndef f(x):\n    for path in {sorted(files)[::10]!r}:\n"
            "        open('/tmp/tree/' + path, 'a').write('changed')\n"
            "    os.mkdir('/tmp/tree/more'); open('/tmp/tree/more/x', 'w').write('x'); open('/tmp/y', 'w').write('y')\n"
        )
        taken = []
        for _ in range(40 if size <= 200 else 10):
            warm.server.run(Program({"m.py": source}, "m", "f"), [(1,)], 10.0, 60.0)
            warm.runs += 1
            started = time.perf_counter()
            outcome = warm.reset()
            taken.append(time.perf_counter() - started)
            if outcome != "clean":
                raise AssertionError(f"reset of {size} files: {outcome}, {warm.problem}")
        found[f"reset_{size}_files_ms"] = statistics.median(taken) * 1000
        warm.close()
    return found


def _cold_container_ms() -> float | None:
    """Start, boot and end of a container; None where no Docker Engine can run."""
    seconds = containers.cold_container_seconds(with_end=True)
    return None if seconds is None else seconds * 1000


def capacity(reset_s: float, slots: int = 256) -> tuple[float, float]:
    """(seconds of a cycle, episodes per hour) of golden.md's fleet: 20 decisions of 120 ms model and 80 ms tool, 0.5 s
    of assessment, and the reset of the slot: slots / cycle * 3600."""
    cycle_s = 20 * (0.120 + 0.080) + 0.5 + reset_s
    return cycle_s, slots / cycle_s * 3600


def measure(seconds: float = 5.0) -> dict[str, float]:
    """All figures; `bare_over_check_runs` is bare limit over ours (1: nothing lost)."""
    with JailHost(8) as host:
        found = _check_runs(host, find_bwrap(), seconds)
        limits = Limits()
        found["fresh_jail_ms"] = _milliseconds(lambda: _start(host, limits), 40)
        found |= _warm_operations(host)
        if host.shows_files:
            found |= _resets(host)
    cold_ms = _cold_container_ms()
    if cold_ms is not None:
        found["cold_container_ms"] = cold_ms
    return found


def _capacities(found: dict[str, float]) -> list[str]:
    """256 slots with each measured way of making a slot ready, beside golden.md's own two."""
    kinds = {
        "golden.md, 3.5 s": 3500.0,
        "golden.md, 15 ms": 15.0,
        "cold container": found.get("cold_container_ms"),
        "fresh bubblewrap": found["fresh_jail_ms"],
        **{f"fresh, {n} files shown": found.get(f"fresh_overlay_{n}_files_ms") for n in TREES},
        **{f"proved reset, {n} files": found.get(f"reset_{n}_files_ms") for n in TREES},
    }
    base = found.get("cold_container_ms", 3500.0)
    lines = [
        "256 slots                    cycle s   episodes/h   over " + ("cold container" if base != 3500.0 else "3.5 s")
    ]
    for name, ready_ms in kinds.items():
        if ready_ms is not None:
            cycle_s, episodes = capacity(ready_ms / 1000)
            lines.append(f"{name:26s}{cycle_s:10.3f}{episodes:13,.0f}{episodes / capacity(base / 1000)[1]:7.2f}")
    return lines


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
        print(f"{name:30s}{value:10.2f}")
    print("\n" + "\n".join(_capacities(found)))


if __name__ == "__main__":
    main()
