"""Turns the rewards of one whole group into the coefficients that its members are trained with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Advantage = Literal["std", "centered", "leave_one_out"]


@dataclass(frozen=True)
class Coefficients:
    """`values` in the order of the rewards; `std` is the population standard deviation."""

    mean: float
    std: float
    values: tuple[float, ...]


def coefficients(rewards: Sequence[float], advantage: Advantage, epsilon: float) -> Coefficients:
    """Coefficients over one group of rewards, shape (n,) with n >= 1.

    `std`: (r - mean) / (population std + epsilon), as in GRPO (Shao et al. 2024, arXiv 2402.03300).
    `centered`: r - mean (Dr. GRPO, Liu et al. 2025, arXiv 2503.20783).
    `leave_one_out`: r - mean of the others (RLOO, Ahmadian et al. 2024, arXiv 2402.14740), n/(n-1) times `centered`.
    Equal rewards give exactly 0 for every member, whatever the rounding of their mean: a group without contrast has no
    gradient. Raises ValueError for no rewards or a reward that is not finite.
    """
    if not rewards:
        raise ValueError("a group without rewards has no coefficients")
    if not all(math.isfinite(reward) for reward in rewards):
        raise ValueError(f"a reward is not finite: {list(rewards)}")
    count = len(rewards)
    if max(rewards) == min(rewards):
        return Coefficients(float(rewards[0]), 0.0, (0.0,) * count)
    mean = math.fsum(rewards) / count
    centred = [reward - mean for reward in rewards]
    std = math.sqrt(math.fsum(value * value for value in centred) / count)
    if advantage == "std":
        scale = 1.0 / (std + epsilon)
    elif advantage == "leave_one_out":
        scale = count / (count - 1)
    else:
        scale = 1.0
    return Coefficients(mean, std, tuple(value * scale for value in centred))
