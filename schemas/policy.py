"""Records of a policy's life: published checkpoint, gate decision, optimizer step, evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.record import Record, record


@record("policy.published", headers=("run_id", "policy_version"))
@dataclass(frozen=True, slots=True)
class PolicyPublished(Record):
    """A checkpoint whose manifest is complete in the object store; version 0 is the cold start."""

    run_id: str
    policy_version: int
    manifest_uri: str
    manifest_digest: str
    parent_version: int | None
    update_id: str | None
    published_ms: int


@record("policy.gate", headers=("run_id", "policy_version", "decision"))
@dataclass(frozen=True, slots=True)
class PolicyGate(Record):
    """Whether a version may collect data; `findings` is canonical JSON of every check's value and bound."""

    run_id: str
    policy_version: int
    manifest_uri: str
    manifest_digest: str
    decision: Literal["promoted", "held", "halted", "released"]
    findings: str
    decided_ms: int


@record("training.update", aligned=(("group_ids", "group_lags"),), headers=("run_id", "policy_version"))
@dataclass(frozen=True, slots=True)
class TrainingUpdate(Record):
    """One update of the weights with every objective choice; `policy_version` is the version that it produced."""

    run_id: str
    update_id: str
    policy_version: int
    parent_version: int
    group_ids: tuple[str, ...]
    group_lags: tuple[int, ...]  # largest member lag at consumption
    clip_low: float
    clip_high: float
    reduction: str
    advantage: str
    kl_estimator: str
    kl_weight: float
    entropy_weight: float
    correction_cap: float
    imitation_weight: float  # of one extra step on passed trials; 0: pure GRPO
    imitation_trials: int
    learning_rate: float
    optimizer_steps: int
    loss: float
    policy_loss: float
    kl_loss: float
    imitation_loss: float | None
    entropy: float
    ratio_p01: float
    ratio_p50: float
    ratio_p99: float
    mismatch_mean: float  # mean of |log pi_prox - log mu| over scored tokens
    mismatch_max: float
    clip_low_fraction: float
    clip_high_fraction: float
    cap_fraction: float
    gradient_norm: float
    scored_tokens: int
    prompt_tokens: int
    sequences: int
    mean_reward: float
    waited_ms: int
    computed_ms: int
    finished_ms: int


@record(
    "evaluation.result",
    aligned=(("task_ids", "task_samples", "task_passes"),),
    headers=("run_id", "policy_version", "task_set"),
)
@dataclass(frozen=True, slots=True)
class EvaluationResult(Record):
    """One task set measured on one version; per-task counts are kept so that any paired test can be redone."""

    run_id: str
    policy_version: int
    task_set: str
    task_ids: tuple[str, ...]
    task_samples: tuple[int, ...]
    task_passes: tuple[int, ...]
    unresolved: int
    k: int
    pass_at_1: float
    pass_at_k: float
    pass_hat_k: float
    parent_version: int | None
    difference: float | None  # pass@1 minus the parent's, paired by task
    difference_low: float | None  # 95 % interval, bootstrap over tasks
    difference_high: float | None
    finished_ms: int
