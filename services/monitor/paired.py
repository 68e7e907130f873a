"""Paired comparison of two measurements of the same tasks: difference and bootstrap interval over tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RESAMPLES = 10_000


@dataclass(frozen=True)
class Paired:
    """Mean over tasks of (after - before), its 95 % interval, and on how many tasks it rests."""

    difference: float
    low: float
    high: float
    tasks: int


def paired_difference(
    before: Mapping[str, float], after: Mapping[str, float], resamples: int = RESAMPLES, seed: int = 0
) -> Paired | None:
    """Percentile bootstrap (Efron & Tibshirani 1993, chapter 13) over the tasks measured both times.

    Resampling tasks, not samples: the tasks are what would differ in another draw, and the samples of one task are not
    independent. Deterministic for a seed. None when no task was measured both times.
    """
    import numpy as np

    common = sorted(before.keys() & after.keys())
    if not common:
        return None
    differences = np.array([after[task] - before[task] for task in common], dtype=np.float64)
    draws = np.random.default_rng(seed).integers(0, len(common), size=(resamples, len(common)))
    low, high = np.quantile(differences[draws].mean(axis=1), [0.025, 0.975])
    return Paired(float(differences.mean()), float(low), float(high), len(common))
