"""Everything that must hold on a real Kubernetes: images, manifests, and a run through rollouts, deletions and scaling.

python -m tests.k8s        what `make test-k8s` runs; skips with the reason where root or the equipment is absent
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.conftest import SHARED
from tests.k8s.cluster import Cluster
from tests.k8s.conftest import CLUSTER, ENGINE, WANTED
from tests.k8s.equipment import why_not
from tests.services.docker_engine import Engine

LIMIT_S = 1800
"""Twice what it takes, images included: then it is ended, and what it started with it."""


def main() -> int:
    """0 when all passed, or nothing can be started here."""
    if why := why_not(SHARED):
        print(f"skipped: {why}")
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="k8s-", ignore_cleanup_errors=True) as folder:
        try:
            code = tests(folder)
        finally:  # however pytest ended
            for left in Engine(Path(folder, ENGINE)), Cluster(SHARED / "kube" / "kube.sh", Path(folder, CLUSTER)):
                left.stop()
    print(f"== {'all passed' if code == 0 else 'failed'} on Kubernetes: {time.monotonic() - began:.0f} s", flush=True)
    return 1 if code else 0


def tests(folder: str) -> int:
    """pytest's exit code, in a process of its own that is ended when it takes too long."""
    command = [sys.executable, "-m", "pytest", "--no-header", "-s", "--timeout", str(LIMIT_S), "--maxfail", "3"]
    command += ["-p", "no:cacheprovider", *(sys.argv[1:] or ["tests/k8s"])]
    child = subprocess.Popen(command, env={**os.environ, WANTED: folder})
    # Ctrl-C reaches pytest too: it ends what it started, and this process waits for that.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGINT))
    try:
        return child.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        print(f"== not done within {LIMIT_S} s: ending it", flush=True)
        child.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(120)
    child.kill()
    return child.wait() or 1


if __name__ == "__main__":
    sys.exit(main())
