"""The look at what the recorder has kept of a run: what is there, what is missing, and whether it can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from infra.local.rundir import RunDir
from infra.local.stack import serving
from services.recorder.main import keyed
from services.recorder.names import Place
from services.recorder.reading import Contradiction, Recorded, look, records
from services.runtime.archive import Restorer, Span
from services.runtime.errors import UserError
from services.runtime.screen import print_table, say
from services.runtime.settings import RunSettings, load
from services.runtime.store import CorruptObject, MissingObject, ObjectStore, open_store


def show_recorded(root: Path, config: Path | None, verify: bool) -> int:
    """Print what is recorded, by partition; 1 when something is missing (or, with `verify`, damaged).

    Raises UserError where there is no run, or nothing recorded of it.
    """
    settings, store = _run(root, config)
    found = _some(store, settings)
    _table(found)
    problems = [f"{place}: {gap} missing" for place, each in found.items() for gap in each.gaps()]
    if verify:
        problems += _damage(store, settings, found)
    for problem in problems:
        say(problem)
    if not problems:
        say("no gaps" + (", every segment holds what its name says" if verify else ""))
    return 1 if problems else 0


def put_back(root: Path, config: Path | None, into: Path) -> int:
    """Make a new run folder whose own broker holds what was recorded, every record at its old offset.

    The folder keeps the run's store. Consumer groups are not recorded: services that are started there read everything
    again from the beginning, which their ids make harmless. Raises UserError for gaps, which no log can have in its
    middle, and for what is damaged.
    """
    settings, store = _run(root, config)
    found = _some(store, settings)
    holes = [f"{place}: {gap}" for place, each in found.items() for gap in each.gaps() if gap.last > (each.first or 0)]
    if holes:
        raise UserError(f"{len(holes)} gaps, the first is {holes[0]}", str(store), "take a backup of what is left")
    run = RunDir(into)
    if run.exists():
        raise UserError("this folder holds a run already", str(into), "choose a new one")
    settings = settings.model_copy(
        update={"run_dir": str(into), "kafka": settings.kafka.model_copy(update={"bootstrap": ""})}
    )
    total = 0
    with run.claimed():
        run.create(settings)
        try:
            with serving(run, settings) as cluster, Restorer(cluster) as restorer:
                for place, each in found.items():
                    span = Span(0 if each.keyed else each.first or 0, (each.last or 0) + 1)
                    total += restorer.partition(*place, span, records(store, settings.run_id, each))
        except (Contradiction, CorruptObject, MissingObject) as e:
            raise UserError(str(e), str(store), "restore that object from a copy of the store") from e
    say(f"put back {total} records; look at them with: rollstream audit {run.quoted}")
    return 0


def _run(root: Path, config: Path | None) -> tuple[RunSettings, ObjectStore]:
    settings = load(config) if config else RunDir(root).settings()
    return settings, open_store(settings.store, read_only=True)


def _some(store: ObjectStore, settings: RunSettings) -> dict[Place, Recorded]:
    found = look(store, settings.run_id, keyed)
    if not found:
        raise UserError(
            f"nothing is recorded of run {settings.run_id!r}", str(store), "start the service: up --service recorder"
        )
    return found


def _table(found: dict[Place, Recorded]) -> None:
    print_table(
        ("topic", "partition", "first", "last", "segments", "bytes", "gaps"),
        (
            (
                place.topic,
                place.partition,
                *("" if offset is None else offset for offset in (each.first, each.last)),
                *(len(each.segments), each.size, len(each.gaps())),
            )
            for place, each in found.items()
        ),
    )


def _damage(store: ObjectStore, settings: RunSettings, found: dict[Place, Recorded]) -> Iterator[str]:
    for place, each in found.items():
        try:
            for _ in records(store, settings.run_id, each):
                pass
        except (Contradiction, CorruptObject, MissingObject) as e:
            yield f"{place}: {e}"
