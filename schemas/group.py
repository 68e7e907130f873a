"""Records of a group: its closure with coefficients, and the decision whether it may be trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.bounds import (
    Coefficient,
    Count,
    GroupSize,
    Id,
    Lag,
    Millis,
    PerMember,
    Sampled,
    Score,
    Time,
    Turns,
    Version,
    Word,
)  # fmt: skip
from schemas.record import Record, record

Contrast = Literal["mixed", "all_pass", "all_fail", "unresolved"]
ExclusionReason = Literal["stale", "unresolved", "zero_contrast", "halted_version", "poison"]
CONTRADICTED = "contradicted"
"""In place of a member's verdict: what was said of it cannot be what became of the request."""
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

    run_id: Id
    group_id: Id
    task_id: Id
    family: Word
    split: Literal["train", "eval"]
    task_set: Word
    group_size: GroupSize
    member_trials: PerMember[Id]
    member_attempts: PerMember[Turns]
    member_verdicts: PerMember[Word]
    member_rewards: PerMember[Score | None]
    member_coefficients: PerMember[Coefficient | None]
    member_versions: PerMember[Sampled]  # oldest version among each member's invocations; -1: it never sampled
    member_invocations: PerMember[Turns]
    member_tokens: PerMember[Count]
    mean: Score | None
    std: Score | None
    advantage: Word  # std, centered, leave_one_out
    contrast: Contrast
    rule: Word  # complete, or shrink:FRACTION
    requested_ms: Time  # of the first member
    first_started_ms: Time
    last_ended_ms: Time
    generation_ms: Millis  # of the slowest member
    tool_wait_ms: Millis
    verification_ms: Millis
    closed_ms: Time


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

    run_id: Id
    group_id: Id
    stage: Literal["admission", "trainer"]
    decision: Literal["admitted", "excluded"]
    reason: ExclusionReason | None
    task_id: Id
    family: Word
    contrast: Contrast
    trainer_version: Version
    max_lag: Count
    member_trials: PerMember[Id]
    member_attempts: PerMember[Turns]
    member_rewards: PerMember[Score | None]
    member_coefficients: PerMember[Coefficient | None]
    member_lags: PerMember[Lag]
    member_invocations: PerMember[Turns]
    member_tokens: PerMember[Count]
    pass_rate: Score | None
    oldest_version: Sampled
    age_generation_ms: Millis
    age_tool_wait_ms: Millis
    age_verification_ms: Millis
    age_buffer_ms: Millis  # waiting for the rest of the group
    age_queue_ms: Millis  # from closure to this decision
    decided_ms: Time
