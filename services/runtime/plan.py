"""What a service claims of a trial, compared with what was asked for: nobody's word is taken for the plan."""

from __future__ import annotations

from typing import NamedTuple

from schemas.rollout import RolloutCompleted, RolloutRequested
from schemas.verification import VerificationVerdict


class Claim(NamedTuple):
    """The part of a completion or verdict that a request decides, and nothing that takes memory."""

    by: str
    trial_id: str
    task_id: str
    fixture_digest: str
    split: str
    oldest: int
    newest: int
    invocations: int
    tokens: int
    malformed: int


def claim(record: RolloutCompleted | VerificationVerdict) -> Claim:
    """What the record says of its trial."""
    malformed = record.malformed_actions if isinstance(record, RolloutCompleted) else 0
    return Claim(
        record.TYPE.name, record.trial_id, record.task_id, record.fixture_digest, record.split,
        record.policy_version, record.newest_version, record.invocations, record.policy_tokens, malformed,
    )  # fmt: skip


def contradiction(asked: RolloutRequested, said: Claim) -> str | None:
    """Why this cannot be what became of the request; None when it can be."""
    for name, ours, theirs in (
        ("task", asked.task_id, said.task_id),
        ("fixture", asked.fixture_digest, said.fixture_digest),
        ("split", asked.split, said.split),
    ):
        if ours != theirs:
            return f"{name} {theirs!r}, but {ours!r} was asked for"
    for name, most, count in (
        ("model calls", asked.max_turns, said.invocations),
        ("sampled tokens", asked.max_tokens, said.tokens),
        ("malformed actions", said.invocations, said.malformed),
    ):
        if count > most:
            return f"{count} {name}, but at most {most} can be"
    if said.oldest > said.newest:
        return f"the oldest version is {said.oldest}, the newest {said.newest}"
    return None
