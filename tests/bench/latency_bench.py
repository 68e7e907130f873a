"""From a group's first request to its closing, on the embedded broker and on one node of Apache Kafka, in turns.

Run with `python -m tests.bench.latency_bench`; `--json` prints one JSON object. The whole stack runs on each: real
services, sandboxes and verifications, an engine that answers in a millisecond. One group is under way at a time, so
that what is measured is the way and not the queue. Times are those of the records (one clock: this machine's).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.local.prepare import prepare
from infra.local.rundir import RunDir
from infra.local.stack import Stack
from schemas import topics
from schemas.topics import Topic
from services.runtime.settings import RunSettings, load
from services.runtime.tap import read_all
from tests.apache import apache_kafka
from tests.conftest import SHARED

STAGES: tuple[tuple[str, Topic], ...] = (
    ("trials", topics.ROLLOUT_COMPLETED),
    ("verdicts", topics.VERIFICATION_VERDICT),
    ("closing", topics.GROUP_CLOSED),
)
"""A group has passed a stage when its last record of that topic was written."""
WARM_UP = 10
WANTED = 1.5


@dataclass(frozen=True)
class Way:
    """One group's milliseconds: from the first request to its closing, and from stage to stage."""

    whole: float
    stages: tuple[float, ...]


def settings(root: Path, bootstrap: str, groups: int) -> RunSettings:
    """A run whose trials take no time of their own and whose next group waits for the update on the last one."""
    return load(
        None,
        run_dir=str(root),
        run_id="latency",
        kafka={"bootstrap": bootstrap},
        model={"hidden": 32, "layers": 1, "heads": 2, "feed_forward": 64},
        coldstart={"max_steps": 2, "max_wall_s": 20.0, "threads": 1},
        gate={"min_entropy": 0.0, "min_valid_actions": 0.0, "probe_prompts": 1},
        evaluation={"train_tasks": 0, "heldout_bugs": 0, "heldout_families": 0},
        dispatch={"updates": groups + WARM_UP, "group_size": 4, "batch_groups": 1},
        admission={"max_lag": 0},
        sampler={"engine": "synthetic", "synthetic_min_s": 0.001, "synthetic_max_s": 0.001},
        verifier={"trials": 1, "canary_share": 0.0, "audit_share": 0.0},
        trainer={"kind": "synthetic", "synthetic_update_s": 0.0},
    )


def measure(root: Path, bootstrap: str, groups: int) -> list[Way]:
    """The ways of `groups` groups, after those that warmed the stack up."""
    run = RunDir(root)
    wanted = prepare(settings(root, bootstrap, groups), run, lambda record: None)
    stack = Stack(run, wanted)
    try:
        stack.start()
        deadline = time.monotonic() + 120 + 3 * groups
        while not stack.finished:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the run did not end; restarts: {stack.restarts()}")
            stack.supervisor.check()
            time.sleep(0.1)
        stack.stop_services()
        return ways(stack)[WARM_UP:]
    finally:
        stack.close()


def ways(stack: Stack) -> list[Way]:
    """Every closed group's way, in the order of their requests."""
    begins: dict[str, int] = {}
    for message in read_all(stack.cluster, topics.ROLLOUT_REQUESTED):
        begins[message.key] = min(message.timestamp_ms, begins.get(message.key, message.timestamp_ms))
    passed: dict[str, list[int]] = defaultdict(list)
    for _, topic in STAGES:
        last: dict[str, int] = {}
        for message in read_all(stack.cluster, topic):
            last[message.key] = max(message.timestamp_ms, last.get(message.key, 0))
        for group, at in last.items():
            passed[group].append(at)
    out = []
    for group in sorted(begins, key=lambda each: begins[each]):
        if len(passed[group]) == len(STAGES):
            marks = [begins[group], *passed[group]]
            out.append(Way(marks[-1] - marks[0], tuple(b - a for a, b in itertools.pairwise(marks))))
    return out


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    found = sorted(values)
    return found[min(len(found) - 1, int(share * len(found)))]


@contextlib.contextmanager
def broker(name: str, folder: Path) -> Iterator[str]:
    """A bootstrap address; empty for the embedded broker, which the stack starts by itself."""
    if name == "embedded":
        yield ""
        return
    with apache_kafka(SHARED, folder / "cluster") as cluster:
        yield cluster.bootstrap


def figures(name: str, found: list[Way]) -> dict[str, float]:
    out = {
        f"{name}_groups": float(len(found)),
        f"{name}_p50_ms": quantile([way.whole for way in found], 0.5),
        f"{name}_p99_ms": quantile([way.whole for way in found], 0.99),
    }
    for n, (stage, _) in enumerate(STAGES):
        out[f"{name}_{stage}_p50_ms"] = quantile([way.stages[n] for way in found], 0.5)
    return out


def verdict(numbers: dict[str, float]) -> str:
    """The issue's question in one line."""
    ratio = numbers["kafka_p50_ms"] / numbers["embedded_p50_ms"]
    which = "Kafka no worse than" if ratio <= WANTED else "Kafka WORSE than"
    return (
        f"request to closed group, p50: embedded {numbers['embedded_p50_ms']:.0f} ms, Apache Kafka "
        f"{numbers['kafka_p50_ms']:.0f} ms, ratio {ratio:.2f} ({which} {WANTED} times the embedded broker's); "
        f"p99: {numbers['embedded_p99_ms']:.0f} ms and {numbers['kafka_p99_ms']:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=60, help="of each broker in each round")
    parser.add_argument("--rounds", type=int, default=2, help="embedded and Kafka take turns")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    names = ["embedded"]
    if (SHARED / "kafka" / "kafka.sh").exists() and shutil.which("java"):
        names.append("kafka")
    found: dict[str, list[Way]] = {name: [] for name in names}
    for turn in range(args.rounds):
        for name in names if turn % 2 == 0 else names[::-1]:
            with tempfile.TemporaryDirectory() as folder, broker(name, Path(folder)) as bootstrap:
                ways_now = measure(Path(folder) / "run", bootstrap, args.groups)
            found[name] += ways_now
            median = quantile([way.whole for way in ways_now], 0.5)
            print(f"round {turn + 1}, {name}: {len(ways_now)} groups, p50 {median:.0f} ms", file=sys.stderr, flush=True)
    numbers = {key: value for name in names for key, value in figures(name, found[name]).items()}
    if args.json:
        print(json.dumps(numbers))
        return
    for key, value in numbers.items():
        print(f"{key:28} {value:10.0f}")
    print(verdict(numbers) if "kafka" in names else "Apache Kafka is absent: only the embedded broker was measured")


if __name__ == "__main__":
    main()
