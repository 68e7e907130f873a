"""All-pass over k check runs: stop at the first rejection, repeat only for infrastructure, never for luck."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from services.verifier.attribution import STARVED, Facts, Outcome, attribute

CheckRunOf = Callable[[int], Facts]
"""One check run of a fixed candidate against a fixed check set: seed -> facts."""

_STARVED_TRIES = 2


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
    """The verdict on one candidate with everything that led to it. `pending`: the course goes on later."""

    verdict: Literal["pass", "fail", "pending", "unknown"]
    cause: str
    runs: list[CheckRun] = field(default_factory=list)


def trial_seed(name: str) -> int:
    """63 secret bits from the operating system, mixed with what they are for so that no two runs can share them."""
    mixed = hashlib.sha256(secrets.token_bytes(16) + name.encode()).digest()
    return int.from_bytes(mixed[:8], "big") >> 1


class Course:
    """The check runs of one candidate, which may rest after an infrastructure fault and go on later.

    All `trials` runs must pass. Only infrastructure faults are repeated, up to `infra_retries` times over the whole
    candidate (a starved host once, at the full deadline); what passed before counts on. Then the verdict is `unknown`,
    which is never a reward. With pass probability p per run, P(pass) = p^k and the expected number of runs is
    (1 - p^k) / (1 - p). `thorough` goes on after a rejection until a run passed as well, to tell a candidate that
    differs from run to run from one that is always wrong; the verdict is the same.
    """

    def __init__(self, name: str, trials: int, infra_retries: int, thorough: bool = False) -> None:
        self._name = name
        self._trials = trials
        self._infra_retries = infra_retries
        self._thorough = thorough
        self._runs: list[CheckRun] = []
        self._number = 0
        self._starved = 0
        self._rejection: str | None = None
        self._passes = 0
        self.faults = 0
        """Infrastructure faults so far."""

    @property
    def runs(self) -> list[CheckRun]:
        """What has run so far."""
        return list(self._runs)

    def go_on(self, check_run: CheckRunOf, now_ms: Callable[[], int]) -> Judgement:
        """Run until the verdict is known or infrastructure fails. Raises what the check set itself raises."""
        while self._number < self._trials and not self._clear:
            run = self._one(check_run, now_ms)
            if run.outcome != "infra":
                continue
            if self.faults > self._infra_retries or self._starved >= _STARVED_TRIES:
                break
            return Judgement("pending", run.cause, self.runs)
        if self._rejection is not None:
            return Judgement("fail", self._rejection, self.runs)
        if self._passes < self._trials:
            return Judgement("unknown", self._runs[-1].cause, self.runs)
        return Judgement("pass", "ok", self.runs)

    @property
    def _clear(self) -> bool:
        return self._rejection is not None and (not self._thorough or self._passes > 0)

    def _one(self, check_run: CheckRunOf, now_ms: Callable[[], int]) -> CheckRun:
        seed = trial_seed(f"{self._name}.{self._number}.{self.faults}")
        started = now_ms()
        facts = check_run(seed)
        outcome, cause = attribute(facts)
        run = CheckRun(self._number, self.faults, seed, outcome, cause, facts, started, now_ms())
        self._runs.append(run)
        if outcome == "infra":
            self.faults += 1
            self._starved += cause == STARVED
            return run
        self._number += 1
        if outcome == "pass":
            self._passes += 1
        elif self._rejection is None:
            self._rejection = cause
        return run


def pause_s(backoff_s: float, faults: int) -> float:
    """Seconds to rest after this many faults: the backoff doubles."""
    return backoff_s * 2.0 ** max(0, faults - 1)


def judge(
    name: str,
    trials: int,
    infra_retries: int,
    check_run: CheckRunOf,
    now_ms: Callable[[], int],
    sleep: Callable[[float], None] = time.sleep,
    backoff_s: float = 0.1,
) -> Judgement:
    """A whole course in one call, which sleeps where the live verifier would let the course rest."""
    course = Course(name, trials, infra_retries)
    while True:
        judgement = course.go_on(check_run, now_ms)
        if judgement.verdict != "pending":
            return judgement
        sleep(pause_s(backoff_s, course.faults))
