"""What must hold when the dust has settled, from the topics alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields
from typing import Any

from schemas import topics
from schemas.group import GroupAdmission, GroupClosed
from schemas.policy import PolicyPublished, TrainingUpdate
from schemas.record import Record
from schemas.rollout import INFRA_STOPS, Invocation, RolloutCompleted, RolloutRequested
from schemas.verification import VerificationVerdict
from services.runtime.cluster import Cluster
from services.runtime.ledger import audit
from services.runtime.tap import read_all

TIMES = frozenset({"requested_ms", "started_ms", "ended_ms", "closed_ms", "decided_ms", "published_ms"})
READ = (
    topics.TRAINING_UPDATE, topics.POLICY_PUBLISHED, topics.GROUP_ADMISSION, topics.GROUP_CLOSED,
    topics.VERIFICATION_VERDICT, topics.ROLLOUT_COMPLETED, topics.ROLLOUT_INVOCATION, topics.ROLLOUT_REQUESTED,
)  # fmt: skip


@dataclass
class Reckoning:
    """`problems` empty: nothing lost, nothing twice. `duplicates`: repeated records that changed nothing, by topic."""

    trials: int = 0
    updates: int = 0
    losses: int = 0
    duplicates: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    audit: list[str] = field(default_factory=list)


def reckon(cluster: Cluster, *, deadline_s: float) -> Reckoning:
    """Read the run's topics and judge them; services must have been drained."""
    records: list[Record] = []
    undecodable: list[Any] = []
    for topic in READ:
        records += [message.record for message in read_all(cluster, topic, undecodable=undecodable.append)]
    out = Reckoning()
    if undecodable:
        out.problems.append(f"{len(undecodable)} undecodable records")
    result = audit(records, over=True)
    out.audit = result.lines()
    out.losses = (
        sum(result.counts.values())
        - result.requested
        + sum(len(trials) for where, trials in result.in_flight.items() if not where.startswith("admitted"))
    )
    if not result.balanced:
        out.problems += [f"audit: {problem}" for problem in result.problems] or ["the audit does not balance"]
    out.trials = len({r.trial_id for r in records if isinstance(r, RolloutCompleted) and r.final_attempt})
    _versions(records, out)
    _verdicts(records, out)
    _repeats(records, out)
    _waits(records, deadline_s, out)
    return out


def _versions(records: list[Record], out: Reckoning) -> None:
    updates = [r for r in records if isinstance(r, TrainingUpdate)]
    versions = sorted({r.policy_version for r in updates})
    out.updates = len(versions)
    if versions != list(range(1, len(versions) + 1)):
        out.problems.append(f"versions with gaps: {versions}")
    published = {r.policy_version for r in records if isinstance(r, PolicyPublished)}
    if missing := set(versions) - published:
        out.problems.append(f"trained but not published: {sorted(missing)}")
    trained: dict[str, set[int]] = defaultdict(set)
    for update in updates:
        for group in update.group_ids:
            trained[group].add(update.policy_version)
    out.problems += [f"{group} was trained in versions {sorted(v)}" for group, v in trained.items() if len(v) > 1]


def _verdicts(records: list[Record], out: Reckoning) -> None:
    """One final verdict per trial, and no infrastructure fault behind a fail."""
    said: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    first_end: dict[tuple[str, int], RolloutCompleted] = {}
    for r in records:
        if isinstance(r, RolloutCompleted):
            first_end.setdefault((r.trial_id, r.attempt), r)
    for r in records:
        if isinstance(r, VerificationVerdict) and r.verdict != "pending":
            said[r.trial_id].add((r.attempt, r.verdict, r.reward))
            end = first_end.get((r.trial_id, r.attempt))
            if r.verdict == "fail" and (end is None or end.stop_reason in INFRA_STOPS):
                out.problems.append(f"{r.trial_id}.{r.attempt} failed though {end.stop_reason if end else 'no end'}")
    out.problems += [f"{trial}: two verdicts {sorted(v, key=repr)}" for trial, v in said.items() if len(v) > 1]


def _content(record: Record) -> tuple[Any, ...]:
    values = ((f.name, getattr(record, f.name)) for f in fields(record) if f.name not in TIMES)  # type: ignore[arg-type]  # every record is a dataclass
    return tuple(v.tobytes() if hasattr(v, "tobytes") else v for name, v in values if not name.endswith("_ms"))


def _repeats(records: list[Record], out: Reckoning) -> None:
    """Repeated ids: harmless when they say the same. The first in the log counts for invocations."""
    ids: dict[type[Record], Any] = {
        RolloutRequested: lambda r: r.trial_id,
        Invocation: lambda r: r.invocation_id,
        RolloutCompleted: lambda r: (r.trial_id, r.attempt),
        VerificationVerdict: lambda r: None if r.verdict == "pending" else (r.trial_id, r.attempt),
        GroupClosed: lambda r: r.group_id,
        GroupAdmission: lambda r: (r.group_id, r.stage),
        TrainingUpdate: lambda r: r.policy_version,
    }
    seen: dict[tuple[str, Any], tuple[Any, ...]] = {}
    for r in records:
        key = ids.get(type(r), lambda r: None)(r)
        if key is None:
            continue
        name = type(r).__name__
        if (name, key) not in seen:
            seen[name, key] = _content(r)
            continue
        out.duplicates[name] += 1
        if isinstance(r, Invocation) and seen[name, key] != _content(r):
            out.problems.append(f"{key} has two contents")


def _waits(records: list[Record], deadline_s: float, out: Reckoning) -> None:
    """No group waited for its closure longer than the deadline allows."""
    asked: dict[str, int] = {}
    closed: dict[str, int] = {}
    for r in records:
        if isinstance(r, RolloutRequested):
            asked[r.group_id] = min(asked.get(r.group_id, r.requested_ms), r.requested_ms)
        elif isinstance(r, GroupClosed):
            closed.setdefault(r.group_id, r.closed_ms)
    late = [g for g, at in closed.items() if g in asked and at - asked[g] > 1000 * deadline_s]
    out.problems += [f"{group} waited longer than {deadline_s:g} s" for group in late]
