"""A busy machine on purpose: processes of our own that take every CPU while check-sets are tried under load."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

# It ends by itself when whoever started it is gone, so that no hog outlives a killed certification.
_HOG = "import os\nwhile os.getppid() == {parent}:\n    for _ in range(10 ** 6):\n        pass\n"


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """`processes` endless loops for as long as the context lasts, at our own priority; all are reaped."""
    command = [sys.executable, "-I", "-S", "-c", _HOG.format(parent=os.getpid())]
    hogs: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(processes):
            hogs.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, env={}, start_new_session=True))
        yield
    finally:
        for hog in hogs:
            hog.kill()
        for hog in hogs:
            hog.wait()


def oversubscribed() -> int:
    """How many busy processes oversubscribe this machine twice."""
    return 2 * len(os.sched_getaffinity(0))
