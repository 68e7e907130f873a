"""Records of a rollout: what was asked, what the policy saw and sampled, how the trial ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.record import Floats, Ids, Record, record

Split = Literal["train", "eval"]
StopReason = Literal[
    "submitted", "turn_budget", "token_budget", "wall_budget", "context_overflow", "engine", "sandbox_lost", "preempted"
]
INFRA_STOPS = frozenset({"engine", "sandbox_lost", "preempted"})
"""Stop reasons that are the system's fault: such a trial attempt is never judged."""
_HEADERS = ("run_id", "group_id", "trial_id", "policy_version")


@record("rollout.requested", headers=(*_HEADERS, "task_id", "split"))
@dataclass(frozen=True, slots=True)
class RolloutRequested(Record):
    """One planned member of a group. Times are Unix milliseconds."""

    run_id: str
    group_id: str
    trial_id: str
    member: int
    group_size: int
    task_id: str
    family: str
    fixture_digest: str
    taskset_digest: str
    split: Split
    task_set: str  # train, heldout_bugs, heldout_families: which set of the task set this member measures or trains
    policy_version: int  # latest promoted version at dispatch
    temperature: float
    top_k: int  # 0: off
    top_p: float  # 1: off
    max_turns: int
    max_tokens: int  # sampled tokens of the whole trial
    wall_s: float
    seed: int
    selection: str  # name of the task-selection policy
    selection_weight: float  # probability with which this task was drawn
    selection_inputs: str  # canonical JSON of what the policy looked at
    requested_ms: int


@record(
    "rollout.invocation",
    aligned=(("sampled_ids", "logprobs", "support_sizes"),),
    headers=(*_HEADERS, "invocation_id"),
)
@dataclass(frozen=True, slots=True)
class Invocation(Record):
    """One model call, token for token. The prefix is the parent's prefix + the parent's sampled ids + `appended_ids`.

    `parent_id` None means that `appended_ids` is the whole prefix (first turn, or after a compaction). `logprobs` are
    natural logs under the distribution actually sampled from (temperature, top-k, top-p applied); `support_sizes` is
    how many tokens that distribution kept. `stop` is `stop_token` only when the stop token itself was sampled.
    """

    run_id: str
    group_id: str
    trial_id: str
    split: Split  # an eval trial never joins a training group: the trainer need not hold its tokens
    attempt: int
    turn: int
    invocation_id: str
    parent_id: str | None
    appended_ids: Ids
    prefix_length: int
    prefix_digest: str
    sampled_ids: Ids
    logprobs: Floats
    support_sizes: Ids
    temperature: float
    top_k: int
    top_p: float
    seed: int
    engine: str
    policy_version: int  # as the engine itself reports it
    tokenizer_digest: str
    template_digest: str
    compaction: str | None  # why and how the context was cut, None when it was not
    stop: Literal["stop_token", "length"]
    started_ms: int
    ended_ms: int


@record("rollout.completed", headers=(*_HEADERS, "stop_reason"))
@dataclass(frozen=True, slots=True)
class RolloutCompleted(Record):
    """One finished trial attempt with its candidate; `diff` None means no candidate or a claim check in `diff_uri`."""

    run_id: str
    group_id: str
    trial_id: str
    attempt: int
    task_id: str
    fixture_digest: str
    split: Split
    policy_version: int  # oldest version among the invocations
    newest_version: int
    stop_reason: StopReason
    infra_error: str | None
    final_attempt: bool  # False: the sampler itself starts another attempt after this one
    diff: str | None
    diff_uri: str | None
    diff_digest: str | None
    invocations: int
    policy_tokens: int
    malformed_actions: int
    outstanding_operations: tuple[str, ...]
    outstanding_owner: str | None
    requested_ms: int
    started_ms: int
    ended_ms: int
    generation_ms: int
    tool_wait_ms: int
    tool_findings: tuple[str, ...] | None = None  # what exploit detectors found in the attempt's tool calls
