"""One attempt of a trial as a pure state machine: recorded facts go in, the one thing that it needs next comes out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from schemas.ids import invocation_id, operation_id
from schemas.rollout import INFRA_STOPS, Invocation, RolloutCompleted, RolloutRequested, StopReason
from schemas.sandbox import SandboxCommand, SandboxResult
from schemas.topics import DAY_MS
from services.agent.context import Appended, Command, ContextOverflow, TrialContext
from services.agent.engine import EngineRequest, EngineSample, SamplingParams
from services.agent.grammar import Malformed, Submit

if TYPE_CHECKING:
    from services.agent.harness import Harness
    from services.agent.template import Task

AGAIN = 2
"""Added to the index of an operation that is asked for again after its workspace was lost: the answer to the first
asking stands in the log for good, so the second needs an id of its own, which every sampler derives alike."""
MAX_HISTORY_BYTES = 1024 * 1024
"""A longer history is not sent: the attempt is given up instead."""


@dataclass(frozen=True)
class Limits:
    """What one tool operation may use; copied into every command."""

    cpu_s: float
    wall_s: float
    output_bytes: int


@dataclass(frozen=True)
class Sample:
    """The attempt needs the policy's next action."""

    request: EngineRequest

    @property
    def id(self) -> str:
        return self.request.request_id


@dataclass(frozen=True)
class Operate:
    """The attempt needs the result of a tool operation.

    `history` is None, or, for one that is asked for again because the workspace was lost, what was done there before.
    """

    id: str
    sequence: int
    command: Command
    history: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Finish:
    """The attempt is over; `diff` is the candidate, None when there is none."""

    id: str
    stop_reason: StopReason
    infra_error: str | None = None
    diff: str | None = None
    outstanding: tuple[str, ...] = ()


Need = Sample | Operate | Finish


def call_seed(seed: int, attempt: int, turn: int) -> int:
    """Seed of one model call, in 0 .. 2^63 - 1: it depends on the trial's seed, the attempt and the turn alone."""
    raw = hashlib.sha256(f"{seed}/{attempt}/{turn}".encode()).digest()
    return int.from_bytes(raw[:8], "little") >> 1


def _span_ms(start_ms: int, end_ms: int) -> int:
    """What passed between two times that others wrote: a day at most, and nothing where a clock was set back."""
    return min(DAY_MS, max(0, end_ms - start_ms))


def end_id(trial_id: str, attempt: int) -> str:
    """Names the end of an attempt among the things that a trial waits for; it is no id on the wire."""
    return f"{trial_id}.{attempt}.end"


