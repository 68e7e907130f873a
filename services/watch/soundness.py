"""How many accepted candidates are wrong: the arithmetic of all-pass verdicts, and a live estimate over records."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.record import Record
from schemas.verification import VerificationCanary, VerificationVerdict

CONFIDENCE = 0.95
REMEMBERED = 1_000_000
"""Records that are remembered against a repeat."""


def accepts(rollouts: int, valid_rate: float, false_accept_rate: float) -> tuple[float, float]:
    """(valid, false) accepts expected of a verifier that accepts every valid and this share of the invalid rollouts."""
    return rollouts * valid_rate, rollouts * (1.0 - valid_rate) * false_accept_rate


def false_share(valid_rate: float, false_accept_rate: float) -> float:
    """Share of false ones among the accepts; 0.0 where nothing is accepted."""
    valid, wrong = accepts(1, valid_rate, false_accept_rate)
    return wrong / (valid + wrong) if valid + wrong else 0.0


def largest_false_accept_rate(valid_rate: float, share: float) -> float:
    """The largest false-accept rate that keeps the false share at or below `share`, at most 1."""
    if valid_rate >= 1.0 or share >= 1.0:
        return 1.0
    return min(1.0, share * valid_rate / ((1.0 - share) * (1.0 - valid_rate)))


def share_of_accepts(accept_rate: float, false_accept_rate: float) -> float:
    """The false share where only the accept rate is seen: a = v + f (1 - v), so v = (a - f) / (1 - f)."""
    if accept_rate <= 0.0:
        return 0.0
    if accept_rate <= false_accept_rate:
        return 1.0  # as many accepts as wrong candidates alone would give
    valid = (accept_rate - false_accept_rate) / (1.0 - false_accept_rate)
    return (1.0 - valid) * false_accept_rate / accept_rate


def accept_probability(p: float, k: int) -> float:
    """P(pass) of a candidate that is right with probability p in each of k independent check runs: p^k."""
    return p**k


def expected_runs(p: float, k: int) -> float:
    """Expected check runs when the first rejection ends it: (1 - p^k) / (1 - p)."""
    return float(k) if p >= 1.0 else (1.0 - p**k) / (1.0 - p)


def any_false_pass(p: float, candidates: int, k: int = 1) -> float:
    """Probability that at least one of so many wrong candidates passes."""
    return 1.0 - (1.0 - accept_probability(p, k)) ** candidates


def smallest_k(p: float, bound: float) -> int:
    """The least k with p^k < bound, for 0 < p < 1."""
    return next(k for k in range(1, 10_000) if p**k < bound)


def observed_reward(p: float, flips: float) -> float:
    """Mean reward that is seen when every verdict flips with this probability: f + (1 - 2 f) p."""
    return flips + signal_scale(flips) * p


def signal_scale(flips: float) -> float:
    """What symmetric flips leave of the reward's gradient: 1 - 2 f."""
    return 1.0 - 2.0 * flips


@dataclass(frozen=True)
class Posterior:
    """Beta posterior of a rate after `hits` of `count`, from a uniform prior: Beta(1 + hits, 1 + count - hits)."""

    hits: int
    count: int

    @property
    def mean(self) -> float:
        """Posterior mean."""
        return (1 + self.hits) / (2 + self.count)

    def upper(self, confidence: float = CONFIDENCE) -> float:
        """The rate that is not exceeded with this posterior probability, to 1e-9."""
        low, high = 0.0, 1.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            if self._below(middle) < confidence:
                low = middle
            else:
                high = middle
        return high

    def _below(self, x: float) -> float:
        """P(rate <= x): the beta integral with whole parameters is P(Binomial(count + 1, x) > hits)."""
        if x <= 0.0 or x >= 1.0:
            return float(x >= 1.0)
        n = self.count + 1
        tail = sum(
            math.exp(_log_choose(n, i) + i * math.log(x) + (n - i) * math.log1p(-x)) for i in range(self.hits + 1)
        )
        return max(0.0, 1.0 - tail)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


@dataclass(frozen=True)
class Estimate:
    """What is known about the accepts of one policy version (None: of all versions together).

    Two estimates that share no assumption: known-bad canaries give the verifier's false-accept rate, from which the
    share follows with the accept rate; audits judge accepted candidates again and give the share directly. Canaries
    tell nothing of versions, so their rate is that of the run.
    """

    policy_version: int | None
    judged: int
    accepted: int
    unknown: int
    audits: Posterior
    known_bad: Posterior

    @property
    def accept_rate(self) -> float:
        """Accepted share of what got a pass or a fail."""
        return self.accepted / self.judged if self.judged else 0.0

    def share(self, upper: bool = False) -> float:
        """False share of the accepts by the canaries; with `upper` at the bound of their rate."""
        return share_of_accepts(self.accept_rate, self.known_bad.upper() if upper else self.known_bad.mean)

    def audited_share(self, upper: bool = False) -> float:
        """False share of the accepts by the audits."""
        return self.audits.upper() if upper else self.audits.mean


class Tally:
    """Counts for the estimates, fed with records in any order; a repeated record counts once."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._verdicts: dict[int, Counter[str]] = {}
        self._audits: dict[int, Counter[str]] = {}
        self._known_bad: Counter[str] = Counter()

    def add(self, record: Record) -> None:
        """Take in a verdict or a canary; others are ignored, and so is what is not final."""
        if isinstance(record, VerificationVerdict):
            name: tuple[str, ...] = (record.trial_id, str(record.attempt))
            if record.verdict != "pending" and self._new(name):
                self._verdicts.setdefault(record.policy_version, Counter())[record.verdict] += 1
        elif isinstance(record, VerificationCanary) and record.verdict in ("pass", "fail"):
            if record.kind == "reference" or not self._new((record.canary_id,)):
                return
            if record.kind == "known_bad":
                self._known_bad[record.verdict] += 1
            elif record.policy_version is not None:
                self._audits.setdefault(record.policy_version, Counter())[record.verdict] += 1

    def _new(self, name: tuple[str, ...]) -> bool:
        fresh = name not in self._seen
        self._seen[name] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return fresh

    @property
    def versions(self) -> list[int]:
        """Policy versions with verdicts, oldest first."""
        return sorted(self._verdicts)

    def estimate(self, version: int | None = None) -> Estimate:
        """The estimate of one version, or of the whole run."""
        verdicts = self._sum(self._verdicts, version)
        audits = self._sum(self._audits, version)
        return Estimate(
            version,
            verdicts["pass"] + verdicts["fail"],
            verdicts["pass"],
            verdicts["unknown"],
            Posterior(audits["fail"], audits.total()),
            Posterior(self._known_bad["pass"], self._known_bad.total()),
        )

    @staticmethod
    def _sum(counts: dict[int, Counter[str]], version: int | None) -> Counter[str]:
        if version is not None:
            return counts.get(version, Counter())
        return sum(counts.values(), Counter())


def estimates(records: Iterable[Record]) -> list[Estimate]:
    """One estimate per policy version, oldest first, then the one of the whole run."""
    tally = Tally()
    for record in records:
        tally.add(record)
    return [*(tally.estimate(version) for version in tally.versions), tally.estimate()]
