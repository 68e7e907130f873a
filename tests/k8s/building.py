"""The images under test, built in a Docker Engine of the tests' own and handed to the node without any registry."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conftest import SHARED
from tests.k8s.cluster import Cluster
from tests.k8s.progress import say
from tests.services.docker_engine import Engine

ROOT = Path(__file__).parents[2]
SERVERS = ("rollstream-kafka:test", "rollstream-s3:test")
NOW, NEXT = "dev", "next"
"""Tags: what is deployed first, and what it is rolled to, a build of another revision."""
_BUILD_S = 480


def image(service: str, tag: str) -> str:
    """The name of a service's image."""
    return f"rollstream-{service}:{tag}"


class Builder:
    """Builds everything in a thread of its own; `finish` waits for it. `stop` ends the engine, finished or not.

    Images of `services` are built a second time, from another revision.
    """

    def __init__(self, engine: Engine, services: Iterable[str] = ()) -> None:
        self.engine, self.services = engine, tuple(services)
        self.seconds: dict[str, float] = {}
        self._failure: BaseException | None = None
        self._delivery: threading.Thread | None = None
        self._end = threading.Lock()
        self._steps: set[subprocess.Popen[str]] = set()
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="images", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _work(self) -> None:
        try:
            self.engine.start()
            images = ROOT / "infra" / "images"
            self._run("base image", images / "base.sh")
            servers = ROOT / "tests" / "k8s" / "images" / "build.sh"
            with ThreadPoolExecutor(2) as both:
                steps = [
                    both.submit(self._run, "wheels", images / "wheels.sh"),
                    both.submit(self._run, "images of Kafka and S3", servers),
                ]
            for step in steps:
                step.result()
            self._run("images of all services", images / "build.sh", "--tag", NOW)
            if self.services:
                self._run("the next images", images / "build.sh", "--tag", NEXT, *self.services, REVISION="next")
        except BaseException as failure:  # told by finish, in the thread of the test
            self._failure = failure

    def _run(self, what: str, *command: Path | str, **environment: str) -> None:
        began = time.monotonic()
        say(f"building: {what}")
        given = {"DOCKER_HOST": self.engine.url, "SHARED": str(SHARED), **environment}
        step = subprocess.Popen(
            [str(word) for word in command], cwd=ROOT, env={**os.environ, **given}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self._steps.add(step)
        said, _ = step.communicate(timeout=_BUILD_S)
        self.seconds[what] = time.monotonic() - began
        if self._stopped:
            raise RuntimeError("the build was ended")
        if step.returncode:
            raise RuntimeError(f"{what} could not be built:\n{said[-4000:]}")
        say(f"built: {what} in {self.seconds[what]:.0f} s")
        for line in said.splitlines():
            if line.startswith("rollstream-"):
                say(f"  {line}")

    def finish(self) -> None:
        """Wait until all is built. Raises what the build raised."""
        while self._thread.is_alive():
            self._thread.join(1)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End steps under way, and the engine with everything in it. Safe to repeat."""
        self._stopped = True
        for step in self._steps:
            if step.poll() is None:
                os.killpg(step.pid, 15)
        for thread in (self._thread, self._delivery):
            if thread is not None and thread.ident is not None:
                thread.join(20)
        with self._end:
            self.engine.stop()

    def deliver(self, cluster: Cluster, names: Iterable[str]) -> None:
        """Begin to load these images into the node as soon as all are built; `delivered` waits for it."""

        def work() -> None:
            try:
                self.finish()
                began = time.monotonic()
                self.hand_over(cluster, names)
                say(f"loaded the images into the node in {time.monotonic() - began:.0f} s")
            except BaseException as failure:  # told by delivered, in the thread of the test
                self._failure = self._failure or failure

        self._delivery = threading.Thread(target=work, name="delivery", daemon=True)
        self._delivery.start()

    def delivered(self) -> None:
        """Wait until all is in the node, which ends the engine. Raises what building or loading raised."""
        assert self._delivery is not None
        while self._delivery.is_alive():
            self._delivery.join(1)
        self.finish()
        threading.Thread(target=self.stop, name="end of the engine").start()  # gigabytes to remove, meanwhile

    def hand_over(self, cluster: Cluster, names: Iterable[str]) -> None:
        """Load images into the node. Layers that they share travel once."""
        line = ["docker", "--host", self.engine.url, "save", *names]
        with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as archive:
            try:
                cluster.load(archive)
            finally:
                archive.kill()
