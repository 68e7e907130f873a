"""Records of a tool operation: the command and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.bounds import Digest, Few, Id, PerTurn, Seconds, Size, Text, Time, Turns, Word
from schemas.record import Record, record

_HEADERS = ("run_id", "group_id", "trial_id", "operation_id")


@record("sandbox.command", headers=(*_HEADERS, "tool"))
@dataclass(frozen=True, slots=True)
class SandboxCommand(Record):
    """One operation in a trial's workspace; `arguments` is canonical JSON of the tool's named arguments."""

    run_id: Id
    group_id: Id
    trial_id: Id
    attempt: Turns
    operation_id: Id
    sequence: Turns  # 0 for the first operation of the attempt: a fresh workspace is made for it
    task_id: Id
    fixture_digest: Digest
    taskset_digest: Digest
    tool: Word
    arguments: Text
    cpu_s: Seconds
    wall_s: Seconds
    output_bytes: Size
    issued_ms: Time
    history: PerTurn[Text] | None = None  # after a loss: the attempt's earlier operations, each ["tool", "arguments"]


@record("sandbox.result", headers=(*_HEADERS, "status"))
@dataclass(frozen=True, slots=True)
class SandboxResult(Record):
    """What an operation did. `infra_error` is set only for faults that the candidate cannot cause."""

    run_id: Id
    group_id: Id
    trial_id: Id
    attempt: Turns
    operation_id: Id
    sequence: Turns
    tool: Word
    status: Literal["ok", "refused", "workspace_lost", "infra"]
    observation: Text
    truncated: bool
    checks_passed: bool | None  # the public checks, when the tool ran them
    diff: Text | None  # submit: the workspace against its fixture
    cpu_s: Seconds | None
    memory_bytes: Size | None
    workspace_generation: Word
    infra_error: Text | None
    started_ms: Time
    ended_ms: Time
    findings: Few[Word] | None = None  # exploit detectors that fired on the command: short stable words