class Attempt:
    """Replays recorded invocations and results in turn, and says in `need` what has to happen next.

    The state is a function of the request, the fixture and the records fed in: two samplers that read the same topics
    stand at the same need. Time spent is taken from the records, so that time during which the system was down is
    never charged to the policy.
    """

    def __init__(
        self, requested: RolloutRequested, number: int, harness: Harness, task: Task, rebuild: bool = False
    ) -> None:
        """`rebuild`: a lost workspace is made again from the operations on it, since they are deterministic."""
        self.requested = requested
        self.number = number
        self.turns = 0
        self.tokens = 0
        self.malformed = 0
        self.started_ms: int | None = None
        self.oldest_version = -1
        self.newest_version = -1
        self.generation_ms = 0
        self.tool_wait_ms = 0
        self.findings: set[str] = set()
        self.need: Need
        self._harness = harness
        self._sequence = 0
        self._operated_turn = -1
        self._rebuild = rebuild
        self._operations: list[str] = []  # what was done in the workspace, as a command's history has it
        self._stop: StopReason | None = None  # why the workspace is being submitted; None while the policy goes on
        self._spent_ms = 0
        self._last: Invocation | None = None
        self._context: TrialContext | None = None
        try:
            self._context = TrialContext(harness, task)
        except ContextOverflow as e:
            self.need = Finish(end_id(requested.trial_id, number), "context_overflow", str(e))
            return
        self._appended = Appended(self._context.prefix, None)
        self.need = self._next_call()

    # -- facts -----------------------------------------------------------------------------------------------------

    def on_invocation(self, record: Invocation) -> None:
        """The needed model call, as it stands in the log."""
        if record.prefix_digest != self.context.prefix_digest:
            self.fail("engine", f"{record.invocation_id} was recorded for another prefix: the harness changed")
            return
        self.turns += 1
        self.tokens += len(record.sampled_ids)
        self.started_ms = record.started_ms if self.started_ms is None else self.started_ms
        versions = [v for v in (self.oldest_version, record.policy_version) if v >= 0]
        self.oldest_version = min(versions, default=-1)
        self.newest_version = max(self.newest_version, record.policy_version)
        self.generation_ms += _span_ms(record.started_ms, record.ended_ms)
        self._spent_ms += _span_ms(record.started_ms, record.ended_ms)
        self._last = record
        action = self.context.after_invocation(record.sampled_ids)
        if isinstance(action, Malformed):
            self.malformed += 1
            self._observe(action.message)
        elif isinstance(action, Submit):
            self._submit("submitted")
        else:
            self.need = self._operate(self.context.command(action))

    def on_result(self, record: SandboxResult) -> None:
        """The result of the needed operation, as it stands in the log."""
        if record.status in ("workspace_lost", "infra"):
            again = self._again() if record.status == "workspace_lost" else None
            if again is None:
                self.fail("sandbox_lost", record.infra_error or record.status)
            else:
                self.need = again
            return
        if isinstance(self.need, Operate):
            self._operations.append(json.dumps([self.need.command.tool, self.need.command.arguments]))
        self.findings.update(record.findings or ())
        since = self._last.ended_ms if self._last else record.started_ms
        self.tool_wait_ms += _span_ms(since, record.ended_ms)
        self._spent_ms += _span_ms(record.started_ms, record.ended_ms)
        if self._stop is not None:
            self.need = Finish(end_id(self.requested.trial_id, self.number), self._stop, diff=record.diff)
        else:
            self._observe(record.observation)

    def fail(self, reason: StopReason, error: str) -> None:
        """The system failed this attempt. An operation that nobody answered stays outstanding at the sandbox."""
        outstanding = (self.need.id,) if isinstance(self.need, Operate) else ()
        self.need = Finish(end_id(self.requested.trial_id, self.number), reason, error, outstanding=outstanding)

    # -- records ---------------------------------------------------------------------------------------------------

    def invocation(self, sample: EngineSample, engine: str) -> Invocation:
        """The record of the needed call that the engine just served."""
        need = self.need
        if not isinstance(need, Sample) or need.id != sample.request_id:
            raise ValueError(f"{sample.request_id} is not the call that is needed")
        asked, appended = self.requested, self._appended
        whole = self._last is None or appended.compaction is not None
        return Invocation(
            run_id=asked.run_id,
            group_id=asked.group_id,
            trial_id=asked.trial_id,
            split=asked.split,
            attempt=self.number,
            turn=self.turns,
            invocation_id=need.id,
            parent_id=None if whole or self._last is None else self._last.invocation_id,
            appended_ids=appended.ids,
            prefix_length=len(need.request.prefix),
            prefix_digest=self.context.prefix_digest,
            sampled_ids=np.asarray(sample.ids, np.int32),
            logprobs=np.asarray(sample.logprobs, np.float32),
            support_sizes=np.asarray(sample.support_sizes, np.int32),
            temperature=asked.temperature,
            top_k=asked.top_k,
            top_p=asked.top_p,
            seed=need.request.seed,
            engine=engine,
            policy_version=sample.policy_version,
            tokenizer_digest=self._harness.tokenizer.digest,
            template_digest=self._harness.template_digest,
            compaction=appended.compaction,
            stop=sample.stop,
            started_ms=sample.started_ms,
            ended_ms=sample.ended_ms,
        )

    def command(self, limits: Limits, now_ms: int) -> SandboxCommand:
        """The record that asks for the needed operation; the same at every call but for the time."""
        need, asked = self.need, self.requested
        if not isinstance(need, Operate):
            raise ValueError(f"attempt {self.number} of {asked.trial_id} needs no operation")
        return SandboxCommand(
            run_id=asked.run_id,
            group_id=asked.group_id,
            trial_id=asked.trial_id,
            attempt=self.number,
            operation_id=need.id,
            sequence=need.sequence,
            task_id=asked.task_id,
            fixture_digest=asked.fixture_digest,
            taskset_digest=asked.taskset_digest,
            tool=need.command.tool,
            arguments=need.command.arguments,
            cpu_s=limits.cpu_s,
            wall_s=limits.wall_s,
            output_bytes=limits.output_bytes,
            issued_ms=now_ms,
            history=need.history,
        )

    # -- steps -----------------------------------------------------------------------------------------------------

    @property
    def context(self) -> TrialContext:
        if self._context is None:
            raise ValueError("the prompt did not fit: this attempt has no context")
        return self._context

    def _id(self, turn: int) -> str:
        return invocation_id(self.requested.trial_id, self.number, turn)

    def _next_call(self) -> Need:
        asked = self.requested
        if self.turns >= asked.max_turns:
            return self._submit("turn_budget")
        if self.tokens >= asked.max_tokens:
            return self._submit("token_budget")
        if self._spent_ms >= asked.wall_s * 1000:
            return self._submit("wall_budget")
        room = min(self.context.room, asked.max_tokens - self.tokens)
        if room <= 0:
            return self._submit("context_overflow")
        return Sample(
            EngineRequest(
                request_id=self._id(self.turns),
                prefix=self.context.prefix,
                max_tokens=room,
                seed=call_seed(asked.seed, self.number, self.turns),
                sampling=SamplingParams(asked.temperature, asked.top_k, asked.top_p),
                stop_ids=self._harness.stop_ids,
            )
        )

    def _observe(self, text: str) -> None:
        try:
            self._appended = self.context.observe(text)
        except ContextOverflow:
            self._submit("context_overflow")
            return
        self.need = self._next_call()

    def _submit(self, reason: StopReason) -> Operate:
        """Whatever stops the policy, the workspace as it stands is its candidate."""
        self._stop = reason
        self.need = self._operate(self.context.command(Submit()))
        return self.need

    def _again(self) -> Operate | None:
        """The needed operation once more, with all that it takes to make its workspace again; None: give up."""
        need = self.need
        if not self._rebuild or not isinstance(need, Operate) or need.history is not None:
            return None
        if sum(len(operation.encode()) for operation in self._operations) > MAX_HISTORY_BYTES:
            return None
        invocation, _, index = need.id.rpartition(".")
        return replace(need, id=operation_id(invocation, int(index) + AGAIN), history=tuple(self._operations))

    def _operate(self, command: Command) -> Operate:
        # One model call asks for at most one operation, and a budget's submit may follow it.
        turn = max(0, self.turns - 1)
        index = 1 if self._stop is not None and self._operated_turn == turn else 0
        self._operated_turn = turn
        need = Operate(operation_id(self._id(turn), index), self._sequence, command)
        self._sequence += 1
        return need


