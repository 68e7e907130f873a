"""The cold start as a process of its own, so that its memory ends with it; speaks JSON lines on standard output."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from infra.local.prepare import adopt, scratch
from services.runtime.settings import load
from services.runtime.store import open_store


def say(record: dict[str, Any]) -> None:
    """One progress record for the parent."""
    print(json.dumps(record, default=str), flush=True)


def main() -> int:
    """Train (or find in the cache) the base policy of a run's configuration; the last line names its folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    options = parser.parse_args()
    settings = load(options.config)

    from services.tasks.taskset import load_public
    from services.trainer.coldstart import REPORT_FILE, coldstart
    from services.trainer.coldstart import digest as coldstart_digest

    public = open_store(settings.store).get(f"tasks/{settings.taskset_digest}/public.json")
    taskset = load_public(public)
    digest = coldstart_digest(settings, taskset).removeprefix("sha256:")
    cached = options.cache / "coldstart" / digest
    fresh = not (cached / REPORT_FILE).exists()
    if fresh:
        folder = scratch(options.cache)
        try:
            found = coldstart(settings, taskset, folder, lambda record: say({"event": "coldstart", **record}))
            # One that the clock cut depends on how busy this machine was: it serves this run and no other.
            home = Path(settings.run_dir) if found.reason == "max_wall_s" else options.cache
            cached = adopt(folder, home, digest)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    report = json.loads((cached / REPORT_FILE).read_text())
    say({"event": "done", "folder": str(cached), "report": {**report, "cached": not fresh}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
