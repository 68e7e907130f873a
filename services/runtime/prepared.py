"""What a preparation leaves for every service of a run: one object, written last, that names task set and base."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from services.runtime.clock import Clock, Deadline
from services.runtime.errors import UserError
from services.runtime.process import SAY_EVERY_S, ServiceProcess
from services.runtime.settings import RunSettings
from services.runtime.store import MissingBucket, MissingObject, ObjectStore, StoreDenied, StoreUnavailable, open_store
from services.runtime.store_rights import RIGHTS

FORMAT = "rollstream.prepared/1"
_LOOK_S = 1.0
GRANT_S = 60.0
"""A bucket is there a moment before its policy is: for so long a right that is missing is waited for."""


@dataclass(frozen=True)
class Prepared:
    """A run that can begin. `made_from`: the settings that decided task set and base, by dotted name; `coldstart`: the
    report of its cold start."""

    run_id: str
    taskset_digest: str
    base_manifest: str
    made_from: Mapping[str, Any] = field(default_factory=dict)
    coldstart: Mapping[str, Any] = field(default_factory=dict)
    prepared_ms: int = 0

    def complete(self, settings: RunSettings) -> RunSettings:
        """The settings with what the preparation found out."""
        return settings.model_copy(update={"taskset_digest": self.taskset_digest, "base_manifest": self.base_manifest})


def prepared_key(run_id: str) -> str:
    """Where the object lies in the run's store."""
    return f"runs/{run_id}/prepared.json"


def load_prepared(store: ObjectStore, run_id: str) -> Prepared | None:
    """The run's preparation; None while there is none. Raises UserError for an object that is none."""
    key = prepared_key(run_id)
    try:
        body = json.loads(store.get(key))
        if body.pop("format") != FORMAT or body["run_id"] != run_id:
            raise ValueError("another format, or another run")
        return Prepared(**body)
    except MissingObject:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        what = f"the run's preparation cannot be read: {e}"
        raise UserError(what, f"{key} in {store}", "restore it from a copy, or prepare under a new run_id") from e


def publish_prepared(store: ObjectStore, prepared: Prepared) -> bool:
    """Let the services begin; False when another preparation was first, which then counts."""
    document = json.dumps({"format": FORMAT, **asdict(prepared)}, indent=1, sort_keys=True, default=str)
    return store.put_if_absent(prepared_key(prepared.run_id), document.encode())


def wanted_by(service: str, run_id: str) -> bool:
    """Whether a service has business with task set or base: those may read the object, and nobody else needs it."""
    rights = RIGHTS.get(service)
    return rights is not None and any(fnmatchcase(prepared_key(run_id), pattern) for pattern in rights.reads)


class BucketPatience:
    """How long a service that starts waits for the run's bucket and for its right to it: whoever prepares makes both.

    A missing bucket may be waited for as long as `total_s`; a missing right for a minute after the bucket was seen.
    """

    def __init__(self, clock: Clock, total_s: float) -> None:
        self._clock = clock
        self._total = Deadline(clock, total_s)
        self._granted = Deadline(clock, GRANT_S)

    @property
    def over(self) -> bool:
        """Whether all of the time has passed."""
        return self._total.passed

    @property
    def left_s(self) -> float:
        """Seconds that are left of it."""
        return self._total.left()

    def bear(self, error: StoreUnavailable | MissingBucket | StoreDenied) -> str:
        """What to say while waiting on. Raises the error where a right was missing for too long."""
        if not isinstance(error, StoreDenied):
            self._granted = Deadline(self._clock, GRANT_S)
        elif self._granted.passed:
            raise error
        return error.what


def completed(process: ServiceProcess) -> RunSettings:
    """The process's settings, with what preparation fills in; waits for that, and says so.

    Raises UserError after `runtime.prepared_s`, for a right that is missing after a minute, and for other mistakes (a
    wrong login) at once; Stopped when asked to end.
    """
    settings, service = process.settings, process.service
    if settings.taskset_digest or not settings.store.url or not wanted_by(service, settings.run_id):
        return settings
    patience = BucketPatience(process.clock, settings.runtime.prepared_s)
    store: ObjectStore | None = None
    said = float("-inf")
    while True:
        process.starting()
        why = f"run {settings.run_id!r} is not prepared yet; `rollstream prepare` does that"
        try:
            store = store or open_store(settings.store, service)
            found = load_prepared(store, settings.run_id)
            if found is not None:
                process.log.info("prepared", task_set=found.taskset_digest, base=found.base_manifest)
                return found.complete(settings)
        except (StoreUnavailable, MissingBucket, StoreDenied) as e:
            why = patience.bear(e)
        if patience.over:
            raise UserError(
                f"waited {settings.runtime.prepared_s:g} s for the run's preparation: {why}",
                f"{prepared_key(settings.run_id)} in {settings.store.url}",
                "see why `rollstream prepare` did not get there, or raise runtime.prepared_s",
            )
        if process.clock.monotonic() - said > SAY_EVERY_S:
            said = process.clock.monotonic()
            process.log.warning("waiting for the preparation", why=why, left_s=round(patience.left_s))
        process.stop.wait(_LOOK_S)
