"""A run that is deployed elsewhere, seen from its settings alone: all that a container of it holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from infra.local.rundir import RunDir
from services.runtime.errors import UserError
from services.runtime.prepared import load_prepared, prepared_key
from services.runtime.settings import RunSettings, load
from services.runtime.store import open_store

QUICKSTART = Path("runs/quickstart")


def default_run() -> Path:
    """The run that is looked at when none is named: that of this container's settings, else the quickstart."""
    config = os.environ.get("ROLLSTREAM_CONFIG")
    return Path(config).parent if config else QUICKSTART


def is_deployed(run: RunDir) -> bool:
    """Whether the folder holds settings and no run: `rollstream run` writes more than those before anything else."""
    return run.exists() and not (run.root / "versions.json").exists()


def settings_of(run: RunDir) -> RunSettings:
    """Its settings; a deployed run's with what its preparation found out. Raises UserError when there was none."""
    settings = run.settings()
    if not is_deployed(run) or settings.taskset_digest or not settings.store.url:
        return settings
    prepared = load_prepared(open_store(settings.store, read_only=True), settings.run_id)
    if prepared is None:
        what = f"run {settings.run_id!r} is not prepared"
        raise UserError(
            what, f"{prepared_key(settings.run_id)} in {settings.store.url}", "`rollstream prepare` does that"
        )
    return prepared.complete(settings)


def reached_by(config: Path) -> dict[str, Any]:
    """Sections of the settings in `config` that say where things are: cluster and stores."""
    settings = load(config)
    places = {"kafka": settings.kafka, "store": settings.store, "hidden_store": settings.hidden_store}
    return {name: section.model_dump() for name, section in places.items()}
