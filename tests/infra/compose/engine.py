"""A Docker Engine with real networks: bridges and packet filter in a network namespace of its own, gone at the end."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.services.docker_engine import Engine, missing

BRIDGE = "198.18.248.1/24"
POOL = "base=198.18.240.0/21,size=26"
"""Addresses set aside for tests of networks; they exist in the namespace alone."""
OUTSIDE, OUTSIDE_PORT = "203.0.113.1", 7
"""A machine beyond the engine's, which answers whoever has a way to it."""
_NEAR = "203.0.113.2"
_LISTEN = f"""
import socket
with socket.create_server(("{OUTSIDE}", {OUTSIDE_PORT})) as server:
    print("listening", flush=True)
    while True:
        server.accept()[0].close()
"""


@dataclass
class NetworkedEngine(Engine):
    """An engine whose containers have networks as on a user's machine, and a machine beyond it that answers."""

    namespace: str = field(default_factory=lambda: f"rollstream-{uuid.uuid4().hex[:8]}")
    _listener: subprocess.Popen[str] | None = field(default=None, repr=False)

    def start(self) -> None:
        """See Engine; makes the namespaces first."""
        beyond = f"{self.namespace}-out"
        for name in (self.namespace, beyond):
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", self.namespace, "link", "add", "out", "type", "veth", "peer", "in", "netns", beyond)
        for name, end, address in ((self.namespace, "out", _NEAR), (beyond, "in", OUTSIDE)):
            _run("ip", "-n", name, "addr", "add", f"{address}/30", "dev", end)
            _run("ip", "-n", name, "link", "set", end, "up")
        _run("ip", "-n", beyond, "route", "add", "default", "via", _NEAR)
        _run("ip", "-n", self.namespace, "route", "add", "default", "via", OUTSIDE)
        _run(*self._enter(), "sysctl", "-qw", "net.ipv4.ip_forward=1")
        self._listener = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{beyond}", sys.executable, "-c", _LISTEN], stdout=subprocess.PIPE, text=True
        )
        assert self._listener.stdout is not None
        assert self._listener.stdout.readline() == "listening\n"
        super().start()

    def stop(self) -> None:
        """See Engine; bridges and links go with the namespaces."""
        super().stop()
        if self._listener is not None:
            self._listener.kill()
            self._listener.wait()
        for name in (self.namespace, f"{self.namespace}-out"):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _enter(self) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.namespace}"]

    def _program(self) -> list[str]:
        return [*self._enter(), "dockerd"]

    def _networks(self) -> list[str]:
        return ["--bip", BRIDGE, "--default-address-pool", POOL, "--ip6tables=false"]


def _run(*line: str) -> None:
    subprocess.run(line, check=True, capture_output=True)


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
