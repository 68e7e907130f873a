"""An engine without a model: heavy-tailed waits and well-formed actions, to exercise everything around a real one."""

from __future__ import annotations

import hashlib
import heapq
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from services.agent.engine import EngineError, EngineRequest, EngineSample
from services.agent.harness import Harness
from services.agent.tokenizer import Ids

_IDLE_S = 0.05


@dataclass(order=True)
class _Waiting:
    due: float
    number: int
    request: EngineRequest = field(compare=False)
    version: int = field(compare=False)
    started_ms: int = field(compare=False)


class SyntheticEngine:
    """A trial makes `calls` calls: edits, then `submit`. Its whole waiting is log-uniform over [least_s, most_s].

    Call and trial are read from the request id `<trial attempt>.<turn>` (else each call is a trial of its own); the
    draw depends on trial and call alone. With `answers` (first prefix as bytes -> ids of a right action), the edits of
    a trial are right with probability `pass_rate`. The waits of thousands of calls share the engine's one thread.
    """

    name = "synthetic"

    def __init__(
        self,
        harness: Harness,
        least_s: float = 0.2,
        most_s: float = 16.8,
        pass_rate: float = 0.5,
        calls: int = 2,
        answers: Mapping[bytes, Ids] | None = None,
    ) -> None:
        if not 0 < least_s <= most_s:
            raise ValueError(f"waits need 0 < least <= most, not {least_s:g} and {most_s:g}")
        self._least_s, self._most_s, self._calls = least_s, most_s, calls
        self._pass_rate = pass_rate
        self._answers = answers or {}
        self._submit = harness.action_ids("submit")
        self._wrong = harness.action_ids("edit 1: pass")
        self._condition = threading.Condition()
        self._due: list[_Waiting] = []
        self._count = 0
        self._version = -1

    @property
    def version(self) -> int:
        """The version last loaded; a call keeps the one that it started with."""
        return self._version

    def load(self, version: int, folder: Path) -> None:
        """Only the number changes; nothing is read."""
        del folder
        with self._condition:
            self._version = version
            self._condition.notify_all()

    def duration_s(self, trial: str) -> float:
        """Seconds that all calls of this trial wait together."""
        place = _number(trial, "wait")
        return float(self._least_s * (self._most_s / self._least_s) ** place)

    def submit(self, request: EngineRequest) -> None:
        """Queue one call; it is due after its share of the trial's wait."""
        due = time.monotonic() + self.duration_s(_trial_and_turn(request.request_id)[0]) / self._calls
        with self._condition:
            self._count += 1
            waiting = _Waiting(due, self._count, request, self._version, time.time_ns() // 1_000_000)
            heapq.heappush(self._due, waiting)
            self._condition.notify_all()

    def run(
        self,
        on_sample: Callable[[EngineSample], None],
        on_error: Callable[[str, EngineError], None],
        stop: threading.Event,
    ) -> None:
        """Answer calls as they fall due until `stop` is set; what still waits then ends in `on_error`."""
        while not stop.is_set():
            for waiting in self._take_due():
                on_sample(self._answer(waiting))
        with self._condition:
            left, self._due = self._due, []
        for waiting in left:
            on_error(waiting.request.request_id, EngineError("the engine was stopped"))

    def _take_due(self) -> list[_Waiting]:
        with self._condition:
            ready = self._version >= 0 and bool(self._due)
            wait = self._due[0].due - time.monotonic() if ready else _IDLE_S
            if wait > 0:
                self._condition.wait(min(_IDLE_S, wait))
            now = time.monotonic()
            found = []
            while self._version >= 0 and self._due and self._due[0].due <= now:
                found.append(heapq.heappop(self._due))
            return found

    def _answer(self, waiting: _Waiting) -> EngineSample:
        request = waiting.request
        trial, turn = _trial_and_turn(request.request_id)
        whole = self._submit
        if turn + 1 < self._calls:
            right = is_right(trial, self._pass_rate)
            whole = self._answers.get(request.prefix.tobytes(), self._wrong) if right else self._wrong
        ids = whole[: request.max_tokens]
        return EngineSample(
            request.request_id,
            ids,
            np.full(len(ids), np.log(0.5), np.float32),
            np.full(len(ids), 2, np.int32),
            "stop_token" if int(ids[-1]) in request.stop_ids else "length",
            waiting.version if waiting.version >= 0 else self._version,
            waiting.started_ms,
            time.time_ns() // 1_000_000,
        )


def _trial_and_turn(request_id: str) -> tuple[str, int]:
    trial, _, turn = request_id.rpartition(".")
    return (trial, int(turn)) if trial and turn.isdecimal() else (request_id, 0)


def is_right(attempt: str, pass_rate: float) -> bool:
    """Whether this trial attempt (`<trial>.<number>`) edits rightly: known beforehand, so verdicts can be checked."""
    return _number(attempt, "pass") < pass_rate


def _number(trial: str, use: str) -> float:
    """A number in [0, 1) that depends on the trial and its use alone."""
    digest = hashlib.blake2b(f"{use}/{trial}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
