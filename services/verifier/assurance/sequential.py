"""Wald's sequential test on a check set's reference: is it wrongly rejected rarely enough, or too often?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Decision = Literal["open", "accepted", "quarantined"]


@dataclass(frozen=True)
class Bounds:
    """Healthy and bad rates of wrong rejection per check run, and the errors allowed in either decision."""

    healthy: float = 0.002
    bad: float = 0.05
    alpha: float = 0.05
    beta: float = 0.05

    @property
    def clean_step(self) -> float:
        """What one clean run adds to the log likelihood ratio of bad over healthy."""
        return math.log((1 - self.bad) / (1 - self.healthy))

    @property
    def failed_step(self) -> float:
        """What one rejected run adds."""
        return math.log(self.bad / self.healthy)

    @property
    def accept(self) -> float:
        """At or below this the check set counts as healthy."""
        return math.log(self.beta / (1 - self.alpha))

    @property
    def quarantine(self) -> float:
        """At or above this it is quarantined."""
        return math.log((1 - self.beta) / self.alpha)

    def expected_runs(self, healthy: bool) -> float:
        """Wald's expected number of runs to a decision, when the check set is healthy or bad."""
        rate = self.healthy if healthy else self.bad
        wrong = self.alpha if healthy else 1 - self.beta
        end = wrong * self.quarantine + (1 - wrong) * self.accept
        return end / (rate * self.failed_step + (1 - rate) * self.clean_step)


DEFAULT = Bounds()


@dataclass
class Sequential:
    """The running test of one check set; an acceptance starts it again.

    A rejection counts from zero at least: many clean runs are no credit that a rejection could be paid from. With the
    default rates a single rejection then reaches the quarantine bound (ln 25 = 3.22 against ln 19 = 2.94).
    """

    bounds: Bounds = DEFAULT
    log_ratio: float = 0.0
    runs: int = 0
    rejections: int = 0
    acceptances: int = 0

    def observe(self, clean: int, rejected: bool) -> Decision:
        """So many clean runs of the reference, then perhaps a rejected one."""
        self.runs += clean + rejected
        self.rejections += rejected
        decision: Decision = "open"
        for _ in range(clean):
            self.log_ratio += self.bounds.clean_step
            if self.log_ratio <= self.bounds.accept:
                self.log_ratio, decision = 0.0, "accepted"
                self.acceptances += 1
        if rejected:
            self.log_ratio = max(0.0, self.log_ratio) + self.bounds.failed_step
            decision = "quarantined" if self.log_ratio >= self.bounds.quarantine else "open"
        return decision
