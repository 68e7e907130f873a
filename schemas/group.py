"""Records of a group: its closure with coefficients, and the decision whether it may be trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.record import Record, record

Contrast = Literal["mixed", "all_pass", "all_fail", "unresolved"]
ExclusionReason = Literal["stale", "unresolved", "zero_contrast", "halted_version", "poison"]
_MEMBERS = (
    "member_trials",
    "member_attempts",
    "member_verdicts",
    "member_rewards",
    "member_coefficients",
    "member_versions",
    "member_invocations",
    "member_tokens",
)


@record("group.closed", aligned=(_MEMBERS,), headers=("run_id", "group_id", "contrast"))
@dataclass(frozen=True, slots=True)
class GroupClosed(Record):
    """A planned cohort, resolved: members in order of their index, coefficients over the whole group.

    `std` is the population standard deviation. A member outside the closure rule has reward and coefficient None.
    """

    run_id: str
    group_id: str
    task_id: str
    family: str
    split: Literal["train", "eval"]
    task_set: str
    group_size: int
    member_trials: tuple[str, ...]
    member_attempts: tuple[int, ...]
    member_verdicts: tuple[str, ...]
    member_rewards: tuple[float | None, ...]
    member_coefficients: tuple[float | None, ...]
    member_versions: tuple[int, ...]  # oldest version among each member's invocations; -1: it never sampled
    member_invocations: tuple[int, ...]
    member_tokens: tuple[int, ...]
    mean: float | None
    std: float | None
    advantage: str  # std, centered, leave_one_out
    contrast: Contrast
    rule: str  # complete, or shrink:FRACTION
    requested_ms: int  # of the first member
    first_started_ms: int
    last_ended_ms: int
    generation_ms: int  # of the slowest member
    tool_wait_ms: int
    verification_ms: int
    closed_ms: int


@record(
    "group.admission",
    aligned=(
        (
            "member_trials",
            "member_attempts",
            "member_rewards",
            "member_coefficients",
            "member_lags",
            "member_invocations",
            "member_tokens",
        ),
    ),
    headers=("run_id", "group_id", "decision", "reason"),
)
@dataclass(frozen=True, slots=True)
class GroupAdmission(Record):
    """Whether a group may be trained on, with everything the trainer needs beside the tokens.

    `member_lags` = trainer version at admission - oldest version among the member's invocations. Ages are milliseconds
    per stage. The trainer writes a second record for a group (stage `trainer`) when the bound broke in its queue.
    """

    run_id: str
    group_id: str
    stage: Literal["admission", "trainer"]
    decision: Literal["admitted", "excluded"]
    reason: ExclusionReason | None
    task_id: str
    family: str
    contrast: Contrast
    trainer_version: int
    max_lag: int
    member_trials: tuple[str, ...]
    member_attempts: tuple[int, ...]
    member_rewards: tuple[float | None, ...]
    member_coefficients: tuple[float | None, ...]
    member_lags: tuple[int, ...]
    member_invocations: tuple[int, ...]
    member_tokens: tuple[int, ...]
    pass_rate: float | None
    oldest_version: int
    age_generation_ms: int
    age_tool_wait_ms: int
    age_verification_ms: int
    age_buffer_ms: int  # waiting for the rest of the group
    age_queue_ms: int  # from closure to this decision
    decided_ms: int
