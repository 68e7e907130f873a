"""One trial gathered from its records into turns, checks, group and fate; pure: any source of records will do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from services.runtime.errors import UserError

if TYPE_CHECKING:
    from schemas.group import GroupAdmission, GroupClosed
    from schemas.ids import TrialRef
    from schemas.policy import TrainingUpdate
    from schemas.record import Record
    from schemas.rollout import Invocation, RolloutCompleted, RolloutRequested
    from schemas.sandbox import SandboxCommand, SandboxResult
    from schemas.verification import VerificationTrial, VerificationVerdict

T = TypeVar("T", bound="Record")


@dataclass
class Operation:
    """One tool call and its answer; either may be missing while the trial is under way."""

    command: SandboxCommand | None = None
    result: SandboxResult | None = None

    @property
    def any(self) -> SandboxCommand | SandboxResult:
        """The half that is there: both name the operation, its attempt and its place in the sequence."""
        found = self.command or self.result
        assert found is not None
        return found


@dataclass
class Turn:
    """One model call and the operations that it asked for, in order."""

    invocation: Invocation
    operations: list[Operation] = field(default_factory=list)


@dataclass
class Attempt:
    """One attempt: its turns, how it ended, the check runs and the verdicts (a pending one may precede the last)."""

    number: int
    turns: list[Turn] = field(default_factory=list)
    loose_operations: list[Operation] = field(default_factory=list)
    completed: RolloutCompleted | None = None
    checks: list[VerificationTrial] = field(default_factory=list)
    verdicts: list[VerificationVerdict] = field(default_factory=list)


@dataclass(frozen=True)
class Fate:
    """Where the trial ended, in the audit's words, with one sentence that says how it is known."""

    name: str  # trained | excluded | evaluated | in_flight
    reason: str | None
    sentence: str


@dataclass
class Trial:
    """Everything the topics say of one trial. `duplicates` counts records that a redelivery wrote twice."""

    trial_id: str
    request: RolloutRequested | None
    attempts: list[Attempt]
    group: GroupClosed | None
    admissions: list[GroupAdmission]
    updates: list[TrainingUpdate]
    fate: Fate
    duplicates: int


def parse_trial_id(text: str) -> TrialRef:
    """The parsed id; UserError with the grammar for a bad one."""
    from schemas.ids import BadId, parse_trial

    try:
        return parse_trial(text)
    except BadId:
        raise UserError(
            f"{text!r} is no trial id",
            "the id's form is run/NNNNNNNN/M: the run's id, the group's number in eight digits, the member's number",
            "such as demo/00000012/3; `rollstream tap rollout.requested` shows those that exist",
        ) from None


def gather(records: Iterable[Record], trial_id: str) -> Trial | None:
    """The trial, from any records in any order; None when none of them is about it. Duplicates are dropped by id."""
    from schemas.group import GroupAdmission, GroupClosed
    from schemas.policy import TrainingUpdate
    from schemas.rollout import RolloutRequested

    ref = parse_trial_id(trial_id)
    kept, duplicates = _distinct(r for r in records if _concerns(r, trial_id, ref.group_id))
    group = next(iter(_of(GroupClosed, kept)), None)
    member = group is not None and trial_id in group.member_trials
    if not member and not any(getattr(r, "trial_id", None) == trial_id for r in kept):
        return None
    trial = Trial(
        trial_id=trial_id,
        request=next(iter(_of(RolloutRequested, kept)), None),
        attempts=_attempts(kept),
        group=group,
        admissions=sorted(_of(GroupAdmission, kept), key=lambda a: a.decided_ms),
        updates=_of(TrainingUpdate, kept),
        fate=Fate("in_flight", None, ""),
        duplicates=duplicates,
    )
    trial.fate = fate_of(trial)
    return trial


def _of(kind: type[T], records: Iterable[Record]) -> list[T]:
    return [record for record in records if isinstance(record, kind)]


def _concerns(record: Record, trial_id: str, group_id: str) -> bool:
    if getattr(record, "trial_id", None) == trial_id:
        return True
    if record.TYPE.name in ("group.closed", "group.admission"):
        return bool(getattr(record, "group_id", None) == group_id)
    return group_id in getattr(record, "group_ids", ())


_IDENTITY = ("attempt", "invocation_id", "operation_id", "number", "infra_attempt", "verdict", "stage", "update_id")


def _distinct(records: Iterable[Record]) -> tuple[list[Record], int]:
    seen: set[tuple[object, ...]] = set()
    kept, duplicates = [], 0
    for record in records:
        key = (record.TYPE.name, *(getattr(record, name, None) for name in _IDENTITY))
        if key in seen:
            duplicates += 1
        else:
            seen.add(key)
            kept.append(record)
    return kept, duplicates


