"""200 verdicts on honest references beside six busy processes, then in a broken sandbox: nothing may fail."""

from __future__ import annotations

import sys
import time
from collections import Counter
from unittest.mock import patch

from services.runtime.jail import tree
from services.runtime.jail.launcher import JailHost
from services.tasks.build import build_catalogue
from services.verifier.certify.load import busy
from tests.services.verifier.live import Live, references

REPETITIONS = 200
HOGS = 6


def measured(host: JailHost, hogs: int, **changes: object) -> tuple[Counter[str], float]:
    """Verdicts by word, and seconds."""
    tasks = build_catalogue(0)
    live, started = Live(host, tasks, **changes), time.monotonic()
    with busy(hogs):
        for number, (fixture, diff) in enumerate(references(tasks, REPETITIONS)):
            live.give(fixture, number, diff)
        return live.settle(), time.monotonic() - started


def main() -> int:
    with JailHost(8) as host:
        loaded, seconds = measured(host, HOGS)
        print(f"{REPETITIONS} honest references, {HOGS} busy processes: {dict(loaded)} in {seconds:.0f} s")
        with patch.object(tree, "WORKER", "/gone.pyc"):
            broken, seconds = measured(host, 0)
        print(f"{REPETITIONS} honest references, broken sandbox: {dict(broken)} in {seconds:.0f} s")
    fine = loaded["pass"] == REPETITIONS and broken["unknown"] == REPETITIONS and not broken["fail"]
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
