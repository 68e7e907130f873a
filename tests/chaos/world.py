"""The whole stack behind Toxiproxy: its settings, its servers, and every process with a clock that can be set."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.local.rundir import RunDir, free_port
from infra.local.stack import SERVICES, Stack
from infra.local.supervisor import RestartPolicy
from services.runtime.settings import Kafka, RunSettings, load
from tests.apache import Cluster, free_base
from tests.chaos.clocks import ClockedSupervisor, Clocks
from tests.chaos.faults import BROKER, SCALED, STORE
from tests.chaos.toxiproxy import Toxiproxy

CLOSURE_DEADLINE_S = 240.0
BUCKET = "chaos"
PASS_RATE = 0.5
"""Share of the trials whose candidate is right: which ones follows from their names, so verdicts can be checked."""


@dataclass(frozen=True)
class Shape:
    """How large the run is. Three batches of groups are under way at once; `session_s` is that of group members."""

    instances: int = 2
    group_size: int = 8
    batch_groups: int = 24
    session_s: float = 6.0


def settings(root: Path, shape: Shape) -> RunSettings:
    """An endless run without a model whose trials are quick and many."""
    base: dict[str, Any] = {
        "run_dir": str(root),
        "run_id": "chaos",
        "model": {"hidden": 32, "layers": 1, "heads": 2, "feed_forward": 64},
        "coldstart": {"max_steps": 2, "max_wall_s": 20.0, "threads": 1},
        "gate": {"min_entropy": 0.0, "min_valid_actions": 0.0, "probe_prompts": 2},
        "evaluation": {"train_tasks": 0, "heldout_bugs": 0, "heldout_families": 0},
        "kafka": {"session_timeout_ms": int(1000 * shape.session_s)},
        "runtime": {"linger_ms": 5},  # throughput over latency: half a thousand trials are under way
        "dispatch": {"updates": 1_000_000, "group_size": shape.group_size, "batch_groups": shape.batch_groups},
        "admission": {"max_lag": 2},
        "sampler": {
            "engine": "synthetic", "synthetic_min_s": 0.05, "synthetic_max_s": 0.4, "concurrency": 512,
            "synthetic_pass_rate": PASS_RATE, "operation_deadline_s": 20.0, "attempts": 6,
        },
        "sandbox": {"workers": 2},
        "verifier": {"workers": 2, "trials": 1, "canary_share": 0.0, "audit_share": 0.0},
        "trainer": {"kind": "synthetic", "synthetic_update_s": 0.05},
        "closure": {"deadline_s": CLOSURE_DEADLINE_S},
        "scale": dict.fromkeys(SCALED, shape.instances),
    }  # fmt: skip
    return load(None, **base)


class S3:
    """A real S3 server that can be killed and comes back on the same data."""

    def __init__(self, equipment: Path, folder: Path) -> None:
        self._script, self._folder, self._port = str(equipment / "s3" / "s3.sh"), str(folder), free_port()
        self.start()

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        subprocess.run([self._script, "start", self._folder, str(self._port)], check=True, stdout=subprocess.DEVNULL)

    def stop(self, how: str = "KILL") -> None:
        subprocess.run([self._script, "stop", self._folder, how], check=False)

    @property
    def pid(self) -> int:
        return int((Path(self._folder) / "s3.pid").read_text())


@contextlib.contextmanager
def kafka_behind(equipment: Path, folder: Path, proxy: Toxiproxy) -> Iterator[tuple[Cluster, list[str], str]]:
    """Three nodes that advertise their proxies; yields the cluster, its links and the bootstrap addresses."""
    base = free_base(3)
    links = [f"{BROKER}-{n}" for n in range(3)]
    addresses = [proxy.link(name, base + 200 + n, base + n) for n, name in enumerate(links)]
    extra = folder / "advertise.properties"
    folder.mkdir(parents=True)
    extra.write_text("advertised.listeners=PLAINTEXT://@HOST@:@SASL@\n")
    script = str(equipment / "kafka" / "kafka.sh")
    # Three virtual machines beside the stack: compiled once, and not again for speed that a few minutes do not repay.
    environment = {**os.environ, "KAFKA_HEAP": "320m", "KAFKA_TIER": "1", "KAFKA_EXTRA": str(extra)}
    try:
        subprocess.run(
            [script, "start", str(folder / "nodes"), "3", str(base)], check=True, capture_output=True, timeout=500,
            env=environment,
        )  # fmt: skip
        cluster = Cluster(equipment, folder / "nodes", 3, base, environment)
        deadline = time.monotonic() + 120
        while not cluster.registered() and time.monotonic() < deadline:
            time.sleep(1.0)
        yield cluster, links, ",".join(addresses)
    finally:
        subprocess.run([script, "stop", str(folder / "nodes")], capture_output=True, timeout=60)


def store_behind(equipment: Path, folder: Path, proxy: Toxiproxy, run: RunSettings) -> tuple[S3, RunSettings]:
    """A real S3 server behind its link, with the bucket of the run, and settings that point there."""
    from minio import Minio

    s3 = S3(equipment, folder)
    address = proxy.link(STORE, free_port(), s3.port)
    Minio(address, "root", "rootsecret", secure=False, region="us-east-1").make_bucket(BUCKET)
    section = run.store.model_copy(
        update={
            "url": f"s3://{BUCKET}/run", "endpoint": address, "access_key": "root", "secret_key": "rootsecret",
            "secure": False,
        }
    )  # fmt: skip
    return s3, run.model_copy(update={"store": section})


def make_stack(
    run: RunSettings, proxy: Toxiproxy, bootstrap: str, clocks: Clocks
) -> tuple[Stack, dict[str, list[str]]]:
    """The stack over `bootstrap`, or over its own broker behind a link when that is empty."""
    folder = RunDir(Path(run.run_dir))
    if bootstrap:
        kafka = run.kafka.model_copy(update={"bootstrap": bootstrap, "replication": 3})
        run = run.model_copy(update={"kafka": Kafka(**kafka.model_dump())})
    stack = Stack(folder, run, SERVICES)
    # Chaos kills more often than a broken service dies: the limit must not stop the stack.
    stack.supervisor = ClockedSupervisor(RestartPolicy(limit=10_000, longest_s=1.0), clocks.environment)
    links: dict[str, list[str]] = {}
    if not bootstrap:
        known = folder.root / "port"
        known.write_text(str(free_port()))
        stack.advertise = proxy.link(BROKER, free_port(), int(known.read_text()))
        links[BROKER] = [BROKER]
    return stack, links
