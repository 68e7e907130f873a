"""The look at what the recorder has kept of a run: what is there, what is missing, and whether it can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from infra.local.rundir import RunDir
from services.recorder.main import keyed
from services.recorder.names import Place
from services.recorder.reading import Contradiction, Recorded, look, records
from services.runtime.errors import UserError
from services.runtime.settings import RunSettings, load
from services.runtime.store import CorruptObject, MissingObject, ObjectStore, open_store


def show_recorded(root: Path, config: Path | None, verify: bool) -> int:
    """Print what is recorded, by partition; 1 when something is missing (or, with `verify`, damaged).

    Raises UserError where there is no run, or nothing recorded of it.
    """
    settings = load(config) if config else RunDir(root).settings()
    store = open_store(settings.store)
    found = look(store, settings.run_id, keyed)
    if not found:
        raise UserError(
            f"nothing is recorded of run {settings.run_id!r}", str(store), "start the service: up --service recorder"
        )
    _table(found)
    problems = [f"{place}: {gap} missing" for place, each in found.items() for gap in each.gaps()]
    if verify:
        problems += _damage(store, settings, found)
    for problem in problems:
        print(problem)
    if not problems:
        print("no gaps" + (", every segment holds what its name says" if verify else ""))
    return 1 if problems else 0


def _table(found: dict[Place, Recorded]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("topic", "partition", "first", "last", "segments", "bytes", "gaps")
    for place, each in found.items():
        counts = (len(each.segments), each.size, len(each.gaps()))
        ends = ("" if offset is None else str(offset) for offset in (each.first, each.last))
        table.add_row(place.topic, str(place.partition), *ends, *(str(number) for number in counts))
    Console().print(table)


def _damage(store: ObjectStore, settings: RunSettings, found: dict[Place, Recorded]) -> Iterator[str]:
    for place, each in found.items():
        try:
            for _ in records(store, settings.run_id, each):
                pass
        except (Contradiction, CorruptObject, MissingObject) as e:
            yield f"{place}: {e}"
