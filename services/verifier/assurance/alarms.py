"""Alarms about the verdicts themselves, as records; the id says what each is about, so that it is raised once."""

from __future__ import annotations

from collections.abc import Collection

from schemas.verification import VerificationAlarm, VerificationCanary, VerificationVerdict
from services.verifier.assurance.sequential import Sequential
from services.verifier.assurance.shares import Share

ALWAYS_WRONG = "always_wrong"
"""Cause of an audit in which every check run gave a wrong answer: nothing like what passed before."""
UNSTEADY = "unsteady_"
"""Before the cause of an audit in which some check runs passed."""


def quarantine(canary: VerificationCanary, test: Sequential) -> VerificationAlarm:
    """A rejected reference: its check set is not to be believed."""
    detail = f"the reference of {canary.task_id} was rejected ({canary.cause}); verdicts on its check set are unknown"
    return VerificationAlarm(
        run_id=canary.run_id,
        alarm_id=f"quarantine:{canary.check_digest}",
        kind="quarantine",
        severity="warn",
        task_id=canary.task_id,
        check_digest=canary.check_digest,
        policy_version=None,
        count=test.rejections,
        total=test.runs,
        bound=test.bounds.quarantine,
        detail=detail,
        raised_ms=canary.ended_ms,
    )


def soundness(canary: VerificationCanary) -> VerificationAlarm:
    """Something wrong passed. A known-bad candidate stops the line: it is our own, and nobody else could make it pass.

    A pass that was rejected when it was judged again only warns: what a candidate answers is in its own hands, wrong
    answers too (it may count its check runs). Several such ones together are another alarm (`contradicted`).
    """
    if canary.kind == "known_bad":
        detail = f"a candidate of {canary.task_id} that is known to be wrong passed ({canary.candidate_digest})"
    else:
        detail = f"{canary.trial_id} passed, and was rejected when it was judged again ({canary.cause})"
    return VerificationAlarm(
        run_id=canary.run_id,
        alarm_id=f"soundness:{canary.canary_id}",
        kind="soundness",
        severity="stop" if canary.kind == "known_bad" else "warn",
        task_id=canary.task_id,
        check_digest=canary.check_digest,
        policy_version=canary.policy_version,
        count=1,
        total=1,
        bound=None,
        detail=detail,
        raised_ms=canary.ended_ms,
    )


def contradicted(canary: VerificationCanary, tasks: Collection[str]) -> VerificationAlarm:
    """Passes of candidates that have nothing in common were wrong in every run of their audits: the fault is ours."""
    return VerificationAlarm(
        run_id=canary.run_id,
        alarm_id="soundness:contradicted",
        kind="soundness",
        severity="stop",
        task_id=None,
        check_digest=None,
        policy_version=None,
        count=len(tasks),
        total=len(tasks),
        bound=None,
        detail=f"passes of {len(tasks)} different tasks were wrong in every run of their audits: {', '.join(tasks)}",
        raised_ms=canary.ended_ms,
    )


def leak(verdict: VerificationVerdict) -> VerificationAlarm:
    """A task was solved whose solution lies only where an agent must not look."""
    return VerificationAlarm(
        run_id=verdict.run_id,
        alarm_id=f"leak:{verdict.trial_id}.{verdict.attempt}",
        kind="leak",
        severity="stop",
        task_id=verdict.task_id,
        check_digest=verdict.check_digest,
        policy_version=verdict.policy_version,
        count=1,
        total=1,
        bound=None,
        detail=f"{verdict.trial_id} solved the leak canary {verdict.task_id}: it saw what no agent may see",
        raised_ms=verdict.verification_ended_ms,
    )


def unknown_rate(verdict: VerificationVerdict, share: Share, bound: float) -> VerificationAlarm:
    """Too many verdicts of one policy version are unknown."""
    return VerificationAlarm(
        run_id=verdict.run_id,
        alarm_id=f"unknown_rate:{share.version}",
        kind="unknown_rate",
        severity="warn",
        task_id=None,
        check_digest=None,
        policy_version=share.version,
        count=share.count,
        total=share.total,
        bound=bound,
        detail=f"{share.count} of {share.total} verdicts of version {share.version} are unknown",
        raised_ms=verdict.verification_ended_ms,
    )


def exploits(verdict: VerificationVerdict, share: Share, bound: float) -> VerificationAlarm:
    """Too many passes of one policy version look like gaming: somebody should read some of them."""
    words = ", ".join(verdict.findings or ())
    return VerificationAlarm(
        run_id=verdict.run_id,
        alarm_id=f"exploits:{share.version}",
        kind="exploits",
        severity="warn",
        task_id=None,
        check_digest=None,
        policy_version=share.version,
        count=share.count,
        total=share.total,
        bound=bound,
        detail=f"{share.count} of {share.total} passes of version {share.version} have exploit findings; "
        f"{verdict.trial_id}: {words or 'none'}",
        raised_ms=verdict.verification_ended_ms,
    )
