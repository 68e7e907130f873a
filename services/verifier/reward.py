"""The reward of a judged attempt: correctness first, the rest only in the room that cannot outweigh it."""

from __future__ import annotations

from dataclasses import dataclass

from services.runtime.settings import Verifier
from services.verifier.judge import Judgement

ALL_PASS = "all_pass"
PARTIAL_CASES = "partial_cases"
ANSWERED_WRONGLY = frozenset({"wrong_value", "wrong_exception", "test_failed"})
"""Causes of a fail by answers alone: the candidate ran as it should."""


@dataclass(frozen=True)
class Scores:
    """Component scores in 0..1 and the composed reward. `partial`: None where the objective declares no such credit."""

    correctness: float
    format_score: float
    length_score: float
    reward: float
    partial: float | None = None


@dataclass(frozen=True)
class Weights:
    """What form, length and partial credit are worth beside a right answer (1). Raises ValueError when together they
    could outweigh it: the lowest pass earns 1 - length, the highest fail form + partial."""

    form: float = 0.0
    length: float = 0.0
    partial: float = 0.0

    def __post_init__(self) -> None:
        parts = (self.form, self.length, self.partial)
        if min(parts) < 0 or not sum(parts) < 1:
            said = " + ".join(f"{part:g}" for part in parts)
            raise ValueError(f"weights {said} must be >= 0 and sum to less than 1, or a wrong answer could win")

    @classmethod
    def of(cls, settings: Verifier) -> Weights:
        """The weights that count under the declared objective. Raises ValueError."""
        partial = settings.partial_weight if settings.objective == PARTIAL_CASES else 0.0
        return cls(settings.format_weight, settings.length_weight, partial)


def partial_score(judgement: Judgement) -> float:
    """Share of right answers over all cases of the check runs that ended, in 0..1; 1 for a pass.

    A fail earns it only for having answered wrongly: whoever crashed, flooded, broke the protocol or used up a limit
    earns nothing, and neither does a run whose right answers were not counted.
    """
    if judgement.verdict == "pass":
        return 1.0
    runs = [run for run in judgement.runs if run.outcome != "infra"]
    wanted = sum(run.facts.wanted for run in runs)
    if judgement.verdict != "fail" or judgement.cause not in ANSWERED_WRONGLY or not wanted:
        return 0.0
    return sum(run.facts.right or 0 for run in runs) / wanted


def compose(
    passed: bool,
    invocations: int,
    malformed: int,
    tokens: int,
    token_cap: int,
    weights: Weights,
    partial: float | None = None,
) -> Scores:
    """reward = correctness + form * format [+ partial * share of right answers, for a fail] - length * length.

    `format` is the share of well-formed actions; `length` is sampled tokens over the cap that the sampler enforces.
    Because the weights sum to less than 1, every pass (at least 1 - length) beats every fail (at most form + partial).
    """
    correctness = 1.0 if passed else 0.0
    form = 1.0 - min(max(0, malformed), invocations) / invocations if invocations > 0 else 0.0
    length = min(1.0, max(0, tokens) / token_cap) if token_cap > 0 else 0.0
    credit = 0.0 if passed or partial is None else weights.partial * min(1.0, max(0.0, partial))
    reward = correctness + credit + weights.form * form - weights.length * length
    return Scores(correctness, form, length, reward, partial)
