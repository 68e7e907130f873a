"""A Docker Engine with real networks: bridges and packet filter in a network namespace of its own, gone at the end."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.services.docker_engine import Engine, missing

BRIDGE = "198.18.248.1/24"
POOL = "base=198.18.240.0/21,size=26"
"""Addresses set aside for tests of networks; they exist in the namespace alone."""


@dataclass
class NetworkedEngine(Engine):
    """An engine whose containers have networks as on a user's machine; nothing leads out of its namespace."""

    namespace: str = field(default_factory=lambda: f"rollstream-{uuid.uuid4().hex[:8]}")

    def start(self) -> None:
        """See Engine; makes the namespace first."""
        subprocess.run(["ip", "netns", "add", self.namespace], check=True, capture_output=True)
        self._inside("ip", "link", "set", "lo", "up")
        self._inside("sysctl", "-qw", "net.ipv4.ip_forward=1")
        super().start()

    def stop(self) -> None:
        """See Engine; the bridges go with the namespace."""
        super().stop()
        subprocess.run(["ip", "netns", "del", self.namespace], check=False, capture_output=True)

    def _inside(self, *line: str) -> None:
        subprocess.run([*self._enter(), *line], check=True, capture_output=True)

    def _enter(self) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.namespace}"]

    def _program(self) -> list[str]:
        return [*self._enter(), "dockerd"]

    def _networks(self) -> list[str]:
        return ["--bip", BRIDGE, "--default-address-pool", POOL, "--ip6tables=false"]


@contextlib.contextmanager
def networked_engine(folder: Path) -> Iterator[NetworkedEngine]:
    """An engine for one test. Skips with the reason where none can run."""
    lacking = [name for name in ("ip", "nsenter", "sysctl", "iptables") if shutil.which(name) is None]
    if why := missing() or (f"{', '.join(lacking)}: not installed" if lacking else ""):
        pytest.skip(why)
    engine = NetworkedEngine(folder)
    try:
        try:
            engine.start()
        except (RuntimeError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no Docker Engine with networks: {error}")
        yield engine
    finally:
        engine.stop()
