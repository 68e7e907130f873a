"""Entry of every supervised process: dies with its supervisor, then becomes the module it was asked to run."""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

PARENT = "ROLLSTREAM_SUPERVISOR_PID"
# Threads that wait must sleep: a spinning OpenMP barrier takes the cores from the other services of the stack.
ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "OMP_WAIT_POLICY": "PASSIVE"}
_PR_SET_PDEATHSIG = 1


def die_with_supervisor() -> None:
    """Ask the kernel for SIGKILL when the supervisor ends, so that not even kill -9 of it leaves processes behind."""
    supervisor = os.environ.get(PARENT)
    if supervisor is None:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(supervisor):  # it ended between fork and prctl
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """`python -m infra.child MODULE ARGS…`"""
    die_with_supervisor()
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
