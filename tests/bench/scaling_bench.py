"""How closure and admission scale: a backlog of verdicts taken in by one instance of each, then by two of each.

Run with `python -m tests.bench.scaling_bench`; `--json` prints one JSON object. Instance k of both services is pinned
to core k; broker and sender are processes of their own, not pinned. On a machine with few cores the broker takes its
share of the second pair's core, so two figures are given: verdicts per second of the wall clock, which is what this
machine shows, and verdicts per second of the services' own CPU, which says whether an instance costs more because
there is another one. Where that does not fall, each pair with a core to itself doubles the rate.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from infra.broker.testing import running_broker
from tests.apache import apache_kafka
from tests.bench import closure_bench
from tests.bench.closure_bench import SIZE, Process, prepare, wait_for_decisions
from tests.conftest import SHARED

SERVICES = ("closure", "admission")
PARTITIONS = 16
"""Enough that two instances get about the same."""
WANTED = 1.7


def brokers_cpu_s(pids: list[int]) -> float:
    """CPU seconds of the broker's processes so far."""
    return sum(t.user + t.system for t in (psutil.Process(pid).cpu_times() for pid in pids))


def measure(bootstrap: str, folder: Path, instances: int, groups: int, broker: list[int]) -> dict[str, float]:
    """Rates of a backlog that all instances meet at once; they have caught up and sleep while it is written."""
    prepare(bootstrap, folder, PARTITIONS)
    cores = sorted(os.sched_getaffinity(0))
    services = [
        Process(name, folder, cores[number % len(cores)], f"{name}-{number + 1}")
        for number in range(instances)
        for name in SERVICES
    ]
    try:
        for service in services:
            service.wait_ready()
        for name in SERVICES:
            shared(folder, name, instances)
        for service in services:
            service.child.send_signal(signal.SIGSTOP)
        command = [sys.executable, "-m", closure_bench.__name__, "--send", bootstrap, str(groups)]
        subprocess.run(command, check=True, timeout=300)
        cpu, theirs, start = sum(s.cpu_s for s in services), brokers_cpu_s(broker), time.perf_counter()
        for service in services:
            service.child.send_signal(signal.SIGCONT)
        wait_for_decisions(bootstrap, groups, 600.0)
        wall, spent = time.perf_counter() - start, sum(s.cpu_s for s in services) - cpu
        verdicts = groups * SIZE
        return {
            f"x{instances}_verdicts_per_s": verdicts / wall,
            f"x{instances}_verdicts_per_cpu_s": verdicts / spent,
            f"x{instances}_cores_used_by_services": spent / wall,
            f"x{instances}_cores_used_by_broker": (brokers_cpu_s(broker) - theirs) / wall,
        }
    finally:
        for service in services:
            service.child.send_signal(signal.SIGCONT)
            service.stop()


def shared(folder: Path, name: str, instances: int, seconds: float = 60.0) -> None:
    """Wait until every instance of a service owns its share of the partitions."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        logs = [(folder / f"{name}-{number + 1}.log").read_text() for number in range(instances)]
        owned = [[json.loads(line)["owned"] for line in log.splitlines() if '"owned"' in line] for log in logs]
        if all(owned) and max(each[-1] for each in owned) * instances <= 1.5 * sum(each[-1] for each in owned):
            return
        time.sleep(0.1)
    raise TimeoutError(f"the instances of {name} did not share the partitions")


def one(kind: str, instances: int, groups: int) -> dict[str, float]:
    """One measurement on a fresh broker."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if kind == "kafka":
            with apache_kafka(SHARED, folder / "cluster") as cluster:
                pids = [int(path.read_text()) for path in cluster.folder.glob("node*.pid")]
                return measure(cluster.bootstrap, folder, instances, groups, pids)
        with running_broker(folder / "broker") as broker:
            return measure(broker.bootstrap, folder, instances, groups, [broker.pid])


def verdict(kind: str, cores: int, found: dict[str, float]) -> str:
    """The issue's question in one line."""
    wall = found["x2_verdicts_per_s"] / found["x1_verdicts_per_s"]
    cpu = found["x2_verdicts_per_cpu_s"] / found["x1_verdicts_per_cpu_s"]
    return (
        f"closure + admission on {kind}, {cores} cores: one instance of each {found['x1_verdicts_per_s']:.0f} "
        f"verdicts/s, two {found['x2_verdicts_per_s']:.0f}: {wall:.2f}x on this machine; an instance's second of CPU "
        f"takes in {cpu:.2f} times as many beside another one, "
        f"so {2 * cpu:.2f}x where each has a core (wanted: {WANTED}x)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=2500, help=f"of {SIZE} verdicts each")
    parser.add_argument("--rounds", type=int, default=2, help="in turns; the best of each counts")
    parser.add_argument("--broker", choices=["kafka", "embedded", "both"], default="both")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    kinds = ["kafka", "embedded"] if args.broker == "both" else [args.broker]
    if not (SHARED / "kafka" / "kafka.sh").exists() or not shutil.which("java"):
        kinds = ["embedded"]
        print("Apache Kafka is absent: only the embedded broker feeds", file=sys.stderr)
    cores = len(os.sched_getaffinity(0))
    everything: dict[str, dict[str, float]] = {}
    for kind in kinds:
        best: dict[int, dict[str, float]] = {}
        for _ in range(args.rounds):
            for instances in (1, 2):
                found = one(kind, instances, args.groups)
                rate = f"x{instances}_verdicts_per_s"
                if instances not in best or found[rate] > best[instances][rate]:
                    best[instances] = found
        everything[kind] = best[1] | best[2]
    if args.json:
        print(json.dumps({"cores": cores, **everything}))
        return
    for kind, found in everything.items():
        for name, value in found.items():
            print(f"{kind:9} {name:32} {value:10.2f}")
        print(verdict(kind, cores, found))


if __name__ == "__main__":
    main()
