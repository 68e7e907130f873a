"""A real Apache Kafka for tests: started from the optional equipment, stopped and removed at the end."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

NODE_SPAN = 210
"""Client ports start at the base, controllers at +100, the SCRAM listener at +200."""


def free_base(nodes: int) -> int:
    """A base port whose every listener is free now."""
    for _ in range(200):
        base = random.randrange(20_000, 32_000)
        if all(_free(base + shift + n) for shift in (0, 100, 200) for n in range(nodes)):
            return base
    raise RuntimeError("no free ports for a Kafka cluster")


def _free(port: int) -> bool:
    with socket.socket() as sock, contextlib.suppress(OSError):
        sock.bind(("127.0.0.1", port))
        return True
    return False


class Cluster:
    """A running cluster. `bootstrap` is the plain listener, `scram` the one that asks for SCRAM-SHA-256."""

    def __init__(self, equipment: Path, folder: Path, nodes: int, base: int) -> None:
        self._script = equipment / "kafka" / "kafka.sh"
        self.folder = folder
        self.bootstrap = ",".join(f"127.0.0.1:{base + n}" for n in range(nodes))
        self.scram = ",".join(f"127.0.0.1:{base + 200 + n}" for n in range(nodes))

    def kill(self, node: int, signal: str = "KILL") -> None:
        """Send a signal to a node (from 1)."""
        self._run("kill", str(self.folder), str(node), signal)

    def revive(self, node: int) -> None:
        """Start a killed node again."""
        self._run("node", str(self.folder), str(node))

    def _run(self, *arguments: str) -> None:
        subprocess.run([str(self._script), *arguments], check=True, capture_output=True, timeout=60)


@contextlib.contextmanager
def apache_kafka(equipment: Path, folder: Path, nodes: int = 1, scram: bool = False) -> Iterator[Cluster]:
    """A cluster of `nodes` under `folder` (replication min(nodes, 3)); with `scram` also logins and rules."""
    base = free_base(nodes)
    script = equipment / "kafka" / "kafka.sh"
    environment = {**os.environ, "KAFKA_HEAP": "320m"}
    if scram:
        environment["KAFKA_EXTRA"] = str(equipment / "kafka" / "scram.properties")
    try:
        subprocess.run(
            [str(script), "start", str(folder), str(nodes), str(base)],
            check=True, capture_output=True, text=True, timeout=110, env=environment,
        )  # fmt: skip
        yield Cluster(equipment, folder, nodes, base)
    finally:
        subprocess.run([str(script), "stop", str(folder)], capture_output=True, timeout=60)
