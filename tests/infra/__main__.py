"""Every image, and the stack of one machine, for real: on Docker Engines of the tests' own.

python -m tests.infra        what `make test-images` runs; skips with the reason where root or the equipment is absent
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.conftest import SHARED
from tests.infra.compose.test_start import IMAGES
from tests.k8s.building import Builder
from tests.k8s.equipment import SERVERS, why_not
from tests.services.docker_engine import Engine

PROGRAMS = {"dockerd": "docker.io", "debootstrap": "debootstrap", "docker-compose": "docker-compose"}
LIMIT_S = 900


def main() -> int:
    """0 when all passed, or nothing can be started here."""
    if why := why_not(SHARED, PROGRAMS, SERVERS):
        print(f"skipped: {why}")
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="images-", ignore_cleanup_errors=True) as folder:
        builder = Builder(Engine(Path(folder) / "engine"))
        try:
            builder.start()
            builder.finish()
            command = [sys.executable, "-m", "pytest", "--no-header", "-s", "-m", "", "-p", "no:cacheprovider"]
            command += [*(sys.argv[1:] or ["tests/infra/images/test_built.py", "tests/infra/compose/test_start.py"])]
            code = subprocess.run(command, env={**os.environ, IMAGES: builder.engine.url}, timeout=LIMIT_S).returncode
        finally:
            builder.stop()
    print(f"== {'all passed' if code == 0 else 'failed'} on Docker: {time.monotonic() - began:.0f} s", flush=True)
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
