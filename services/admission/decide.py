"""The decision on one closed group: lag per member, the reason of an exclusion, and the age of every stage."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass

from schemas import ids
from schemas.bounds import YEAR_2200_MS
from schemas.group import CONTRADICTED, ExclusionReason, GroupAdmission, GroupClosed

NEVER_SAMPLED = -1
"""Version and lag of a member whose trial never reached the policy."""


@dataclass(frozen=True)
class Standing:
    """What a decision depends on beside the group: the trainer's version, the bound, and which versions are halted."""

    trainer_version: int
    max_lag: int
    halted: Set[int] = frozenset()


def contradicts_itself(group: GroupClosed, published: int | None = None) -> str | None:
    """Why a group cannot be trained on whatever its age; None when it can. `published`: the newest known version."""
    if CONTRADICTED in group.member_verdicts:
        at = group.member_verdicts.index(CONTRADICTED)
        if group.contrast == "unresolved":
            return f"{group.member_trials[at]}: its verdict contradicts its request"
    members = tuple(ids.trial_id(group.group_id, member) for member in range(group.group_size))
    if group.member_trials != members:
        return f"its members are {group.member_trials[:8]}, not the {group.group_size} of the group"
    newest = max(group.member_versions, default=NEVER_SAMPLED)
    if published is not None and newest > published:
        return f"version {newest} was never published"
    return None if group.contrast == "unresolved" else _unfit(group)


def _unfit(group: GroupClosed) -> str | None:
    """Why a resolved group has no member to learn from, or one that nothing can be learnt from."""
    for trial, coefficient, reward, word, version, tokens in zip(
        group.member_trials, group.member_coefficients, group.member_rewards, group.member_verdicts,
        group.member_versions, group.member_tokens, strict=True,
    ):  # fmt: skip
        if coefficient is None:
            continue
        if not math.isfinite(coefficient):
            return f"{trial}: the coefficient is {coefficient}"
        if reward is None or word not in ("pass", "fail"):
            return f"{trial}: a coefficient without a reward ({word})"
        if version < 0 or tokens <= 0:
            return f"{trial}: judged, but at version {version} with {tokens} sampled tokens"
    if all(coefficient is None for coefficient in group.member_coefficients):
        return "resolved, but no member has a coefficient"
    return None


def reason(group: GroupClosed, standing: Standing) -> ExclusionReason | None:
    """Why the group is excluded; None admits it. Only members that would be trained on count towards lag and halts."""
    if contradicts_itself(group, standing.trainer_version) is not None:
        return "poison"
    if group.contrast == "unresolved":
        return "unresolved"
    trained = [
        version
        for version, coefficient in zip(group.member_versions, group.member_coefficients, strict=True)
        if coefficient is not None
    ]
    if any(version in standing.halted for version in trained):
        return "halted_version"
    if any(standing.trainer_version - version > standing.max_lag for version in trained):
        return "stale"
    if not any(group.member_coefficients):
        return "zero_contrast"
    return None


def pass_rate(group: GroupClosed) -> float | None:
    """Share of passes among the judged members of a resolved group; None when it is unresolved."""
    if group.contrast == "unresolved":
        return None
    judged = [verdict for verdict in group.member_verdicts if verdict in ("pass", "fail")]
    return judged.count("pass") / len(judged) if judged else None


def decide(group: GroupClosed, standing: Standing, now_ms: int) -> GroupAdmission:
    """The admission record of a closed training group.

    A member's lag is trainer version - the oldest version among its invocations, `NEVER_SAMPLED` if it has none.
    `age_buffer_ms` is what the slowest member's own stages do not explain of the time from first start to closure.
    """
    why = reason(group, standing)
    sampled = [version for version in group.member_versions if version >= 0]
    explained = group.generation_ms + group.tool_wait_ms + group.verification_ms
    return GroupAdmission(
        run_id=group.run_id,
        group_id=group.group_id,
        stage="admission",
        decision="admitted" if why is None else "excluded",
        reason=why,
        task_id=group.task_id,
        family=group.family,
        contrast=group.contrast,
        trainer_version=standing.trainer_version,
        max_lag=standing.max_lag,
        member_trials=group.member_trials,
        member_attempts=group.member_attempts,
        member_rewards=group.member_rewards,
        member_coefficients=group.member_coefficients,
        member_lags=tuple(
            standing.trainer_version - version if version >= 0 else NEVER_SAMPLED for version in group.member_versions
        ),
        member_invocations=group.member_invocations,
        member_tokens=group.member_tokens,
        pass_rate=pass_rate(group),
        oldest_version=min(sampled, default=NEVER_SAMPLED),
        age_generation_ms=group.generation_ms,
        age_tool_wait_ms=group.tool_wait_ms,
        age_verification_ms=group.verification_ms,
        age_buffer_ms=min(YEAR_2200_MS, max(0, group.closed_ms - group.first_started_ms - explained)),
        age_queue_ms=max(0, now_ms - group.closed_ms),
        decided_ms=now_ms,
    )
