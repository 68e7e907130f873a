"""Legal records of known answers, for the tests of the live verifier."""

from typing import Any

from schemas.verification import VerificationCanary


def canary(kind: str, verdict: str, number: int = 0, **changes: Any) -> VerificationCanary:
    """A known answer judged beside trial `number`, with the right expectation for its kind."""
    fields: dict[str, Any] = {
        "run_id": "run", "canary_id": f"{kind}:run/00000000/{number}.0", "kind": kind, "task_id": "tiny/add",
        "check_digest": "sha256:c", "verifier_digest": "sha256:v", "candidate_digest": "d", "trial_id": None,
        "policy_version": None, "expected": "fail" if kind == "known_bad" else "pass", "verdict": verdict,
        "cause": "ok" if verdict == "pass" else "wrong_value", "runs": 3, "log_ratio": None, "started_ms": 1,
        "ended_ms": 2,
    }  # fmt: skip
    return VerificationCanary(**{**fields, **changes})
