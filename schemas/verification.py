"""Records of verification: each check run, the one verdict of a trial attempt, canaries and alarms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.bounds import (
    Count,
    Digest,
    Few,
    Id,
    Measured,
    Millis,
    Sampled,
    Score,
    Seconds,
    Seed,
    Size,
    Text,
    Time,
    Turns,
    Word,
)  # fmt: skip
from schemas.record import Record, record

Verdict = Literal["pass", "fail", "pending", "unknown"]
Evidence = Literal["none", "E0", "E1", "E2", "E3", "E4"]
_HEADERS = ("run_id", "group_id", "trial_id")


@record("verification.trial", headers=(*_HEADERS, "outcome"))
@dataclass(frozen=True, slots=True)
class VerificationTrial(Record):
    """One check run in one fresh sandbox; hidden inputs and expected values never enter a record."""

    run_id: Id
    group_id: Id
    trial_id: Id
    attempt: Turns
    number: Turns  # 0 .. k-1
    infra_attempt: Turns
    seed: Seed
    outcome: Literal["pass", "fail", "infra"]
    cause: Word  # a short stable word: wrong_value, timeout, oom, no_boot, ...
    evidence: Evidence
    cases: Count
    cases_answered: Count
    cpu_s: Seconds | None
    memory_bytes: Size | None
    oom_kills: Count | None
    pids_denied: Count | None
    host_pressure: Measured | None  # share of time some task waited for a CPU over the last 10 s; None: not measurable
    started_ms: Time
    ended_ms: Time
    hash_seed: Seed | None = None  # PYTHONHASHSEED of the candidate's interpreter
    backend: Word | None = None  # which kind of sandbox it was
    cases_right: Count | None = None  # only known where the objective asks for every case
    host_wait_s: Seconds | None = None  # runnable without a CPU
    wall_s: Seconds | None = None
    attribution_evidence: Word | None = None  # how ends were told apart: cgroup (full), engine, sampled, rlimit


@record("verification.verdict", headers=(*_HEADERS, "policy_version", "verdict"))
@dataclass(frozen=True, slots=True)
class VerificationVerdict(Record):
    """The verdict on one trial attempt. `reward` is None unless the verdict is pass or fail."""

    run_id: Id
    group_id: Id
    trial_id: Id
    attempt: Turns
    task_id: Id
    split: Literal["train", "eval"]
    policy_version: Sampled  # oldest version among the invocations
    newest_version: Sampled
    verdict: Verdict
    cause: Word
    reward: Score | None
    correctness: Score | None
    format_score: Score | None
    length_score: Score | None
    evidence: Evidence
    trials_run: Turns
    trials_wanted: Turns
    reused: bool  # the same candidate on the same check-set was judged before at the same digests
    verifier_digest: Digest
    check_digest: Digest
    fixture_digest: Digest
    candidate_digest: Digest | None
    invocations: Turns
    policy_tokens: Count
    requested_ms: Time
    started_ms: Time  # of the rollout
    ended_ms: Time
    generation_ms: Millis
    tool_wait_ms: Millis
    verification_started_ms: Time
    verification_ended_ms: Time
    objective: Word | None = None  # how the reward was composed; None: all_pass
    partial_score: Score | None = None  # share of right answers, under an objective that declares partial credit
    findings: Few[Word] | None = None  # exploit detectors that fired (stable words); not part of the reward
    certificate: Digest | None = None  # digest of the check-set's certificate
    backend: Word | None = None
    retry: Turns | None = None  # pending: how many faults so far
    attribution_evidence: Word | None = None  # the weakest among its check runs
    earlier_trial: Id | None = None  # "trial.attempt" whose verdict there was for the same candidate: reused, or tried
    rejudged: bool | None = None  # the earlier verdict was not reused: this one was judged afresh, and may differ


@record("verification.canary", headers=("run_id", "kind", "task_id", "verdict"))
@dataclass(frozen=True, slots=True)
class VerificationCanary(Record):
    """A judgement whose right answer was known beforehand (reference, known_bad), or a pass judged again (audit)."""

    run_id: Id
    canary_id: Id
    kind: Literal["reference", "known_bad", "audit"]
    task_id: Id
    check_digest: Digest
    verifier_digest: Digest
    candidate_digest: Digest
    trial_id: Id | None  # audit: of the pass that was judged again
    policy_version: Sampled | None  # audit: of that pass
    expected: Literal["pass", "fail"]
    verdict: Verdict
    cause: Word
    runs: Count
    log_ratio: Measured | None  # of the sequential test on the check-set's references after this one
    started_ms: Time
    ended_ms: Time


@record("verification.alarm", headers=("run_id", "kind", "severity"))
@dataclass(frozen=True, slots=True)
class VerificationAlarm(Record):
    """Something about the verdicts themselves is wrong. `stop`: nothing more may be trained on them."""

    run_id: Id
    alarm_id: Id
    kind: Literal["soundness", "leak", "quarantine", "unknown_rate", "exploits"]
    severity: Literal["stop", "warn"]
    task_id: Id | None
    check_digest: Digest | None
    policy_version: Sampled | None
    count: Count
    total: Count
    bound: Measured | None
    detail: Text
    raised_ms: Time
