"""The stack for one machine, started for real on an engine with networks: a short run to its balanced audit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.infra.compose.engine import OUTSIDE, OUTSIDE_PORT, NetworkedEngine, networked_engine
from tests.infra.compose.stack import FOLDER, Stack, command, environment

IMAGES = "ROLLSTREAM_TEST_IMAGES"
"""Environment variable: address of a Docker Engine that holds the images under test."""
TAG = os.environ.get("ROLLSTREAM_TEST_TAG", "dev")
SERVICES = ("dispatch", "sampler", "sandbox", "verifier", "closure", "admission", "trainer", "gate", "recorder")
SERVERS = {"KAFKA_IMAGE": "rollstream-kafka:test", "S3_IMAGE": "rollstream-s3:test"}
NAMES = (*(f"rollstream-{name}:{TAG}" for name in (*SERVICES, "prepare")), *SERVERS.values())
SHORT_RUN = """
[model]
hidden = 32
layers = 1
heads = 2
feed_forward = 64

[coldstart]
max_steps = 0

[dispatch]
updates = 8
group_size = 4
batch_groups = 6

[sampler]
engine = "synthetic"
synthetic_min_s = 0.1
synthetic_max_s = 1.0
concurrency = 64

[sandbox]
workers = 1
pool = 2

[verifier]
workers = 1
trials = 1

[trainer]
kind = "synthetic"

[evaluation]
train_tasks = 4
heldout_bugs = 2
heldout_families = 2
samples = 1
"""

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]


def until(condition: Callable[[], bool], timeout_s: float, what: str, evidence: Callable[[], str]) -> None:
    """Wait, or fail with what could be seen."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not happen within {timeout_s:g} s\n{evidence()}")
        time.sleep(0.5)


def hand_over(source: str, engine: NetworkedEngine) -> None:
    """Copy the images from one engine to the other; layers that they share travel once."""
    there = subprocess.run(
        ["docker", "--host", source, "image", "inspect", "--format", "{{.Id}}", *NAMES], capture_output=True, text=True
    )
    if there.returncode:
        pytest.skip(f"the engine at {source} lacks images: {there.stderr.strip()}")
    with subprocess.Popen(["docker", "--host", source, "save", *NAMES], stdout=subprocess.PIPE) as saved:
        try:
            subprocess.run(
                ["docker", "--host", engine.url, "load", "--quiet"], stdin=saved.stdout, check=True,
                capture_output=True, timeout=300,
            )  # fmt: skip
        finally:
            saved.kill()


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """The stack, not started yet, on an engine of its own; gone at the end with everything in it."""
    if (source := os.environ.get(IMAGES)) is None:
        pytest.skip(f"needs images: {IMAGES}=unix:///var/run/docker.sock names an engine that holds them")
    if (compose := command()) is None:
        pytest.skip("neither the compose plugin of docker nor docker-compose is installed")
    folder = Path(tempfile.mkdtemp(prefix="rs-compose-"))  # sockets have short names
    try:
        secrets = folder / "secrets"
        secrets.mkdir(mode=0o700)
        for name in ("store", "hidden-store"):
            (secrets / name).write_text(f"secret-of-{name}\n")
            (secrets / name).chmod(0o444)
        run = folder / "run.toml"
        run.write_text((FOLDER / "run.toml").read_text() + SHORT_RUN)
        with networked_engine(folder / "engine") as engine:
            hand_over(source, engine)
            made = Stack(compose, engine.url, "rstest", environment(secrets=secrets, run=run, tag=TAG, **SERVERS))
            try:
                yield made
            finally:
                made.down()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def evidence(stack: Stack) -> str:
    """What its containers say."""
    return stack.run("ps", check=False).stdout + stack.run("logs", "--tail=15", check=False).stdout[-12_000:]


def test_everything_gets_ready(stack):
    began = time.monotonic()
    up = stack.run("up", "--detach", "--no-color", timeout_s=400, check=False)
    assert up.returncode == 0, f"{up.stderr}\n{evidence(stack)}"

    def all_ready() -> bool:
        return all(stack.health(name) == ["healthy"] for name in SERVICES if name != "dispatch")

    until(all_ready, 120, "every service healthy", lambda: evidence(stack))
    assert stack.health("prepare") == ["exited 0"]
    assert stack.health("disks") == ["exited 0"]
    assert stack.health("dispatch")[0] in ("healthy", "starting", "exited 0")
    print(f"\nfrom `up` to every service ready: {time.monotonic() - began:.0f} s")


REACH = f"""
import socket
hosts = (("kafka", 9092), ("store", 7070), ("hidden-store", 7070), ("trainer", 8080), ("{OUTSIDE}", {OUTSIDE_PORT}))
for host, port in hosts:
    try:
        socket.create_connection((host, port), 3).close()
        print(host)
    except OSError:
        pass
"""


@pytest.mark.parametrize(
    ("service", "reached"),
    [
        ("sandbox", {"kafka", "store"}),
        ("verifier", {"kafka", "store", "hidden-store"}),
        ("gate", {"kafka", "store", "trainer"}),
    ],
)
def test_nobody_reaches_more_than_it_may(stack, service, reached):
    found = stack.run("exec", "-T", service, "python", "-c", REACH).stdout
    assert set(found.split()) == reached


def test_the_machine_beyond_answers_whoever_has_a_way_out(stack):
    """Else the test above would prove nothing: a container on a network that is not internal gets through."""
    image = f"rollstream-gate:{TAG}"
    said = stack.docker("run", "--rm", "--network", "bridge", "--entrypoint", "python", image, "-c", REACH)
    assert said.split() == [OUTSIDE]


def test_a_service_scales_and_one_that_is_killed_comes_back(stack):
    stack.run("up", "--detach", "--no-color", "--no-recreate", "--no-deps", "--scale", "verifier=2", "verifier")
    victim = stack.containers("sampler")[0]
    os.kill(int(stack.docker("inspect", "--format", "{{.State.Pid}}", victim)), signal.SIGKILL)

    def back() -> bool:
        restarts = int(stack.docker("inspect", "--format", "{{.RestartCount}}", victim))
        return restarts == 1 and stack.health("sampler") == ["healthy"] and stack.health("verifier") == ["healthy"] * 2

    until(back, 90, "two verifiers and the sampler again", lambda: evidence(stack))


def test_the_run_ends_and_its_audit_balances(stack):
    until(lambda: stack.health("dispatch") == ["exited 0"], 240, "the end of the run", lambda: evidence(stack))
    said = stack.run("run", "--rm", "-T", "rollstream", "audit", check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    print(f"\n{said.stdout}")
    updates = stack.run(
        "run", "--rm", "-T", "rollstream", "tap", "training.update", "--from", "earliest",
        "--json", "--limit", "8",
    )  # fmt: skip
    assert len([json.loads(line) for line in updates.stdout.splitlines() if line.startswith("{")]) == 8


def test_a_second_up_changes_nothing(stack):
    """Preparation is repeated without harm; what runs goes on."""
    before = stack.containers("gate")
    stack.run("up", "--detach", "--no-color", "--scale", "verifier=2", timeout_s=240)
    assert stack.containers("gate") == before
    assert stack.health("prepare") == ["exited 0"]


def test_every_service_drains_and_leaves_by_itself(stack):
    began = time.monotonic()
    stack.run("stop", timeout_s=180)
    print(f"\neverything stopped within {time.monotonic() - began:.0f} s")
    for name in SERVICES:
        for state in stack.health(name):
            assert state == "exited 0", f"{name}: {state}\n{evidence(stack)}"
