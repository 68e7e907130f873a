"""The public halves of the tasks, fetched once per task set, and plain words for those that cannot be used."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

from schemas.rollout import RolloutRequested
from services.runtime.core import Effects, Job
from services.runtime.logs import Log
from services.tasks.fixture import Fixture
from services.tasks.taskset import BadDocument, TaskSet, UnknownTask, load_public

RETRY_S = 2.0


class Tasks:
    """Task sets by the hexadecimal SHA-256 of their public document, whose bytes `fetch` returns (on a worker)."""

    def __init__(self, fetch: Callable[[str], bytes], log: Log) -> None:
        self._fetch = fetch
        self._log = log
        self._sets: dict[str, TaskSet | str] = {}
        self._wanted: dict[str, float] = {}  # digest -> monotonic seconds from when on it may be fetched
        self._fetching: set[str] = set()

    def find(self, asked: RolloutRequested) -> Fixture | str | None:
        """The fixture; words for why there can be none; None while the task set is being fetched."""
        found = self._sets.get(asked.taskset_digest)
        if found is None:
            self._wanted.setdefault(asked.taskset_digest, 0.0)
            return None
        if isinstance(found, str):
            return found
        try:
            fixture = found.get(asked.task_id)
        except UnknownTask as e:
            return str(e)
        if fixture.digest != asked.fixture_digest:
            return f"{asked.task_id} is {fixture.digest} in the task set, the request says {asked.fixture_digest}"
        return fixture

    def jobs(self, now_s: float, changed: Callable[[], Effects]) -> list[Job]:
        """Fetches to start now; `changed` is called when one came to an end."""
        ready = [d for d, at in self._wanted.items() if at <= now_s and d not in self._fetching]
        self._fetching.update(ready)
        return [
            Job(functools.partial(self._load, digest), functools.partial(self._done, digest, now_s, changed))
            for digest in ready
        ]

    def _load(self, digest: str) -> TaskSet:
        raw = self._fetch(digest)
        if (found := hashlib.sha256(raw).hexdigest()) != digest:
            raise BadDocument(f"task document: its digest is {found}, not {digest}")
        return load_public(raw)

    def _done(self, digest: str, asked_s: float, changed: Callable[[], Effects], result: Any) -> Effects:
        self._fetching.discard(digest)
        if isinstance(result, TaskSet):
            self._sets[digest] = result
        elif isinstance(result, BadDocument):
            self._sets[digest] = str(result)
        else:  # the store is down or the document is not there yet: that mends itself or a person mends it
            self._wanted[digest] = asked_s + RETRY_S
            self._log.exception("task set not fetched; trying again", result, digest=digest)
            return Effects()
        del self._wanted[digest]
        return changed()
