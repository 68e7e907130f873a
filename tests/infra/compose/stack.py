"""Drives docker compose over the stack's file: whichever compose there is, with a test's own names and images."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "infra" / "compose"


def command() -> list[str] | None:
    """The compose plugin of docker, else docker-compose; None where neither is installed."""
    docker = shutil.which("docker")
    if docker and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0:
        return [docker, "compose"]
    found = shutil.which("docker-compose")
    return [found] if found else None


def environment(
    *, secrets: Path, run: Path | None = None, tag: str = "dev", registry: str = "", **more: str
) -> dict[str, str]:
    """The variables that the file asks for."""
    wanted = {"ROLLSTREAM_SECRETS": str(secrets), "ROLLSTREAM_TAG": tag, "ROLLSTREAM_REGISTRY": registry, **more}
    if run:
        wanted["ROLLSTREAM_RUN"] = str(run)
    return {**os.environ, **wanted}


class Stack:
    """A stack on one engine, under a project name of its own; nothing of it outlives `down`."""

    def __init__(self, compose: list[str], engine: str, project: str, variables: Mapping[str, str]) -> None:
        self._compose = [*compose, "--project-name", project]
        self._engine = engine
        self._variables = {**variables, "DOCKER_HOST": engine}

    def run(self, *arguments: str, timeout_s: float = 120, check: bool = True) -> subprocess.CompletedProcess[str]:
        """One compose command. Raises AssertionError with what it said when it fails and `check`."""
        done = subprocess.run(
            [*self._compose, *arguments], cwd=FOLDER, env=self._variables, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip
        assert done.returncode == 0 or not check, f"{arguments}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done

    def docker(self, *arguments: str, timeout_s: float = 60) -> str:
        """One docker command on the same engine."""
        line = ["docker", "--host", self._engine, *arguments]
        return subprocess.run(line, check=True, capture_output=True, text=True, timeout=timeout_s).stdout

    def containers(self, service: str) -> list[str]:
        """Ids of a service's containers, ended ones too."""
        return self.run("ps", "-q", service).stdout.split()

    def health(self, service: str) -> list[str]:
        """What the probes of its containers say: starting, healthy, unhealthy; or how it ended."""
        states = [
            json.loads(self.docker("inspect", "--format", "{{json .State}}", c)) for c in self.containers(service)
        ]
        return [
            state["Health"]["Status"] if state["Status"] == "running" and "Health" in state
            else f"{state['Status']} {state['ExitCode']}"
            for state in states
        ]  # fmt: skip

    def down(self) -> None:
        """Remove containers, networks and volumes."""
        self.run("down", "--volumes", "--timeout", "20", timeout_s=180, check=False)
