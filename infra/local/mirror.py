"""A finished run's log, served to whoever looks at it from a folder of links: nothing in the run's folder is touched.

Starting a broker writes (its epoch, its lock, what recovery cuts). Here it writes into a temporary folder in which the
segments are links to the run's own files, and those it opens for reading alone. So a folder that is somebody else's,
on a read-only disk or damaged can be looked at, and looking changes none.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from infra.local.rundir import RunDir, free_port
from infra.local.supervisor import ProcessSpec, Supervisor
from services.runtime.errors import UserError
from services.runtime.scratch import Scratch

_NEVER_MS = 10**9


@contextlib.contextmanager
def served(run: RunDir) -> Iterator[str]:
    """Address of a broker that serves the log of `run` while the look lasts. Raises UserError."""
    with _folder() as folder:
        data = folder / "broker"
        try:
            _link(run.broker, data)
        except OSError as e:
            raise UserError(
                f"the run's log cannot be read: {e.strerror or e}",
                str(e.filename or run.broker),
                "ask its owner for the right to read it, or look at a copy",
            ) from e
        ready = folder / "ready"
        arguments = ["--data", str(data), "--port", str(free_port()), "--ready-file", str(ready)]
        arguments += ["--housekeeping-ms", str(_NEVER_MS)]
        spec = ProcessSpec("broker", "infra.broker", arguments, ready, folder / "broker.log")
        supervisor = Supervisor()
        try:
            process = supervisor.start(spec)
            supervisor.wait_ready(["broker"], timeout_s=60)
            yield str((process.ready() or {})["address"])
        finally:
            supervisor.stop([["broker"]])


def _folder() -> Scratch:
    try:
        return Scratch("look")
    except OSError as e:
        raise UserError(
            f"no temporary folder can be made: {e.strerror or e}", tempfile.gettempdir(), "set TMPDIR to another place"
        ) from e


def _link(source: Path, target: Path) -> None:
    """`target` becomes a folder like `source`: segments as links, the small files beside them copied."""
    from infra.broker import aside  # not in the images of services, which have no broker of their own

    target.mkdir()
    with os.scandir(source) as entries:
        for entry in entries:
            beside = target / entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name != aside.FOLDER:
                    _link(Path(entry.path), beside)
            elif entry.is_file() and entry.name.endswith(".log"):
                os.close(os.open(entry.path, os.O_RDONLY))  # that it can be read is found out here
                beside.symlink_to(Path(entry.path).absolute())
            elif entry.is_file() and entry.name != "lock":
                shutil.copyfile(entry.path, beside)
