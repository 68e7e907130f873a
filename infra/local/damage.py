"""What a run's log should hold and does not, by whoever has read, kept or recorded more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from infra.local.rundir import RunDir
from schemas.access import group_of, principals
from services.recorder.main import keyed
from services.recorder.names import Place
from services.recorder.reading import look
from services.runtime import archive
from services.runtime.archive import Span
from services.runtime.checkpoints import latest_manifest
from services.runtime.cluster import Cluster, said
from services.runtime.errors import UserError
from services.runtime.settings import RunSettings
from services.runtime.store import StoreUnavailable, open_store

INSIDE = "a later segment"
NAMED = 3
"""How many ranges one message names before it counts the rest."""


@dataclass(frozen=True, order=True)
class Missing:
    """Offsets first..end (end not included) that a partition's log must have held, and who says so."""

    place: Place
    first: int
    end: int
    said_by: str

    def __str__(self) -> str:
        count = self.end - self.first
        records = "1 record is" if count == 1 else f"{count} records are"
        what = f"{records} missing ({self.first}..{self.end - 1})"
        if self.said_by == INSIDE:
            return f"{self.place} has a hole in its middle: {what}"
        return f"{self.place} ends at offset {self.first}, but {self.said_by} reaches {self.end}: {what}"


def missing(settings: RunSettings, cluster: Cluster, data: Path | None) -> list[Missing]:
    """Every range that a log no longer holds at its end, by commits, newest checkpoint, recording and set-aside files.

    `data` is the embedded broker's folder, None for another cluster. Those who say are asked before the logs, so that
    a live run, whose logs grow, is never called damaged. Raises UserError, StoreUnavailable.
    """
    wanted: dict[Place, tuple[int, str]] = {}

    def reaches(topic: str, partition: int, end: int, who: str) -> None:
        place = Place(topic, partition)
        wanted[place] = max(wanted.get(place, (0, "")), (end, who))

    names = {group_of(settings.run_id, service): service for service in principals()}
    for group, offsets in archive.committed(cluster, list(names)).items():
        for (topic, partition), end in offsets.items():
            reaches(topic, partition, end, f"what {names[group]} has read")
    store = open_store(settings.store, read_only=True)
    manifest = latest_manifest(store, settings.run_id)
    if manifest is not None:
        for topic, parts in manifest.meta.consumed.items():
            for number, end in parts.items():
                reaches(topic, int(number), end, f"the checkpoint of version {manifest.version}")
    for place, recorded in look(store, settings.run_id, keyed).items():
        reaches(*place, 0 if recorded.last is None else recorded.last + 1, "the recording")
    inside: list[Missing] = []
    if data:
        from infra.broker import aside  # not in the images of services, which have no broker of their own

        for (topic, partition), folder in aside.partitions(data).items():
            end = max(aside.read(folder), default=-1) + 1
            reaches(topic, partition, end, "what was cut off behind damage")
        holes = [hole for hole in aside.holes(data) if not keyed(hole[0])]
        inside = [Missing(Place(topic, partition), first, end, INSIDE) for topic, partition, first, end in holes]
    ends = archive.spans(cluster, sorted({place.topic for place in wanted}))
    short = [
        Missing(place, there, end, who)
        for place, (end, who) in wanted.items()
        if end > (there := ends.get((place.topic, place.partition), Span(0, 0)).end)
    ]
    return sorted([*short, *inside])


def require_whole(run: RunDir, settings: RunSettings, cluster: Cluster) -> None:
    """UserError with the ranges that are missing: going on would write other records under their offsets."""
    try:
        found = missing(settings, cluster, None if settings.kafka.bootstrap else run.broker)
    except StoreUnavailable:  # the services wait for it, and say so; the audit compares again
        return
    if found:
        more = f"; and {len(found) - NAMED} more partitions" if len(found) > NAMED else ""
        raise UserError(
            "; ".join(str(each) for each in found[:NAMED]) + more,
            said(cluster) if settings.kafka.bootstrap else str(run.broker),
            f"`rollstream repair {run.quoted}` puts back what the recording holds; nothing was started",
        )
