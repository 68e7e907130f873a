"""From the records of an admitted group to the sequences that the update scores, or words for why there are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from schemas.bounds import INT32
from schemas.group import GroupAdmission
from schemas.ids import invocation_id
from schemas.rollout import Invocation
from services.agent.context import prefix_digest
from services.trainer.packing import Ids, ScoredCall, TrainGroup, TrainMember


class Poison(ValueError):
    """The records of a group contradict each other: nothing of it may enter the weights."""


@dataclass(frozen=True)
class Member:
    """One member that is trained on: those outside the closure rule have no coefficient and are left out."""

    trial_id: str
    attempt: int
    coefficient: float
    reward: float
    invocations: int
    tokens: int
    version: int

    def calls(self) -> Iterator[str]:
        """Invocation ids of the attempt, by turn; as many as somebody claims there are."""
        return (invocation_id(self.trial_id, self.attempt, turn) for turn in range(self.invocations))


def members(admission: GroupAdmission) -> Iterator[Member]:
    """The members to train on, in order."""
    rows = zip(
        admission.member_trials,
        admission.member_attempts,
        admission.member_coefficients,
        admission.member_rewards,
        admission.member_invocations,
        admission.member_tokens,
        admission.member_lags,
        strict=True,
    )
    for trial, attempt, coefficient, reward, invocations, tokens, lag in rows:
        if coefficient is not None:
            version = admission.trainer_version - lag
            yield Member(trial, attempt, coefficient, reward or 0.0, invocations, tokens, version)


def oldest_version(admission: GroupAdmission) -> int:
    """Oldest weights among the calls that would be trained on."""
    return min((member.version for member in members(admission)), default=admission.trainer_version)


def missing(admission: GroupAdmission, records: Mapping[str, Invocation]) -> Iterator[str]:
    """Ids of the model calls that have not been read yet, one after the other: the first costs no more than what has
    been read, whatever number of calls the admission claims."""
    return (call for member in members(admission) for call in member.calls() if call not in records)


@dataclass(frozen=True)
class Room:
    """What the policy can take: token ids below `vocabulary`, sequences of at most `context` tokens."""

    vocabulary: int = INT32
    context: int = INT32


def assemble(
    admission: GroupAdmission, records: Mapping[str, Invocation], version: int, room: Room = Room()
) -> TrainGroup:
    """The group as the update wants it, at trainer `version`. Raises Poison.

    Every prefix is put together from the log and checked against the digest of what the engine was really given.
    """
    made = []
    temperatures = set()
    for member in members(admission):
        calls: list[ScoredCall] = []
        prefixes: dict[str, Ids] = {}
        for call_id in member.calls():
            record = records[call_id]
            prefix = _prefix(record, prefixes, records)
            _check_fits(record, prefix, room)
            prefixes[call_id] = prefix
            calls.append(ScoredCall(prefix, record.sampled_ids, record.logprobs))
            temperatures.add(record.temperature)
        _check_versions(member, records, version)
        sampled = sum(len(call.sampled) for call in calls)
        if sampled != member.tokens:
            raise Poison(f"{member.trial_id}: {sampled} sampled tokens in the log, {member.tokens} were judged")
        made.append(TrainMember(member.trial_id, tuple(calls), member.coefficient, member.reward))
    if len(temperatures) > 1:
        raise Poison(f"sampled at several temperatures: {sorted(temperatures)}")
    if not made:
        raise Poison("no member has a coefficient")
    lag = version - oldest_version(admission)
    return TrainGroup(admission.group_id, tuple(made), lag, temperatures.pop() if temperatures else 1.0)


def _check_fits(record: Invocation, prefix: Ids, room: Room) -> None:
    if len(prefix) + len(record.sampled_ids) > room.context:
        raise Poison(f"{record.invocation_id}: {len(prefix)} + {len(record.sampled_ids)} ids, over {room.context}")
    largest = max((int(ids.max()) for ids in (record.appended_ids, record.sampled_ids) if len(ids)), default=0)
    if largest >= room.vocabulary:
        raise Poison(f"{record.invocation_id}: token {largest} is none of the {room.vocabulary} of the policy")
    if not record.temperature > 0:
        raise Poison(f"{record.invocation_id}: sampled at temperature {record.temperature:g}")


def _check_versions(member: Member, records: Mapping[str, Invocation], version: int) -> None:
    found = [records[call_id].policy_version for call_id in member.calls()]
    if found and (min(found) != member.version or max(found) > version):
        raise Poison(
            f"{member.trial_id}: sampled by versions {min(found)} to {max(found)}, {member.version} was judged"
        )


def _prefix(record: Invocation, prefixes: Mapping[str, Ids], records: Mapping[str, Invocation]) -> Ids:
    if record.parent_id is None:
        prefix = record.appended_ids
    elif record.parent_id in prefixes:
        prefix = np.concatenate(
            [prefixes[record.parent_id], records[record.parent_id].sampled_ids, record.appended_ids]
        )
    else:
        raise Poison(f"{record.invocation_id} continues {record.parent_id}, which is no earlier call of its attempt")
    if len(prefix) != record.prefix_length or prefix_digest(prefix) != record.prefix_digest:
        raise Poison(f"{record.invocation_id}: the prefix in the log is not the one that was sampled from")
    if not np.isfinite(record.logprobs).all():
        raise Poison(f"{record.invocation_id}: a log-probability is not finite")
    return prefix
