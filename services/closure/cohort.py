"""One planned cohort while it waits for its verdicts, and the record that it closes as."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from schemas import ids
from schemas.codec import ContractViolation
from schemas.group import CONTRADICTED, Contrast, GroupClosed
from schemas.rollout import RolloutRequested
from schemas.verification import VerificationVerdict
from services.closure.coefficients import Advantage, coefficients
from services.runtime import plan as plans
from services.runtime.core import Position
from services.runtime.settings import Verifier

MISSING = "missing"
"""Verdict of a member that had none when its group's deadline passed."""
_SAME = ("run_id", "group_id", "group_size", "task_id", "family", "split", "task_set", "fixture_digest")


@dataclass(frozen=True)
class Rule:
    """When a group counts as resolved and how its coefficients are computed.

    `complete`: every member must have a pass or a fail. `shrink`: at least `fraction` of the members must; the others
    leave the group. Either way closure waits for every member (or the deadline): to close as soon as enough are in
    would train on the quick trials only.
    """

    name: Literal["complete", "shrink"] = "complete"
    fraction: float = 1.0
    advantage: Advantage = "std"
    epsilon: float = 1e-6

    @property
    def text(self) -> str:
        return "complete" if self.name == "complete" else f"shrink:{self.fraction:g}"

    def resolved(self, judged: int, planned: int) -> bool:
        """Whether `judged` members with a reward out of `planned` make a group that may be trained on."""
        if self.name == "complete":
            return judged == planned
        return judged > 0 and judged >= self.fraction * planned


@dataclass(frozen=True)
class Rewards:
    """What the declared objective can give: a pass and a fail, lowest and highest."""

    passed: tuple[float, float] = (0.0, 2.0)
    failed: tuple[float, float] = (-1.0, 1.0)

    @classmethod
    def of(cls, settings: Verifier) -> Rewards:
        """As the verifier composes them: correctness, plus form, minus length, plus partial credit of a fail."""
        form, length = settings.format_weight, settings.length_weight
        partial = settings.partial_weight if settings.objective == "partial_cases" else 0.0
        return cls((1.0 - length, 1.0 + form), (-length, form + partial))

    def contradiction(self, verdict: VerificationVerdict) -> str | None:
        """Why no verifier of this run gave this reward; None when one can have."""
        if verdict.verdict not in ("pass", "fail") or verdict.reward is None:
            return None
        low, high = self.passed if verdict.verdict == "pass" else self.failed
        if low - 1e-6 <= verdict.reward <= high + 1e-6:
            return None
        return f"reward {verdict.reward:g} for a {verdict.verdict}, which earns {low:g} to {high:g}"


def group_number(record: RolloutRequested | VerificationVerdict) -> int:
    """Number of the group that a trial's record belongs to. Raises ContractViolation when its ids disagree."""
    try:
        trial = ids.parse_trial(record.trial_id)
    except ids.BadId as e:
        raise ContractViolation("id", str(e)) from e
    if trial.group_id != record.group_id:
        raise ContractViolation("id", f"{record.trial_id} is no member of {record.group_id}")
    return trial.group


@dataclass
class Cohort:
    """What is known of one group: its plan, the first final verdict of each member, and the records that said so."""

    group_id: str
    number: int
    first_seen_ms: int
    request: RolloutRequested | None = None
    requested_ms: int | None = None
    planned: set[int] = field(default_factory=set)
    verdicts: dict[str, VerificationVerdict] = field(default_factory=dict)
    positions: list[Position] = field(default_factory=list)
    judged: list[Position] = field(default_factory=list)
    """Those of `positions` that are verdicts."""

    def plan(self, record: RolloutRequested, position: Position) -> None:
        """Note a planned member. Raises ContractViolation when it contradicts the members before it."""
        if not 0 <= record.member < record.group_size:
            raise ContractViolation("member", f"{record.trial_id}: no member {record.member} in {record.group_size}")
        if record.trial_id != ids.trial_id(self.group_id, record.member):
            raise ContractViolation("id", f"{record.trial_id} is not member {record.member} of {record.group_id}")
        if self.request is not None:
            for name in _SAME:
                ours, theirs = getattr(self.request, name), getattr(record, name)
                if ours != theirs:
                    raise ContractViolation("plan", f"{record.trial_id}: {name} {theirs!r}, others of it say {ours!r}")
        else:
            self.request = record
        self.planned.add(record.member)
        self.requested_ms = min(record.requested_ms, self.requested_ms or record.requested_ms)
        self.positions.append(position)

    def judge(self, record: VerificationVerdict, position: Position) -> None:
        """Note a final verdict; the first one of a trial stands. Raises ContractViolation for one without a reward.

        It is compared with the plan when the group closes: either may be read first.
        """
        if record.verdict in ("pass", "fail") and record.reward is None:
            raise ContractViolation("reward", f"{record.trial_id}: verdict {record.verdict} without a reward")
        self.verdicts.setdefault(record.trial_id, record)
        self.positions.append(position)
        self.judged.append(position)

    @property
    def complete(self) -> bool:
        """Whether every planned member has a final verdict, and every request was read.

        Verdicts lie on another topic and can be read before their request. A group that closed before its last request
        was read would, after a crash at the wrong moment, find that request again and wait for verdicts once more.
        """
        plan = self.request
        if plan is None or len(self.verdicts) < plan.group_size or len(self.planned) < plan.group_size:
            return False
        return all(trial in self.verdicts for trial in self.members)

    @property
    def members(self) -> tuple[str, ...]:
        """Trial ids in order of member index; empty while the plan is unknown."""
        size = self.request.group_size if self.request is not None else 0
        return tuple(ids.trial_id(self.group_id, member) for member in range(size))


