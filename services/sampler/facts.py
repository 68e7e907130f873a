"""What the log says about one trial, plus what this sampler has under way for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from schemas.rollout import Invocation, RolloutCompleted, RolloutRequested
from schemas.sandbox import SandboxResult
from schemas.topics import Topic
from services.runtime.core import Output, Position
from services.sampler.trial import Attempt


@dataclass
class Pending:
    """The one thing that a trial waits for. `since_s` is monotonic seconds.

    `call`: the engine. `weights`: an engine with weights that may sample. `operation`: the sandbox. `upload`: the
    object store. `echo`: this sampler's own record, which counts from when it stands in the log.
    """

    kind: Literal["call", "weights", "operation", "upload", "echo"]
    id: str
    since_s: float
    tries: int = 1
    output: Output | None = None


@dataclass
class Trial:
    """One trial. The first record of an id counts, wherever it came from; later ones are repeats."""

    id: str
    partition: int
    seen_s: float
    requested: RolloutRequested | None = None
    invocations: dict[str, Invocation] = field(default_factory=dict)
    results: dict[str, SandboxResult] = field(default_factory=dict)
    completed: dict[int, RolloutCompleted] = field(default_factory=dict)
    positions: list[Position] = field(default_factory=list)
    ends: list[Position] = field(default_factory=list)
    number: int = 0
    attempt: Attempt | None = None
    pending: Pending | None = None

    @property
    def begun(self) -> bool:
        """Whether anything happened to it beyond being asked for."""
        return bool(self.invocations or self.results or self.completed)

    @property
    def final(self) -> bool:
        """Whether its last attempt stands completed in the log."""
        return any(record.final_attempt for record in self.completed.values())

    def waits_for(self, kind: str, id_: str) -> bool:
        """Whether it waits for exactly this."""
        return self.pending is not None and self.pending.kind == kind and self.pending.id == id_


def echo(topic: Topic, record: Invocation | RolloutCompleted, id_: str, now_s: float) -> Pending:
    """Wait for a record of our own to stand in the log."""
    return Pending("echo", id_, now_s, output=Output(topic, record))