def ending(
    asked: RolloutRequested, number: int, need: Finish, attempts: int, now_ms: int, attempt: Attempt | None = None
) -> RolloutCompleted:
    """The record that ends attempt `number`; `attempt` None when it could not even begin (its task is unusable)."""
    infra = need.stop_reason in INFRA_STOPS
    started = attempt.started_ms if attempt else None
    digest = None if need.diff is None else "sha256:" + hashlib.sha256(need.diff.encode()).hexdigest()
    return RolloutCompleted(
        run_id=asked.run_id,
        group_id=asked.group_id,
        trial_id=asked.trial_id,
        attempt=number,
        task_id=asked.task_id,
        fixture_digest=asked.fixture_digest,
        split=asked.split,
        policy_version=attempt.oldest_version if attempt else -1,
        newest_version=attempt.newest_version if attempt else -1,
        stop_reason=need.stop_reason,
        infra_error=need.infra_error if infra else None,
        final_attempt=not infra or number + 1 >= attempts,
        diff=need.diff,
        diff_uri=None,
        diff_digest=digest,
        invocations=attempt.turns if attempt else 0,
        policy_tokens=attempt.tokens if attempt else 0,
        malformed_actions=attempt.malformed if attempt else 0,
        outstanding_operations=need.outstanding,
        outstanding_owner="sandbox" if need.outstanding else None,
        requested_ms=asked.requested_ms,
        started_ms=now_ms if started is None else started,
        ended_ms=now_ms,
        generation_ms=attempt.generation_ms if attempt else 0,
        tool_wait_ms=attempt.tool_wait_ms if attempt else 0,
        tool_findings=tuple(sorted(attempt.findings)) if attempt else None,
    )
