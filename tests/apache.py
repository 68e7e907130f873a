"""A real Apache Kafka for tests: started from the optional equipment, stopped and removed at the end."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from kafka import KafkaAdminClient

SHIFTS = (0, 100, 200, 300, 400)
"""Client ports start at the base, controllers at +100, the SCRAM listener at +200, TLS at +300 and +400."""
QUICK = """
log.cleaner.backoff.ms=500
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
"""
"""Housekeeping soon enough for a test to wait for it (Kafka's own default is minutes)."""


def free_base(nodes: int) -> int:
    """A base port whose every listener is free now."""
    for _ in range(200):
        base = random.randrange(20_000, 32_000)
        if all(_free(base + shift + n) for shift in SHIFTS for n in range(nodes)):
            return base
    raise RuntimeError("no free ports for a Kafka cluster")


def _free(port: int) -> bool:
    with socket.socket() as sock, contextlib.suppress(OSError):
        sock.bind(("127.0.0.1", port))
        return True
    return False


class Cluster:
    """A running cluster. `bootstrap` is the plain listener, `scram` the one that asks for SCRAM-SHA-256.

    `tls` and `scram_tls` are there when the extra properties open them (see tests/kafka/tls.py).
    """

    def __init__(
        self, equipment: Path, folder: Path, nodes: int, base: int, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._script = equipment / "kafka" / "kafka.sh"
        self._environment = environment
        self.folder = folder
        self.nodes = nodes
        self.bootstrap, _, self.scram, self.tls, self.scram_tls = (
            ",".join(f"127.0.0.1:{base + shift + n}" for n in range(nodes)) for shift in SHIFTS
        )

    def kill(self, node: int, signal: str = "KILL") -> None:
        """Send a signal to a node (from 1)."""
        self._run("kill", str(self.folder), str(node), signal)

    def revive(self, node: int) -> None:
        """Start a killed node again."""
        self._run("node", str(self.folder), str(node))

    def controller(self) -> int:
        """The node that is the active controller now."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            quorum = admin.describe_metadata_quorum()["topics"][0]["partitions"][0]
            return int(quorum["leader_id"])
        finally:
            admin.close()

    def registered(self) -> bool:
        """Whether every node is there for new topics: they answer earlier than that."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            return sum(not b.get("is_fenced") for b in admin.describe_cluster()["brokers"]) == self.nodes
        finally:
            admin.close()

    def whole(self) -> bool:
        """Whether every copy of every partition is in sync: one more node may be killed."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            parts = [p for topic in admin.describe_topics() for p in topic["partitions"]]
            return all(len(p["isr_nodes"]) == len(p["replica_nodes"]) for p in parts)
        finally:
            admin.close()

    def _run(self, *arguments: str) -> None:
        command = [str(self._script), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=60, env=self._environment)


@contextlib.contextmanager
def apache_kafka(
    equipment: Path, folder: Path, nodes: int = 1, scram: bool = False, extra: str = "", heap: str = "320m"
) -> Iterator[Cluster]:
    """A cluster of `nodes` under `folder` (replication min(nodes, 3)); with `scram` also logins and rules.

    `extra`: more properties of every node (@HOST@, @PORT@, @SASL@, … are filled in, see the equipment's script).
    """
    base = free_base(nodes)
    script = equipment / "kafka" / "kafka.sh"
    properties = (equipment / "kafka" / "scram.properties").read_text() if scram else ""
    for name, shift in (("TLS", 300), ("SASLTLS", 400)):
        extra = extra.replace(f"@{name}@", str(base + shift))  # listeners of the first node only
    folder.parent.mkdir(parents=True, exist_ok=True)
    more = folder.with_name(f"{folder.name}.properties")
    more.write_text(f"{properties}\n{extra}\n")
    environment = {**os.environ, "KAFKA_HEAP": heap, "KAFKA_EXTRA": str(more)}
    try:
        subprocess.run(
            [str(script), "start", str(folder), str(nodes), str(base)],
            check=True, capture_output=True, text=True, timeout=110, env=environment,
        )  # fmt: skip
        yield Cluster(equipment, folder, nodes, base, environment)
    finally:
        subprocess.run([str(script), "stop", str(folder)], capture_output=True, timeout=60)
