"""Which candidates were being checked when this verifier died, so that none of them can kill it for ever.

A candidate that runs a whole pod out of memory, or finds another way to end its judge, is read again by whoever starts
next. What was being checked at the death is checked alone from then on, one at a time, so that a second death has one
suspect; and after `limit` deaths it is `unknown`: never a fail, for nothing of what happened is the verifier's own
evidence. An end of the process that was asked for leaves no suspects.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from services.patch.admission import Admitted
from services.tasks.fixture import CheckSet
from services.verifier.attribution import STARVED, Facts, attribute
from services.verifier.candidate import Unjudgeable
from services.verifier.retries import CheckRunner

CAUSE = "verifier_lost"


class Suspects:
    """Thread-safe. One small file that outlives the process; a disk that is full only costs the memory."""

    def __init__(self, path: Path, run_id: str, limit: int) -> None:
        self._path = path
        self._run_id = run_id
        self._limit = limit
        self._turn = threading.Condition()
        self._running: Counter[str] = Counter()
        self._alone = False
        self._queued = 0
        self._starved: set[str] = set()
        self._deaths: Counter[str] = Counter()
        self._closed = False
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            stored = json.loads(path.read_text())
            if stored["run_id"] == run_id:
                self._deaths = Counter({str(key): int(count) for key, count in stored["deaths"].items()})
                self._deaths.update(set(map(str, stored["running"])))
        self._save()

    @property
    def count(self) -> int:
        """How many candidates were being checked at some death and have not been through a check since."""
        return len(self._deaths)

    @contextlib.contextmanager
    def checking(self, key: str) -> Iterator[None]:
        """Around one check run of the candidate with this key. Raises Unjudgeable when it has had its deaths."""
        if self._deaths[key] >= self._limit:
            raise Unjudgeable(CAUSE)
        alone = self._deaths[key] > 0 or key in self._starved
        with self._turn:
            self._queued += alone  # nobody who comes later goes before
            self._turn.wait_for(lambda: not self._alone and not (self._running if alone else self._queued))
            self._queued -= alone
            self._alone = alone
            self._running[key] += 1
            self._save()
        try:
            yield
        finally:
            with self._turn:
                self._running -= Counter({key: 1})
                self._deaths.pop(key, None)  # the verifier lives: it was not this one
                if alone:
                    self._alone = False
                self._save()
                self._turn.notify_all()

    def guard(self, run: CheckRunner) -> CheckRunner:
        """The same check runs, each remembered while it runs. One that was starved of CPU is repeated alone."""

        def guarded(candidate: Admitted, check: CheckSet, seed: int) -> Facts:
            key = f"{candidate.digest} {check.digest}"
            with self.checking(key):
                facts = run(candidate, check, seed)
            change = self._starved.add if attribute(facts)[1] == STARVED else self._starved.discard
            change(key)
            return facts

        return guarded

    def close(self) -> None:
        """The process ends in order: whatever still runs is nobody's suspect."""
        with self._turn:
            self._closed = True
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _save(self) -> None:
        if self._closed:
            return
        entry = {"run_id": self._run_id, "running": sorted(self._running), "deaths": dict(self._deaths)}
        temporary = self._path.with_name(self._path.name + ".new")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            temporary.write_text(json.dumps(entry))
            os.replace(temporary, self._path)
