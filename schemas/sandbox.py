"""Records of a tool operation: the command and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.record import Record, record

_HEADERS = ("run_id", "group_id", "trial_id", "operation_id")


@record("sandbox.command", headers=(*_HEADERS, "tool"))
@dataclass(frozen=True, slots=True)
class SandboxCommand(Record):
    """One operation in a trial's workspace; `arguments` is canonical JSON of the tool's named arguments."""

    run_id: str
    group_id: str
    trial_id: str
    attempt: int
    operation_id: str
    sequence: int  # 0 for the first operation of the attempt: a fresh workspace is made for it
    task_id: str
    fixture_digest: str
    taskset_digest: str
    tool: str
    arguments: str
    cpu_s: float
    wall_s: float
    output_bytes: int
    issued_ms: int
    history: tuple[str, ...] | None = None  # after a loss: the attempt's earlier operations, each ["tool", "arguments"]


@record("sandbox.result", headers=(*_HEADERS, "status"))
@dataclass(frozen=True, slots=True)
class SandboxResult(Record):
    """What an operation did. `infra_error` is set only for faults that the candidate cannot cause."""

    run_id: str
    group_id: str
    trial_id: str
    attempt: int
    operation_id: str
    sequence: int
    tool: str
    status: Literal["ok", "refused", "workspace_lost", "infra"]
    observation: str
    truncated: bool
    checks_passed: bool | None  # the public checks, when the tool ran them
    diff: str | None  # submit: the workspace against its fixture
    cpu_s: float | None
    memory_bytes: int | None
    workspace_generation: str
    infra_error: str | None
    started_ms: int
    ended_ms: int
    findings: tuple[str, ...] | None = None  # exploit detectors that fired on the command: short stable words
