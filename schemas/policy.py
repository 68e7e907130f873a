"""Records of a policy's life: published checkpoint, gate decision, optimizer step, evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.bounds import Count, Digest, Id, Lag, Measured, Millis, PerMember, PerTask, Text, Time, Version, Word
from schemas.record import Record, record


@record("policy.published", headers=("run_id", "policy_version"))
@dataclass(frozen=True, slots=True)
class PolicyPublished(Record):
    """A checkpoint whose manifest is complete in the object store; version 0 is the cold start."""

    run_id: Id
    policy_version: Version
    manifest_uri: Id
    manifest_digest: Digest
    parent_version: Version | None
    update_id: Id | None
    published_ms: Time


@record("policy.gate", headers=("run_id", "policy_version", "decision"))
@dataclass(frozen=True, slots=True)
class PolicyGate(Record):
    """Whether a version may collect data; `findings` is canonical JSON of every check's value and bound."""

    run_id: Id
    policy_version: Version
    manifest_uri: Id
    manifest_digest: Digest
    decision: Literal["promoted", "held", "halted", "released"]
    findings: Text
    decided_ms: Time


@record("training.update", aligned=(("group_ids", "group_lags"),), headers=("run_id", "policy_version"))
@dataclass(frozen=True, slots=True)
class TrainingUpdate(Record):
    """One update of the weights with every objective choice; `policy_version` is the version that it produced."""

    run_id: Id
    update_id: Id
    policy_version: Version
    parent_version: Version
    group_ids: PerMember[Id]
    group_lags: PerMember[Lag]  # largest member lag at consumption
    clip_low: Measured
    clip_high: Measured
    reduction: Word
    advantage: Word
    kl_estimator: Word
    kl_weight: Measured
    entropy_weight: Measured
    correction_cap: Measured
    imitation_weight: Measured  # of one extra step on passed trials; 0: pure GRPO
    imitation_trials: Count
    learning_rate: Measured
    optimizer_steps: Count
    loss: Measured
    policy_loss: Measured
    kl_loss: Measured
    imitation_loss: Measured | None
    entropy: Measured
    ratio_p01: Measured
    ratio_p50: Measured
    ratio_p99: Measured
    mismatch_mean: Measured  # mean of |log pi_prox - log mu| over scored tokens
    mismatch_max: Measured
    clip_low_fraction: Measured
    clip_high_fraction: Measured
    cap_fraction: Measured
    gradient_norm: Measured
    scored_tokens: Count
    prompt_tokens: Count
    sequences: Count
    mean_reward: Measured
    waited_ms: Millis
    computed_ms: Millis
    finished_ms: Time


@record(
    "evaluation.result",
    aligned=(("task_ids", "task_samples", "task_passes"),),
    headers=("run_id", "policy_version", "task_set"),
)
@dataclass(frozen=True, slots=True)
class EvaluationResult(Record):
    """One task set measured on one version; per-task counts are kept so that any paired test can be redone."""

    run_id: Id
    policy_version: Version
    task_set: Word
    task_ids: PerTask[Id]
    task_samples: PerTask[Count]
    task_passes: PerTask[Count]
    unresolved: Count
    k: Count
    pass_at_1: Measured
    pass_at_k: Measured
    pass_hat_k: Measured
    parent_version: Version | None
    difference: Measured | None  # pass@1 minus the parent's, paired by task
    difference_low: Measured | None  # 95 % interval, bootstrap over tasks
    difference_high: Measured | None
    finished_ms: Time
