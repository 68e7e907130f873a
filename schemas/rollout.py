"""Records of a rollout: what was asked, what the policy saw and sampled, how the trial ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.bounds import (
    Count,
    Digest,
    Few,
    GroupSize,
    Id,
    Member,
    Millis,
    Sampled,
    Score,
    Seconds,
    Seed,
    Temperature,
    Text,
    Time,
    Turns,
    Version,
    Word,
)  # fmt: skip
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

    run_id: Id
    group_id: Id
    trial_id: Id
    member: Member
    group_size: GroupSize
    task_id: Id
    family: Word
    fixture_digest: Digest
    taskset_digest: Digest
    split: Split
    task_set: Word  # train, heldout_bugs, heldout_families: which set of the task set this member measures or trains
    policy_version: Version  # latest promoted version at dispatch
    temperature: Temperature
    top_k: Count  # 0: off
    top_p: Score  # 1: off
    max_turns: Turns
    max_tokens: Count  # sampled tokens of the whole trial
    wall_s: Seconds
    seed: Seed
    selection: Word  # name of the task-selection policy
    selection_weight: Score  # probability with which this task was drawn
    selection_inputs: Text  # canonical JSON of what the policy looked at
    requested_ms: Time


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

    run_id: Id
    group_id: Id
    trial_id: Id
    split: Split  # an eval trial never joins a training group: the trainer need not hold its tokens
    attempt: Turns
    turn: Turns
    invocation_id: Id
    parent_id: Id | None
    appended_ids: Ids
    prefix_length: Count
    prefix_digest: Digest
    sampled_ids: Ids
    logprobs: Floats
    support_sizes: Ids
    temperature: Temperature
    top_k: Count
    top_p: Score
    seed: Seed
    engine: Word
    policy_version: Version  # as the engine itself reports it
    tokenizer_digest: Digest
    template_digest: Digest
    compaction: Word | None  # why and how the context was cut, None when it was not
    stop: Literal["stop_token", "length"]
    started_ms: Time
    ended_ms: Time


@record("rollout.completed", headers=(*_HEADERS, "stop_reason"))
@dataclass(frozen=True, slots=True)
class RolloutCompleted(Record):
    """One finished trial attempt with its candidate; `diff` None means no candidate or a claim check in `diff_uri`."""

    run_id: Id
    group_id: Id
    trial_id: Id
    attempt: Turns
    task_id: Id
    fixture_digest: Digest
    split: Split
    policy_version: Sampled  # oldest version among the invocations
    newest_version: Sampled
    stop_reason: StopReason
    infra_error: Text | None
    final_attempt: bool  # False: the sampler itself starts another attempt after this one
    diff: Text | None
    diff_uri: Id | None
    diff_digest: Digest | None
    invocations: Turns
    policy_tokens: Count
    malformed_actions: Turns
    outstanding_operations: Few[Id]
    outstanding_owner: Word | None
    requested_ms: Time
    started_ms: Time
    ended_ms: Time
    generation_ms: Millis
    tool_wait_ms: Millis
    tool_findings: Few[Word] | None = None  # what exploit detectors found in the attempt's tool calls
