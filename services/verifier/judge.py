"""All-pass over k check runs: stop at the first rejection, repeat only for infrastructure, never for luck."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from services.verifier.attribution import Facts, Outcome, attribute

_STARVED_TRIES = 2
_BACKOFF_S = 0.1


@dataclass(frozen=True)
class CheckRun:
    """One check run as it is recorded. Times are Unix milliseconds."""

    number: int
    infra_attempt: int
    seed: int
    outcome: Outcome
    cause: str
    facts: Facts
    started_ms: int
    ended_ms: int


@dataclass
class Judgement:
    """The verdict on one candidate with everything that led to it."""

    verdict: Literal["pass", "fail", "unknown"]
    cause: str
    runs: list[CheckRun] = field(default_factory=list)


def trial_seed(name: str) -> int:
    """63 secret bits from the operating system, mixed with what they are for so that no two runs can share them."""
    mixed = hashlib.sha256(secrets.token_bytes(16) + name.encode()).digest()
    return int.from_bytes(mixed[:8], "big") >> 1


def judge(
    name: str,
    trials: int,
    infra_retries: int,
    check_run: Callable[[int], Facts],
    now_ms: Callable[[], int],
    sleep: Callable[[float], None] = time.sleep,
) -> Judgement:
    """Run up to `trials` check runs (all must pass). `check_run` takes a seed.

    Infrastructure faults are repeated up to `infra_retries` times over the whole candidate (a starved host once); then
    the verdict is `unknown`, which is never a reward. With pass probability p per run, P(pass) = p^k and the expected
    number of runs is (1 - p^k) / (1 - p).
    """
    done = Judgement("pass", "ok")
    faults = starved = number = 0
    while number < trials:
        seed = trial_seed(f"{name}.{number}.{faults}")
        started = now_ms()
        facts = check_run(seed)
        outcome, cause = attribute(facts)
        done.runs.append(CheckRun(number, faults, seed, outcome, cause, facts, started, now_ms()))
        if outcome == "pass":
            number += 1
            continue
        if outcome == "fail":
            done.verdict, done.cause = "fail", cause
            return done
        faults += 1
        starved += cause == "host_starved"
        if faults > infra_retries or starved >= _STARVED_TRIES:
            done.verdict, done.cause = "unknown", cause
            return done
        sleep(_BACKOFF_S * 2 ** (faults - 1))
    return done
