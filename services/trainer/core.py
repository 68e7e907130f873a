"""The trainer's core: which groups make the next update, and a version that exists exactly once whatever is killed.

The manifest is the commit. It names the groups of its update and the offsets to read on from; a trainer that starts
takes the newest one, reads on from there and finds itself where the dead one stood. Order of an update: the plan (which
groups) is stored, the weights change, the files are stored, the manifest is created, the records go out, and the next
update waits until those records are read back. Killed before the manifest, the same plan is computed again from the
same weights; killed after it, only the records are sent again.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from schemas.codec import ContractViolation
from schemas.group import ExclusionReason, GroupAdmission
from schemas.ids import BadId
from schemas.policy import PolicyPublished, TrainingUpdate
from schemas.rollout import Invocation
from schemas.topics import GROUP_ADMISSION, POLICY_PUBLISHED, TRAINING_UPDATE
from services.runtime.checkpoints import (
    CheckpointConflict,
    CheckpointMeta,
    Manifest,
    load_manifest,
    prune_checkpoints,
    publish_checkpoint,
)
from services.runtime.clock import Clock
from services.runtime.core import SURROUNDINGS, BaseCore, Effects, Job, Message, Output
from services.runtime.errors import UserError
from services.runtime.logs import Log
from services.runtime.settings import RunSettings
from services.runtime.store import ObjectStore, StoreFull
from services.trainer.assembly import Poison, assemble, missing, oldest_version
from services.trainer.buffer import Buffer, Held, group_number
from services.trainer.checkpoint import Files, Interrupted, Stats, Weights
from services.trainer.intervals import Intervals
from services.trainer.packing import TrainGroup
from services.trainer.records import (
    exclusion,
    joined,
    offsets_of,
    plan_key,
    policy_published,
    stored_plan,
    training_update,
    update_fields,
)

INCOMPLETE_S = 30.0
"""Seconds that an admitted group may lack model calls, which were written long before its admission."""
ANNOUNCE_S = 30.0
RETRY_S = 2.0
FULL_RETRY_S = 10.0
"""A full store waits for a person, who may take hours: nothing is lost meanwhile, and the run goes on by itself."""
BAD_BATCHES = 3
"""So many batches in a row that cannot be trained on are no matter of single groups: the service stops."""


@dataclass
class Batch:
    """The update under way."""

    group_ids: tuple[str, ...]
    groups: list[TrainGroup]
    admissions: list[GroupAdmission]
    meta: CheckpointMeta
    waited_ms: int


class TrainerCore(BaseCore):
    """See the module. `weights` must have been restored to `manifest`."""

    def __init__(
        self, settings: RunSettings, store: ObjectStore, weights: Weights, manifest: Manifest, clock: Clock, log: Log
    ) -> None:
        self._settings = settings
        self._store = store
        self._weights = weights
        self._manifest = manifest
        self._clock = clock
        self._log = log
        self._buffer = Buffer(Intervals(manifest.meta.decided), offsets_of(manifest))
        self._plan = stored_plan(store, settings.run_id, manifest.version + 1)
        self._batch: Batch | None = None
        self._ready = False
        self._announced_s: float | None = None
        self._published = -1
        self._updated = 0
        self._idle_s = clock.monotonic()
        self._retry: tuple[float, Callable[[], Effects]] | None = None
        self._bad_batches = 0

    @property
    def version(self) -> int:
        """Version of the weights whose manifest exists."""
        return self._manifest.version

    @property
    def held_groups(self) -> int:
        """Groups that are held undecided."""
        return len(self._buffer.groups)

    # -- the loop's side -------------------------------------------------------------------------------------------

    def caught_up(self, now_ms: int) -> Effects:
        self._ready = True
        return joined(self._announce(), self._exclude_stale(now_ms), self._compose(now_ms))

    def handle(self, message: Message, now_ms: int) -> Effects:
        record = message.record
        effects = Effects(done=[message.position])
        if isinstance(record, PolicyPublished):
            if record.run_id == self._settings.run_id:
                self._published = max(self._published, record.policy_version)
            return joined(effects, self._compose(now_ms))
        if isinstance(record, TrainingUpdate):
            if record.run_id == self._settings.run_id:
                self._updated = max(self._updated, record.policy_version)
            return joined(effects, self._compose(now_ms))
        self._buffer.note(message.position)
        if not isinstance(record, Invocation | GroupAdmission) or record.run_id != self._settings.run_id:
            return effects
        try:
            if isinstance(record, Invocation):
                self._buffer.invocation(record, message.position)
            else:
                self._buffer.admission(record, message.position, self._clock.monotonic())
        except BadId as e:
            raise ContractViolation("id", str(e)) from e
        return joined(effects, self._exclude_stale(now_ms), self._compose(now_ms))

    def tick(self, now_ms: int) -> Effects:
        now_s = self._clock.monotonic()
        effects = Effects()
        if self._retry is not None and now_s >= self._retry[0]:
            again, self._retry = self._retry[1], None
            effects += again()
        if self._announced_s is not None and now_s - self._announced_s > ANNOUNCE_S:
            effects += self._announce()
        if self._ready:
            for held in self._buffer.admitted():
                if not held.complete and now_s - held.arrived_s > INCOMPLETE_S:
                    effects += self._poison(held, "model calls are not in the log", now_ms)
        return joined(effects, self._compose(now_ms))

    # -- which groups ----------------------------------------------------------------------------------------------

    def _compose(self, now_ms: int) -> Effects:
        """Begin the next update when nothing is under way and enough whole groups are at hand."""
        effects = Effects()
        wanted = self._settings.dispatch.batch_groups
        while self._may_compose():
            chosen = self._choose(wanted)
            if len(chosen) < wanted:
                return effects
            groups = []
            for held in chosen:
                assert held.admission is not None
                try:
                    groups.append(assemble(held.admission, held.records, self.version, self._weights.room))
                except Poison as e:
                    effects += self._poison(held, str(e), now_ms)
                except Exception as e:  # whatever its records provoke here must not stop the others
                    self._log.exception("group not assembled", e, group=held.admission.group_id)
                    effects += self._poison(held, repr(e), now_ms)
            if len(groups) == len(chosen):
                return joined(effects, self._begin(groups, chosen))
        return effects

    def _may_compose(self) -> bool:
        if not self._ready or self._batch is not None or self.version >= self._settings.dispatch.updates:
            return False
        return self._published >= self.version and self._updated >= self.version

    def _choose(self, wanted: int) -> list[Held]:
        """The groups that were decided first; those of a stored plan, where an update was begun before a crash."""
        admitted = self._buffer.admitted()
        if self._plan:
            planned = [held for held in admitted if held.admission and held.admission.group_id in self._plan]
            if len(planned) == len(self._plan):
                return planned if all(held.complete for held in planned) else []
            self._log.warning("the begun update cannot be repeated as it was; choosing anew", version=self.version + 1)
            self._plan = ()
        return [held for held in admitted if held.complete][:wanted]

    def _begin(self, groups: list[TrainGroup], chosen: list[Held]) -> Effects:
        run_id, version = self._settings.run_id, self.version + 1
        order = sorted(range(len(chosen)), key=lambda i: chosen[i].number)
        groups = [groups[i] for i in order]
        admissions = [held.admission for held in (chosen[i] for i in order) if held.admission is not None]
        group_ids = tuple(group.group_id for group in groups)
        decided = Intervals(self._buffer.decided.pairs())
        for group_id in group_ids:
            decided.add(group_number(group_id))
        meta = CheckpointMeta(
            run_id=run_id,
            version=version,
            parent=self.version,
            update_id=f"{run_id}/u{version:06d}",
            group_ids=group_ids,
            consumed=self._buffer.read_on(without=group_ids),
            decided=decided.pairs(),
            digests=self._manifest.meta.digests,
        )
        waited = round((self._clock.monotonic() - self._idle_s) * 1000)
        self._batch = Batch(group_ids, groups, admissions, meta, waited)
        self._plan = ()
        return self._store_plan(self._batch)

    # -- the update ------------------------------------------------------------------------------------------------

    def _store_plan(self, batch: Batch) -> Effects:
        raw = json.dumps({"group_ids": batch.group_ids}).encode()
        put = functools.partial(self._store.put, plan_key(batch.meta.run_id, batch.meta.version), raw)
        return Effects(jobs=[Job(put, functools.partial(self._plan_stored, batch))])

    def _plan_stored(self, batch: Batch, result: Any) -> Effects:
        if isinstance(result, BaseException):
            return self._later("plan not stored", result, functools.partial(self._store_plan, batch))
        return Effects(jobs=[Job(functools.partial(self._update, batch), functools.partial(self._update_done, batch))])

    def _update(self, batch: Batch) -> tuple[Stats, Files]:
        return self._weights.update(batch.groups, batch.meta.version), self._weights.files()

    def _update_done(self, batch: Batch, result: Any) -> Effects:
        if isinstance(result, Interrupted):
            return Effects()
        if isinstance(result, SURROUNDINGS) or not isinstance(result, Exception | tuple):
            raise result
        if isinstance(result, Exception):
            return self._reject(batch, result)
        stats, files = result
        self._bad_batches = 0
        now_ms = self._clock.now_ms()
        meta = replace(batch.meta, update=self._described(batch, stats, now_ms), published_ms=now_ms)
        return self._publish(batch, files, meta)

    def _reject(self, batch: Batch, error: Exception) -> Effects:
        """These groups broke the update: the weights go back to where they were, the groups are excluded by name."""
        self._bad_batches += 1
        self._log.exception("batch rejected", error, groups=list(batch.group_ids))
        if self._bad_batches >= BAD_BATCHES:
            raise UserError(
                f"{self._bad_batches} batches in a row cannot be trained on; the last error: {error}",
                f"version {self.version} of run {self._settings.run_id}",
                "lower trainer.learning_rate, or start a new run; the weights are those of this version",
            )
        return self._restore(batch, str(error))

    def _restore(self, batch: Batch, why: str) -> Effects:
        restore = functools.partial(self._weights.restore, self._manifest)
        return Effects(jobs=[Job(restore, functools.partial(self._restored, batch, why))])

    def _restored(self, batch: Batch, why: str, result: Any) -> Effects:
        if isinstance(result, UserError):
            return self._later("weights not restored", result, functools.partial(self._restore, batch, why))
        if isinstance(result, BaseException):
            raise result
        self._batch, now_ms = None, self._clock.now_ms()
        effects = Effects()
        for group_id in batch.group_ids:
            held = self._buffer.groups.get(group_id)
            if held is not None:
                effects += self._poison(held, why, now_ms)
        return joined(effects, self._compose(now_ms))

    def _publish(self, batch: Batch, files: Files, meta: CheckpointMeta) -> Effects:
        def publish() -> Manifest:
            return load_manifest(self._store, *publish_checkpoint(self._store, files, meta))

        return Effects(jobs=[Job(publish, functools.partial(self._publish_done, batch, files, meta))])

    def _publish_done(self, batch: Batch, files: Files, meta: CheckpointMeta, result: Any) -> Effects:
        if isinstance(result, CheckpointConflict):
            raise result  # another trainer made this version: start again from what it made
        if isinstance(result, BaseException):
            return self._later("version not stored", result, functools.partial(self._publish, batch, files, meta))
        self._manifest, self._batch = result, None
        self._buffer.trained(batch.group_ids)
        self._idle_s = self._clock.monotonic()
        now_ms = self._clock.now_ms()
        prune = Effects(jobs=[Job(self._prune, self._pruned)])
        return joined(self._announce(), self._exclude_stale(now_ms), prune)

    def _later(self, what: str, error: BaseException, again: Callable[[], Effects]) -> Effects:
        """A store that is down or full is waited for. No update begins meanwhile, so dispatch runs out of credit."""
        wait_s = FULL_RETRY_S if isinstance(error, StoreFull) else RETRY_S
        if isinstance(error, UserError):
            self._log.warning(f"{what}; trying again", error=str(error), seconds=wait_s)
        else:
            self._log.exception(f"{what}; trying again", error)
        self._retry = (self._clock.monotonic() + wait_s, again)
        return Effects()

    def _prune(self) -> list[int]:
        # Groups within the bound need versions that far back; one more is being gated, one more is being made.
        keep = max(self._settings.trainer.keep_checkpoints, self._settings.admission.max_lag + 3)
        version = self.version
        self._store.delete(plan_key(self._settings.run_id, version))
        return prune_checkpoints(self._store, self._settings.run_id, keep)

    def _pruned(self, result: Any) -> Effects:
        if isinstance(result, BaseException):
            self._log.warning("old checkpoints not removed; the next update tries again", error=repr(result))
        return Effects()

    # -- records ---------------------------------------------------------------------------------------------------

    def _announce(self) -> Effects:
        """Send what the topics lack of the newest version; sent twice, the ids say that it is the same."""
        meta, outputs = self._manifest.meta, []
        if meta.update is not None and self._updated < meta.version:
            outputs.append(Output(TRAINING_UPDATE, training_update(meta.update)))
        if self._published < meta.version:
            outputs.append(Output(POLICY_PUBLISHED, policy_published(self._manifest)))
        self._announced_s = self._clock.monotonic() if outputs else None
        return Effects(outputs=outputs)

    def _exclude_stale(self, now_ms: int) -> Effects:
        """The bound counts where it is consumed: a version only grows, so what is too old now stays too old."""
        effects = Effects()
        if self._ready and self._batch is None:
            for held in self._buffer.admitted():
                admission = held.admission
                if admission and self.version - oldest_version(admission) > self._settings.admission.max_lag:
                    effects += self._exclude(held, "stale", now_ms)
        return effects

    def _poison(self, held: Held, why: str, now_ms: int) -> Effects:
        assert held.admission is not None
        absent = list(itertools.islice(missing(held.admission, held.records), 8))
        self._log.error("group excluded", group=held.admission.group_id, why=why, missing=absent)
        return self._exclude(held, "poison", now_ms)

    def _exclude(self, held: Held, reason: ExclusionReason, now_ms: int) -> Effects:
        """Write the exclusion; the group counts as decided once that record is read back."""
        admission = held.admission
        assert admission is not None
        held.excluding = True
        record = exclusion(admission, reason, self.version, now_ms)
        return Effects(outputs=[Output(GROUP_ADMISSION, record)])

    def _described(self, batch: Batch, stats: Stats, now_ms: int) -> dict[str, Any]:
        lags = [group.lag for group in batch.groups]
        return {
            **update_fields(batch.meta, lags, self._settings),
            **stats,
            "waited_ms": batch.waited_ms,
            "finished_ms": now_ms,
        }