def contrast(verdicts: list[str]) -> Contrast:
    """Contrast class of resolved members."""
    passes = verdicts.count("pass")
    if passes == len(verdicts):
        return "all_pass"
    return "mixed" if passes else "all_fail"


def contradictions(cohort: Cohort, rewards: Rewards) -> dict[str, str]:
    """Trial -> why its verdict cannot be what became of its request."""
    asked, found = cohort.request, {}
    assert asked is not None, "only a plan can be contradicted"
    for trial in cohort.members:
        verdict = cohort.verdicts.get(trial)
        if verdict is not None:
            why = plans.contradiction(asked, plans.claim(verdict)) or rewards.contradiction(verdict)
            if why is not None:
                found[trial] = why
    return found


def close(cohort: Cohort, rule: Rule, now_ms: int, contradicted: Collection[str] = ()) -> GroupClosed:
    """The closure of a cohort whose plan is known, as it stands now; a member without a verdict is `missing`.

    Only members judged pass or fail have a reward; only those of a resolved group have a coefficient. Of members in
    `contradicted` nothing is believed.
    """
    plan = cohort.request
    assert plan is not None, "a cohort closes only when its plan is known"
    found = [None if trial in contradicted else cohort.verdicts.get(trial) for trial in cohort.members]
    words = [
        verdict.verdict if verdict else CONTRADICTED if trial in contradicted else MISSING
        for trial, verdict in zip(cohort.members, found, strict=True)
    ]
    rewards = [verdict.reward if verdict and verdict.verdict in ("pass", "fail") else None for verdict in found]
    judged = [reward for reward in rewards if reward is not None]
    result = None
    if rule.resolved(len(judged), plan.group_size):
        result = coefficients(judged, rule.advantage, rule.epsilon)
    values = iter(result.values if result else ())
    known = [verdict for verdict in found if verdict is not None]
    requested_ms = cohort.requested_ms if cohort.requested_ms is not None else plan.requested_ms
    return GroupClosed(
        run_id=plan.run_id,
        group_id=plan.group_id,
        task_id=plan.task_id,
        family=plan.family,
        split=plan.split,
        task_set=plan.task_set,
        group_size=plan.group_size,
        member_trials=cohort.members,
        member_attempts=tuple(verdict.attempt if verdict else 0 for verdict in found),
        member_verdicts=tuple(words),
        member_rewards=tuple(rewards),
        member_coefficients=tuple(None if not result or reward is None else next(values) for reward in rewards),
        member_versions=tuple(verdict.policy_version if verdict else -1 for verdict in found),
        member_invocations=tuple(verdict.invocations if verdict else 0 for verdict in found),
        member_tokens=tuple(verdict.policy_tokens if verdict else 0 for verdict in found),
        mean=result.mean if result else None,
        std=result.std if result else None,
        advantage=rule.advantage,
        contrast=contrast([word for word in words if word in ("pass", "fail")]) if result else "unresolved",
        rule=rule.text,
        requested_ms=requested_ms,
        first_started_ms=min((verdict.started_ms for verdict in known), default=requested_ms),
        last_ended_ms=max((verdict.ended_ms for verdict in known), default=requested_ms),
        generation_ms=max((verdict.generation_ms for verdict in known), default=0),
        tool_wait_ms=max((verdict.tool_wait_ms for verdict in known), default=0),
        verification_ms=max((v.verification_ended_ms - v.verification_started_ms for v in known), default=0),
        closed_ms=now_ms,
    )
