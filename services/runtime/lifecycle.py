"""How a service process starts and ends: exit codes, the ready file, and a watchdog over the shutdown."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

from services.runtime.address import host_and_port
from services.runtime.logs import Log

EXIT_OK = 0
EXIT_CRASH = 1
"""Something unexpected; a restart may mend it and loses nothing."""
EXIT_USER = 2
"""A setting or the surroundings must be mended first."""
EXIT_FAIL_STOP = 3
"""Stopped on purpose so as not to drop or reorder records; a restart does not help, a person must look."""


def watchdog(seconds: float, log: Log) -> threading.Timer:
    """End the process if its shutdown takes longer than all of its own deadlines together."""

    def give_up() -> None:
        log.error("the shutdown did not end within its deadlines; leaving hard", seconds=seconds)
        os._exit(EXIT_CRASH)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    return timer


def write_ready_file(path: Path, port: int, over: bool = False) -> None:
    """`{"pid": …, "health_port": …, "over": …}`, whole or not at all: whoever started the process finds its endpoints
    there, and at the end whether the work itself was over (a process that was only asked to end leaves with 0 too)."""
    temporary = path.with_name(path.name + ".new")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.write_text(json.dumps({"pid": os.getpid(), "health_port": port, "over": over}))
    os.replace(temporary, path)


def reachable(bootstrap: str, timeout_s: float = 1.0) -> bool:
    """Whether any bootstrap address accepts a connection; asked before a client is made, since a client that cannot
    connect leaves its thread behind. Raises UserError for what is no address: waiting would never end."""
    parts = [part for part in bootstrap.split(",") if part.strip()]
    for host, port in [host_and_port(part, "kafka.bootstrap") for part in parts]:
        try:
            with socket.create_connection((host, port), timeout_s):
                return True
        except OSError:
            continue
    return False
