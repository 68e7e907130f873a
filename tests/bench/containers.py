"""What a cold container costs: from the request to the worker's first word, on an engine that answers."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from services.runtime.errors import UserError
from services.runtime.jail.docker.host import DockerHost
from services.runtime.jail.limits import Limits
from services.runtime.jail.session import Server
from services.runtime.settings import Isolation
from tests.services.docker_engine import Engine, missing


@contextlib.contextmanager
def _engine() -> Iterator[str]:
    """Address of an engine: the one that DOCKER_HOST names, else a private one. Raises RuntimeError without any."""
    if os.environ.get("DOCKER_HOST"):
        yield os.environ["DOCKER_HOST"]
        return
    if why := missing():
        raise RuntimeError(why)
    with tempfile.TemporaryDirectory(prefix="engine-", ignore_cleanup_errors=True) as folder:
        engine = Engine(Path(folder) / "e")
        try:
            engine.start()
            yield engine.url
        finally:
            engine.stop()


def cold_container_seconds(starts: int = 10, with_end: bool = False) -> float | None:
    """Median wall seconds from `launch` to the boot handshake of a fresh container, or until it is removed again.

    None where no engine can run.
    """
    taken = []
    try:
        with _engine() as url, DockerHost(Isolation(backend="docker", docker_url=url), 1) as host:
            for _ in range(starts + 1):
                started = time.perf_counter()
                jail = host.launch(Limits())
                Server(jail, Limits(), 60.0)
                if with_end:
                    jail.close()
                taken.append(time.perf_counter() - started)
                jail.close()
    except (RuntimeError, UserError) as error:
        print(f"no cold container: {error}", file=sys.stderr)
        return None
    return statistics.median(taken[1:])  # the first one warms the engine's caches


if __name__ == "__main__":
    print(f"cold container to first answer: {cold_container_seconds()} s")
    print(f"cold container from start to end: {cold_container_seconds(with_end=True)} s")
