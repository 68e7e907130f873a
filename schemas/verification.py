"""Records of verification: each check run, the one verdict of a trial attempt, canaries and alarms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.record import Record, record

Verdict = Literal["pass", "fail", "pending", "unknown"]
Evidence = Literal["none", "E0", "E1", "E2", "E3", "E4"]
_HEADERS = ("run_id", "group_id", "trial_id")


@record("verification.trial", headers=(*_HEADERS, "outcome"))
@dataclass(frozen=True, slots=True)
class VerificationTrial(Record):
    """One check run in one fresh sandbox; hidden inputs and expected values never enter a record."""

    run_id: str
    group_id: str
    trial_id: str
    attempt: int
    number: int  # 0 .. k-1
    infra_attempt: int
    seed: int
    outcome: Literal["pass", "fail", "infra"]
    cause: str  # a short stable word: wrong_value, timeout, oom, no_boot, ...
    evidence: Evidence
    cases: int
    cases_answered: int
    cpu_s: float | None
    memory_bytes: int | None
    oom_kills: int | None
    pids_denied: int | None
    host_pressure: float | None  # share of time some task waited for a CPU over the last 10 s; None: not measurable
    started_ms: int
    ended_ms: int
    hash_seed: int | None = None  # PYTHONHASHSEED of the candidate's interpreter
    backend: str | None = None  # which kind of sandbox it was
    cases_right: int | None = None  # only known where the objective asks for every case
    host_wait_s: float | None = None  # runnable without a CPU
    wall_s: float | None = None
    attribution_evidence: str | None = None  # how ends were told apart: cgroup (full), engine, sampled, rlimit


@record("verification.verdict", headers=(*_HEADERS, "policy_version", "verdict"))
@dataclass(frozen=True, slots=True)
class VerificationVerdict(Record):
    """The verdict on one trial attempt. `reward` is None unless the verdict is pass or fail."""

    run_id: str
    group_id: str
    trial_id: str
    attempt: int
    task_id: str
    split: Literal["train", "eval"]
    policy_version: int  # oldest version among the invocations
    newest_version: int
    verdict: Verdict
    cause: str
    reward: float | None
    correctness: float | None
    format_score: float | None
    length_score: float | None
    evidence: Evidence
    trials_run: int
    trials_wanted: int
    reused: bool  # the same candidate on the same check-set was judged before at the same digests
    verifier_digest: str
    check_digest: str
    fixture_digest: str
    candidate_digest: str | None
    invocations: int
    policy_tokens: int
    requested_ms: int
    started_ms: int  # of the rollout
    ended_ms: int
    generation_ms: int
    tool_wait_ms: int
    verification_started_ms: int
    verification_ended_ms: int
    objective: str | None = None  # how the reward was composed; None: all_pass
    partial_score: float | None = None  # share of right answers, under an objective that declares partial credit
    findings: tuple[str, ...] | None = None  # exploit detectors that fired (stable words); not part of the reward
    certificate: str | None = None  # digest of the check-set's certificate
    backend: str | None = None
    retry: int | None = None  # pending: how many faults so far
    attribution_evidence: str | None = None  # the weakest among its check runs
    earlier_trial: str | None = None  # "trial.attempt" whose verdict there was for the same candidate: reused, or tried
    rejudged: bool | None = None  # the earlier verdict was not reused: this one was judged afresh, and may differ


@record("verification.canary", headers=("run_id", "kind", "task_id", "verdict"))
@dataclass(frozen=True, slots=True)
class VerificationCanary(Record):
    """A judgement whose right answer was known beforehand (reference, known_bad), or a pass judged again (audit)."""

    run_id: str
    canary_id: str
    kind: Literal["reference", "known_bad", "audit"]
    task_id: str
    check_digest: str
    verifier_digest: str
    candidate_digest: str
    trial_id: str | None  # audit: of the pass that was judged again
    policy_version: int | None  # audit: of that pass
    expected: Literal["pass", "fail"]
    verdict: Verdict
    cause: str
    runs: int
    log_ratio: float | None  # of the sequential test on the check-set's references after this one
    started_ms: int
    ended_ms: int


@record("verification.alarm", headers=("run_id", "kind", "severity"))
@dataclass(frozen=True, slots=True)
class VerificationAlarm(Record):
    """Something about the verdicts themselves is wrong. `stop`: nothing more may be trained on them."""

    run_id: str
    alarm_id: str
    kind: Literal["soundness", "leak", "quarantine", "unknown_rate", "exploits"]
    severity: Literal["stop", "warn"]
    task_id: str | None
    check_digest: str | None
    policy_version: int | None
    count: int
    total: int
    bound: float | None
    detail: str
    raised_ms: int
