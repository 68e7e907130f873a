"""One service as it is deployed: health from the first second, the run's preparation, then the service itself."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from pathlib import Path

from services.runtime import lifecycle
from services.runtime.errors import UserError
from services.runtime.prepared import completed
from services.runtime.process import ServiceProcess, Stopped
from services.runtime.settings import load, overruled


def known_services() -> list[str]:
    """Every service that can be run."""
    return sorted(path.parent.name for path in Path(__file__).parents[1].glob("*/main.py"))


def run_alone(
    service: str,
    config: Path | None,
    *,
    ready_file: Path | None,
    health_host: str,
    health_port: int,
    stay: bool,
) -> int:
    """Run a service on the main thread until SIGTERM (or the end of its work); returns the exit code.

    Raises UserError for what can be said before there is a process to look at: settings, an unknown name, a port.
    """
    known = known_services()
    if service not in known:
        raise UserError(f"there is no service {service!r}", do=f"one of: {', '.join(known)}")
    settings = load(config)
    if not settings.kafka.bootstrap:
        raise UserError(
            "kafka.bootstrap is empty: a service needs the address of a cluster",
            str(config) if config else "environment",
            "set ROLLSTREAM_KAFKA__BOOTSTRAP, or use `rollstream run`, which starts the embedded broker",
        )
    process = ServiceProcess(
        service, settings, ready_file=ready_file, health_host=health_host, health_port=health_port, stay=stay
    )
    remembered = _crash_folder()
    process.crash_file = process.crash_file or remembered / f"{settings.run_id}.{service}.json"
    process.watch_signals()
    process.open()
    try:
        process.starting()
        for line in overruled(config):
            process.log.info("setting", given_twice=line)
        process.settings = settings = completed(process)
        code = importlib.import_module(f"services.{service}.main").main(settings, process)
    except Stopped:
        process.log.info("stopped before it had begun")
        code = lifecycle.EXIT_OK
    except UserError as e:
        process.log.error("stopped", message=str(e))
        code = lifecycle.EXIT_USER
    process.close()
    with contextlib.suppress(OSError):
        remembered.rmdir()  # unless there is something to remember
    return int(code)


def _crash_folder() -> Path:
    """It outlives the process: a container's temporary folder is there again after a restart. Made by a crash."""
    return Path(tempfile.gettempdir()) / f"rollstream-crashes-{os.geteuid()}"
