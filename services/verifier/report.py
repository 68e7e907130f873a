"""Judgements as records: check runs and the verdict, with what the attempt's record carries over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, get_args

from schemas.rollout import RolloutCompleted
from schemas.verification import Evidence, VerificationTrial, VerificationVerdict
from services.runtime.jail.backend import Evidence as AttributionEvidence
from services.runtime.settings import Verifier
from services.verifier.candidate import Identity, Task
from services.verifier.judge import Judgement
from services.verifier.reward import PARTIAL_CASES, Scores, Weights, compose, partial_score

MAX_CAUSE_CHARS = 80
LEVELS: tuple[str, ...] = get_args(AttributionEvidence)
"""From full to least."""


@dataclass(frozen=True)
class Subject:
    """What was judged against what; None where there was nothing to judge."""

    verifier_digest: str
    task: Task | None = None
    candidate: Identity | None = None


def trials(record: RolloutCompleted, task: Task, judgement: Judgement) -> list[VerificationTrial]:
    """One record per check run; no hidden input or expected value enters it."""
    return [
        VerificationTrial(
            run_id=record.run_id,
            group_id=record.group_id,
            trial_id=record.trial_id,
            attempt=record.attempt,
            number=run.number,
            infra_attempt=run.infra_attempt,
            seed=run.seed,
            outcome=run.outcome,
            cause=run.cause[:MAX_CAUSE_CHARS],
            evidence=cast(Evidence, task.evidence),
            cases=run.facts.wanted,
            cases_answered=run.facts.answered,
            cpu_s=run.facts.usage.cpu_s,
            memory_bytes=run.facts.usage.memory_bytes,
            oom_kills=run.facts.usage.oom_kills,
            pids_denied=run.facts.usage.pids_denied,
            host_pressure=run.facts.pressure,
            started_ms=run.started_ms,
            ended_ms=run.ended_ms,
            hash_seed=run.facts.hash_seed,
            backend=run.facts.backend or None,
            cases_right=run.facts.right,
            host_wait_s=run.facts.usage.host_wait_s,
            wall_s=run.facts.wall_s,
            attribution_evidence=run.facts.evidence or None,
        )
        for run in judgement.runs
    ]


def _scores(record: RolloutCompleted, judgement: Judgement, settings: Verifier, task: Task | None) -> Scores | None:
    if judgement.verdict not in ("pass", "fail") or task is None:
        return None
    # Right answers are only what was compared outside the candidate's interpreter.
    partial = settings.objective == PARTIAL_CASES and task.evidence != "E1"
    return compose(
        judgement.verdict == "pass",
        record.invocations,
        record.malformed_actions,
        record.policy_tokens,
        task.fixture.budgets.tokens,
        Weights.of(settings),
        partial_score(judgement) if partial else None,
    )


def _findings(record: RolloutCompleted, candidate: Identity | None) -> tuple[str, ...] | None:
    """What exploit watch found in the attempt's tool calls and in its change; None: it looked at neither."""
    if candidate is None:
        return record.tool_findings
    return tuple(sorted({*(record.tool_findings or ()), *candidate.findings}))


def weakest(evidence: set[str]) -> str | None:
    """The least that any check run could be attributed by; None where none ran."""
    return max(evidence & set(LEVELS), key=LEVELS.index, default=None)


def verdict(
    record: RolloutCompleted,
    judgement: Judgement,
    settings: Verifier,
    subject: Subject,
    started_ms: int,
    ended_ms: int,
    reused: bool,
) -> VerificationVerdict:
    """The one final verdict of an attempt, or a pending one. `reward` is None unless it passed or failed."""
    task = subject.task
    scores = _scores(record, judgement, settings, task)
    faults = sum(run.outcome == "infra" for run in judgement.runs)
    backends = {run.facts.backend for run in judgement.runs} - {""}
    return VerificationVerdict(
        run_id=record.run_id,
        group_id=record.group_id,
        trial_id=record.trial_id,
        attempt=record.attempt,
        task_id=record.task_id,
        split=record.split,
        policy_version=record.policy_version,
        newest_version=record.newest_version,
        verdict=judgement.verdict,
        cause=judgement.cause[:MAX_CAUSE_CHARS],
        reward=scores.reward if scores else None,
        correctness=scores.correctness if scores else None,
        format_score=scores.format_score if scores else None,
        length_score=scores.length_score if scores else None,
        evidence=cast(Evidence, task.evidence) if task and judgement.runs else "none",
        trials_run=0 if reused else len(judgement.runs),
        trials_wanted=settings.trials,
        reused=reused,
        verifier_digest=subject.verifier_digest,
        check_digest=task.check.digest if task else "",
        fixture_digest=record.fixture_digest,
        candidate_digest=subject.candidate.digest if subject.candidate else None,
        invocations=record.invocations,
        policy_tokens=record.policy_tokens,
        requested_ms=record.requested_ms,
        started_ms=record.started_ms,
        ended_ms=record.ended_ms,
        generation_ms=record.generation_ms,
        tool_wait_ms=record.tool_wait_ms,
        verification_started_ms=started_ms,
        verification_ended_ms=ended_ms,
        objective=settings.objective,
        partial_score=scores.partial if scores else None,
        findings=_findings(record, subject.candidate),
        certificate=task.certificate.digest if task and task.certificate else None,
        backend=min(backends, default=None),
        retry=faults if judgement.verdict == "pending" else None,
        attribution_evidence=weakest({run.facts.evidence for run in judgement.runs}),
    )
