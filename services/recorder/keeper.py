"""Stores segments: created with a condition, never overwritten; a store that is down or full is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from services.recorder.names import Lost, Place, segment_of
from services.runtime.errors import UserError
from services.runtime.logs import Log
from services.runtime.segments import Raw, pack
from services.runtime.store import ObjectStore, StoreFull, StoreUnavailable

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0
SAY_EVERY_S = 10.0


class Keeper:
    """Used by several worker threads at once. Once `stop` is set, each object is tried once more and given up."""

    def __init__(
        self,
        store: ObjectStore,
        run_id: str,
        stop: threading.Event,
        log: Log,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._stop = stop
        self._log = log
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._down_since: float | None = None
        self._said_at = float("-inf")

    @property
    def down_s(self) -> float:
        """For how many seconds the store has taken nothing; 0 while it works."""
        since = self._down_since
        return 0.0 if since is None else self._monotonic() - since

    def segment(self, place: Place, records: list[Raw]) -> int:
        """Store a segment and return its bytes. Raises StoreUnavailable or StoreFull once the service ends."""
        data = pack(records)
        found = segment_of(place, records[0].offset, records[-1].offset, len(records), data)
        self._create(found.key(self._run_id), data)
        return found.size

    def lost(self, gone: Lost) -> None:
        """Store the name of a loss. Raises as `segment` does."""
        self._create(gone.key(self._run_id), gone.document)

    def _create(self, key: str, data: bytes) -> None:
        wait_s = FIRST_WAIT_S
        while True:
            try:
                if not self._store.put_if_absent(key, data) and self._store.get(key) != data:
                    raise UserError(
                        f"object {key} holds something else than its name says", str(self._store),
                        "move it away: the recorder writes it again",
                    )  # fmt: skip
                self._works()
                return
            except (StoreUnavailable, StoreFull) as e:
                self._say(e)
                if self._stop.wait(wait_s) and wait_s > FIRST_WAIT_S:
                    raise
                wait_s = min(LONGEST_WAIT_S, 2 * wait_s)

    def _works(self) -> None:
        with self._lock:
            since, self._down_since = self._down_since, None
        if since is not None:
            self._log.info("the object store works again", after_s=round(self._monotonic() - since, 1))

    def _say(self, error: UserError) -> None:
        now = self._monotonic()
        with self._lock:
            self._down_since = self._down_since if self._down_since is not None else now
            if now - self._said_at < SAY_EVERY_S:
                return
            self._said_at = now
        held = "what is read waits in memory and in the topics, nothing is lost"
        self._log.warning("waiting for the object store: " + held, error=str(error))
