"""Everything that must hold on a real Apache Kafka: contract suite, runtime suite, whole runs, a short chaos.

python -m tests.kafka        what `make test-kafka` runs; skips with the reason where Java or the distribution is absent
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.apache import QUICK, apache_kafka
from tests.conftest import SHARED
from tests.kafka.conftest import WANTED

RUNTIME = ("archive", "full_rebalance", "loop", "own_outputs", "process", "tap")
"""Tests of the runtime that talk to a broker; each empties the cluster, so nothing else may run on it meanwhile."""
CHAOS_S = 40
FAILED = 1
"""pytest's exit code for failed tests, and for nothing else."""


def pytest(*arguments: str, **environment: str) -> bool:
    """Run pytest in a process of its own, and what failed once more, as `make test` does; whether all passed."""
    with tempfile.TemporaryDirectory(prefix="pytest-") as cache:
        command = [sys.executable, "-m", "pytest", "--no-header", "-o", f"cache_dir={cache}", *arguments]
        code = subprocess.run(command, env={**os.environ, **environment}, check=False).returncode
        if code == FAILED:
            print("== the failures above once more", flush=True)
            command += ["--last-failed", "--last-failed-no-failures", "none"]
            code = subprocess.run(command, env={**os.environ, **environment}, check=False).returncode
    return code == 0


def suites() -> bool:
    """The suites that take any cluster, one after the other on one node."""
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder, apache_kafka(
        SHARED, Path(folder) / "cluster", extra=QUICK
    ) as cluster:  # fmt: skip
        address = {"KAFKA_BOOTSTRAP": cluster.bootstrap}
        contract = pytest("tests/contract/broker", **address)
        runtime = pytest(*(f"tests/services/runtime/test_{name}.py" for name in RUNTIME), **address)
        return contract and runtime


def runs() -> bool:
    """Whole runs on clusters of their own."""
    return pytest("tests/kafka", **{WANTED: "1"})


def chaos() -> bool:
    """A short storm over every service, three nodes of Kafka and the links to them."""
    command = [sys.executable, "-m", "tests.chaos", "--kafka", "--minutes", str(CHAOS_S / 60), "--seed", "20"]
    return subprocess.run([*command, "--local-store"], check=False).returncode == 0


def main() -> int:
    """0 when all passed, or nothing could be started here."""
    if shutil.which("java") is None:
        print("skipped: java is absent, Apache Kafka cannot be started")
        return 0
    if not (SHARED / "kafka" / "kafka.sh").exists():
        print(f"skipped: the distribution of Apache Kafka is absent: {SHARED / 'kafka'}")
        return 0
    failed = []
    for part in (suites, runs, chaos):
        began = time.monotonic()
        print(f"== {part.__name__}: {(part.__doc__ or '').strip()}", flush=True)
        if not part():
            failed.append(part.__name__)
        print(f"== {part.__name__}: {time.monotonic() - began:.0f} s", flush=True)
    print("failed: " + ", ".join(failed) if failed else "all passed on Apache Kafka")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
