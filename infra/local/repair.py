"""`rollstream repair`: puts back what a log has lost, offset by offset, and says what nobody holds."""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.local.damage import NAMED, Missing, missing
from infra.local.deployed import settings_of
from infra.local.rundir import RunDir
from infra.local.stack import serving
from schemas.access import group_of, principals
from services.recorder.main import keyed
from services.recorder.names import Segment
from services.recorder.reading import Contradiction, Recorded, load, look, merge
from services.runtime import archive
from services.runtime.archive import Restorer, Span
from services.runtime.cluster import Cluster, said
from services.runtime.errors import UserError
from services.runtime.segments import Raw
from services.runtime.settings import RunSettings
from services.runtime.store import CorruptObject, MissingObject, ObjectStore, open_store

Say = Callable[[str], None]
MOST = 10_000_000
"""Records that are put back on one partition at most: a larger number was damaged itself."""


def repair(root: Path, say: Say) -> int:
    """Put missing records back at their offsets, from the recording and from what was cut off; 1 if some are lost.

    Offsets that nobody holds are filled by repeats of their neighbours, which every reader recognises, so that what
    follows keeps its place. May be repeated. Raises UserError, for a run that is running among others.
    """
    run = RunDir(root)
    settings_of(run)
    with run.claimed():
        return _claimed(run, say)


def _claimed(run: RunDir, say: Say) -> int:
    settings = settings_of(run)
    own = None if settings.kafka.bootstrap else run.broker
    say("checking every batch of the log" if own else f"asking {settings.kafka.bootstrap}")
    with serving(run, settings, verify=True) as cluster:
        if own is None:
            _require_stopped(settings, cluster)
        found = missing(settings, cluster, own)
        store = open_store(settings.store)
        recorded = look(store, settings.run_id, keyed)
        cut = _cut(own)
        lost = 0
        with Restorer(cluster) as restorer:
            for each in found:
                lost += _Mending(each, store, settings, recorded.get(each.place), cut.get(each.place)).into(
                    restorer, cluster, say
                )
        if missing(settings, cluster, own):
            raise UserError("the log still ends too early", said(cluster), "is anybody else writing to it?")
        for folder in cut.values():
            shutil.rmtree(folder)
    if not found:
        say("nothing is missing at the end of any log")
    say(f"look at the run with: rollstream audit {run.quoted}")
    return 1 if lost else 0


def _cut(own: Path | None) -> dict[tuple[str, int], Path]:
    """Folders of what was cut off, by partition; none on a cluster, whose images hold no broker of ours."""
    if own is None:
        return {}
    from infra.broker import aside

    return aside.partitions(own)


def _require_stopped(settings: RunSettings, cluster: Cluster) -> None:
    groups = [group_of(settings.run_id, service) for service in principals()]
    up = archive.members(cluster, groups)
    if up:
        raise UserError(
            f"services of this run are up: {', '.join(sorted(up))}", said(cluster), "scale them down to 0 first"
        )


@dataclass(frozen=True)
class _Mending:
    """One missing range and who may hold it."""

    missing: Missing
    store: ObjectStore
    settings: RunSettings
    recorded: Recorded | None
    cut: Path | None

    def into(self, restorer: Restorer, cluster: Cluster, say: Say) -> int:
        """Write the range; returns how many records nobody holds."""
        place, first, end = self.missing.place, self.missing.first, self.missing.end
        say(str(self.missing))
        if end - first > MOST:
            raise UserError(
                f"{self.missing.said_by} is not to be believed", str(place), "restore a backup from before the damage"
            )
        before = None
        if first:
            before = next(archive.read_raw(cluster, *place, Span(first - 1, first)), None)
        held: list[int] = []
        restorer.partition(*place, Span(first, end), self._noting(held, say), before)
        say(f"  {len(held)} of {end - first} are back")
        nobody = [] if keyed(place.topic) else _ranges(first, end, held)
        if nobody:
            told = ", ".join(f"{a}..{b}" for a, b in nobody[:NAMED]) + (" …" if len(nobody) > NAMED else "")
            say(f"  nobody holds {told}: a repeat of a neighbour stands there")
        return sum(b - a + 1 for a, b in nobody)

    def _noting(self, held: list[int], say: Say) -> Iterator[Raw]:
        for raw in self._records(say):
            held.append(raw.offset)
            yield raw

    def _records(self, say: Say) -> Iterator[Raw]:
        first, end = self.missing.first, self.missing.end
        last = first - 1
        # Where both hold a record it is the same one; the recording comes first since its digest was checked.
        for raw in heapq.merge(self._from_recording(say), self._from_cut(), key=lambda raw: raw.offset):
            if last < raw.offset < end:
                last = raw.offset
                yield raw

    def _from_recording(self, say: Say) -> Iterator[Raw]:
        if self.recorded is None:
            return
        place = self.missing.place
        reaching = [segment for segment in self.recorded.segments if segment.last >= self.missing.first]

        def loaded(segment: Segment) -> Sequence[Raw]:
            try:
                return load(self.store, self.settings.run_id, segment)
            except (CorruptObject, MissingObject) as e:
                say(f"  {e}")
                return []

        try:
            yield from merge(place, reaching, loaded)
        except Contradiction as e:
            raise UserError(
                f"{e}: the run went on after the damage", str(self.store), "restore a backup from before that"
            ) from e

    def _from_cut(self) -> Iterator[Raw]:
        if self.cut is not None:
            from infra.broker import aside

            for _, found in sorted(aside.read(self.cut).items()):
                yield Raw(*found)


def _ranges(first: int, end: int, held: Sequence[int]) -> list[tuple[int, int]]:
    """The gaps (both ends included) that sorted `held` leaves in first..end."""
    out = []
    at = first
    for offset in (*held, end):
        if offset > at:
            out.append((at, offset - 1))
        at = offset + 1
    return out