def _attempts(records: list[Record]) -> list[Attempt]:
    from schemas.rollout import Invocation, RolloutCompleted
    from schemas.verification import VerificationTrial, VerificationVerdict

    attempts: dict[int, Attempt] = {}

    def of(number: int) -> Attempt:
        return attempts.setdefault(number, Attempt(number))

    for invocation in sorted(_of(Invocation, records), key=lambda i: (i.attempt, i.turn)):
        of(invocation.attempt).turns.append(Turn(invocation))
    for operation in _operations(records):
        attempt = of(operation.any.attempt)
        owner = operation.any.operation_id.rpartition(".")[0]
        turn = next((t for t in attempt.turns if t.invocation.invocation_id == owner), None)
        (turn.operations if turn is not None else attempt.loose_operations).append(operation)
    for completed in _of(RolloutCompleted, records):
        of(completed.attempt).completed = completed
    for check in sorted(_of(VerificationTrial, records), key=lambda c: (c.number, c.infra_attempt)):
        of(check.attempt).checks.append(check)
    for verdict in _of(VerificationVerdict, records):
        of(verdict.attempt).verdicts.append(verdict)
    return [attempts[number] for number in sorted(attempts)]


def _operations(records: list[Record]) -> list[Operation]:
    from schemas.sandbox import SandboxCommand, SandboxResult

    found: dict[str, Operation] = {}
    for command in _of(SandboxCommand, records):
        found.setdefault(command.operation_id, Operation()).command = command
    for result in _of(SandboxResult, records):
        found.setdefault(result.operation_id, Operation()).result = result
    return sorted(found.values(), key=lambda o: (o.any.sequence, o.any.operation_id))


def fate_of(trial: Trial) -> Fate:
    """The trial's one fate, read from its group's admission and the updates; `in_flight` with what it waits for."""
    if trial.request is not None and trial.request.split == "eval":
        return _evaluated(trial)
    excluded = next((a for a in reversed(trial.admissions) if a.decision == "excluded"), None)
    if trial.updates:
        update = trial.updates[0]
        step = f"update {update.update_id} (v{update.parent_version} → v{update.policy_version})"
        decision = next((a for a in reversed(trial.admissions) if trial.trial_id in a.member_trials), None)
        if decision is None:
            return Fate("trained", None, f"trained in {step}")
        coefficient = decision.member_coefficients[decision.member_trials.index(trial.trial_id)]
        if coefficient is None:
            return Fate(
                "excluded", "unresolved", f"outside the group's closure rule; the others were trained in {step}"
            )
        return Fate("trained", None, f"trained in {step} with coefficient {coefficient:+.3f}")
    if excluded is not None:
        why = _WHY.get(excluded.reason or "", "")
        by = f"by the {_STAGES[excluded.stage]} at trainer v{excluded.trainer_version}"
        return Fate("excluded", excluded.reason, f"excluded as {excluded.reason} {by}" + (f": {why}" if why else ""))
    if trial.admissions:
        return Fate("in_flight", None, "admitted; no update has used its group yet")
    if trial.group is not None:
        return Fate("in_flight", None, "its group is closed; admission has not decided yet")
    return Fate("in_flight", None, _waits_for(trial))


_STAGES = {"admission": "admission service", "trainer": "trainer"}
_WHY = {
    "stale": "the lag was over the bound",
    "unresolved": "a member of its group has no verdict, and the group is only whole with it",
    "zero_contrast": "every member of its group earned the same, so no coefficient is left",
    "halted_version": "the gate halted the version that sampled it",
    "poison": "a record of its group broke the contract",
}


def _evaluated(trial: Trial) -> Fate:
    if trial.group is None or trial.trial_id not in trial.group.member_trials:
        return Fate("in_flight", None, f"evaluation; {_waits_for(trial)}")
    verdict = trial.group.member_verdicts[trial.group.member_trials.index(trial.trial_id)]
    if verdict not in ("pass", "fail"):
        return Fate("excluded", "unresolved", "evaluation without a verdict: counted as unresolved, not as a fail")
    return Fate("evaluated", None, f"evaluated: {verdict}; evaluation trials are never trained on")


def _waits_for(trial: Trial) -> str:
    if not trial.attempts:
        return "requested; the sampler has not begun"
    last = trial.attempts[-1]
    if last.completed is None:
        return f"attempt {last.number} is under way, {len(last.turns)} calls so far"
    if not last.completed.final_attempt:
        return f"attempt {last.number} ended as {last.completed.stop_reason}; another attempt follows"
    if not last.verdicts or last.verdicts[-1].verdict == "pending":
        return "completed; waiting for its verdict"
    return "judged; waiting for the rest of its group"


def unknown_trial(ref: TrialRef, groups: Iterable[str]) -> UserError:
    """The error for a trial that no record is about, with what is there instead; `groups` are the known group ids."""
    known = sorted(set(groups))
    trial = f"{ref.group_id}/{ref.member}"
    if ref.group_id in known:
        do = f"its group exists, but has no member {ref.member}: try {ref.group_id}/0"
        return UserError(f"there is no trial {trial}", "every topic", do)
    mine = [g for g in known if g.startswith(f"{ref.run_id}/")]
    if mine:
        do = f"run {ref.run_id} has the groups {mine[0]} to {mine[-1]}, such as {mine[len(mine) // 2]}/0"
        return UserError(f"there is no trial {trial}", "every topic", do)
    runs = sorted({g.partition("/")[0] for g in known})
    if not runs:
        return UserError(f"there is no trial {trial}", "every topic", "no trial was ever requested on these topics")
    near = difflib.get_close_matches(ref.run_id, runs, n=3, cutoff=0.3) or runs[:5]
    return UserError(f"there is no run {ref.run_id!r}", "every topic", f"the runs here are: {', '.join(near)}")
