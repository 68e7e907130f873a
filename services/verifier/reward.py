"""The reward of a judged attempt: correctness first, form and length only in the room that cannot outweigh it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scores:
    """Component scores in 0..1 and the composed reward."""

    correctness: float
    format_score: float
    length_score: float
    reward: float


def compose(
    passed: bool,
    invocations: int,
    malformed: int,
    tokens: int,
    token_cap: int,
    format_weight: float,
    length_weight: float,
) -> Scores:
    """reward = correctness + format_weight * format - length_weight * length.

    `format` is the share of well-formed actions; `length` is sampled tokens over the cap that the sampler enforces.
    Because format_weight + length_weight < 1, every pass (at least 1 - length_weight) beats every fail (at most
    format_weight). Raises ValueError when the weights break that.
    """
    if format_weight < 0 or length_weight < 0 or format_weight + length_weight >= 1:
        raise ValueError(f"weights {format_weight:g} + {length_weight:g} must be >= 0 and sum to less than 1")
    correctness = 1.0 if passed else 0.0
    form = 1.0 - min(malformed, invocations) / invocations if invocations > 0 else 0.0
    length = min(1.0, tokens / token_cap) if token_cap > 0 else 0.0
    return Scores(correctness, form, length, correctness + format_weight * form - length_weight * length)
