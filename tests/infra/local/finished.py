"""A run's folder as it lies there after its end, made from records; and the command line as a person calls it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from kafka.admin import KafkaAdminClient, NewTopic

from infra.broker.testing import running_broker
from infra.local.rundir import RunDir
from schemas.record import Record
from schemas.topics import ALL, dead_letter
from services.runtime.settings import load
from services.runtime.store import open_store
from tests.services.monitor.conftest import write

ROOT = Path(__file__).parents[3]


def finished_run(root: Path, records: Iterable[Record], run_id: str = "demo") -> Path:
    """The folder of a run that wrote these records and ended."""
    settings = load(None, run_dir=str(root), run_id=run_id, store={"url": f"file://{root / 'store'}"})
    RunDir(root).create(settings)
    open_store(settings.store)
    with running_broker(root / "broker") as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        names = {t.name: t.partitions(2) for t in ALL} | {d: 1 for t in ALL if (d := dead_letter(t))}
        admin.create_topics([NewTopic(n, num_partitions=names[n], replication_factor=1) for n in sorted(names)])
        admin.close()
        write(broker.bootstrap, list(records))
    (root / "broker.ready").unlink(missing_ok=True)
    return root


def rollstream(
    *arguments: object, before: Sequence[str] = (), stdout: int | IO[bytes] = subprocess.PIPE
) -> subprocess.CompletedProcess[bytes]:
    """The command's exit code and outputs, as bytes; `before` stands before it on its command line."""
    command = [*before, sys.executable, "-m", "services.cli", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, timeout=60
    )


def tree(root: Path) -> dict[str, tuple[int, int, int, str]]:
    """Everything below a folder: mode, size, time of the last change, digest of the content."""
    found = {}
    for path in sorted([root, *root.rglob("*")]):
        at = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (at.st_mode, at.st_size, at.st_mtime_ns, content)
    return found
