"""The cold start as a process of its own, so that its memory ends with it; speaks JSON lines on standard output."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from infra.prepare.coldstart import adopt
from services.runtime.scratch import Scratch
from services.runtime.settings import load
from services.runtime.store import open_store


def say(record: dict[str, Any]) -> None:
    """One progress record for the parent."""
    print(json.dumps(record, default=str), flush=True)


def main() -> int:
    """Train the base policy of a run's configuration and put it into the cache; the last line names its folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True, help="for a result that serves this run alone")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--digest", required=True, help="of the configuration's cold start, which names its folder")
    options = parser.parse_args()
    settings = load(options.config)

    from services.tasks.taskset import load_public
    from services.trainer.coldstart import coldstart
    from services.trainer.coldstart_recipe import REPORT_FILE

    public = open_store(settings.store).get(f"tasks/{settings.taskset_digest}/public.json")
    options.cache.mkdir(parents=True, exist_ok=True)
    with Scratch("coldstart", options.cache) as folder:
        found = coldstart(settings, load_public(public), folder, lambda record: say({"event": "coldstart", **record}))
        # One that the clock cut depends on how busy this machine was: it serves this run and no other.
        home = options.home if found.reason == "max_wall_s" else options.cache
        kept = adopt(folder, home, options.digest)
    report = json.loads((kept / REPORT_FILE).read_text())
    say({"event": "done", "folder": str(kept), "report": {**report, "cached": False}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
