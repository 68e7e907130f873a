"""The statistics of an evaluation: unbiased pass@k and pass^k, standard errors, paired differences over tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 4_000
Z_95 = 1.959963984540054


def pass_at_k(samples: int, passes: int, k: int) -> float:
    """Probability that at least one of k samples drawn without replacement passes: 1 - C(n-c, k) / C(n, k).

    Unbiased (Chen et al. 2021, arXiv 2107.03374). Raises ValueError unless 1 <= k <= n and 0 <= c <= n.
    """
    _check(samples, passes, k)
    return 1.0 - math.comb(samples - passes, k) / math.comb(samples, k)


def pass_hat_k(samples: int, passes: int, k: int) -> float:
    """Probability that all of k samples drawn without replacement pass: C(c, k) / C(n, k).

    Unbiased (Yao et al. 2024, tau-bench, arXiv 2406.12045). Raises ValueError unless 1 <= k <= n and 0 <= c <= n.
    """
    _check(samples, passes, k)
    return math.comb(passes, k) / math.comb(samples, k)


def _check(samples: int, passes: int, k: int) -> None:
    if not (1 <= k <= samples and 0 <= passes <= samples):
        raise ValueError(f"no pass@k for n={samples}, c={passes}, k={k}")


def plug_in(samples: int, passes: int, k: int) -> float:
    """The biased estimate 1 - (1 - c/n)^k, for comparison only."""
    return 1.0 - (1.0 - passes / samples) ** k


def standard_error(rate: float, count: int) -> float:
    """Standard error of a proportion over `count` independent tasks."""
    return math.sqrt(rate * (1.0 - rate) / count)


def half_width(rate: float, count: int) -> float:
    """Half of the 95 % normal interval of a proportion."""
    return Z_95 * standard_error(rate, count)


@dataclass(frozen=True)
class Discordance:
    """A paired test of two versions, one sample per task: difference, its standard error, z of McNemar's test."""

    difference: float
    error: float
    z: float


def discordance(better: int, worse: int, tasks: int) -> Discordance:
    """`better` tasks only the new version passed, `worse` only the old one did, out of `tasks`.

    Standard error sqrt(b + w - (b-w)^2 / n) / n; McNemar's z = (b - w) / sqrt(b + w) (McNemar 1947). Raises ValueError
    when no task is discordant.
    """
    if better + worse == 0 or better + worse > tasks:
        raise ValueError(f"{better} + {worse} discordant tasks out of {tasks}")
    moved = better - worse
    error = math.sqrt(better + worse - moved * moved / tasks) / tasks
    return Discordance(moved / tasks, error, moved / math.sqrt(better + worse))


@dataclass(frozen=True)
class Interval:
    """A mean difference with its 95 % interval."""

    difference: float
    low: float
    high: float


def paired_difference(before: Sequence[float], after: Sequence[float], seed: int) -> Interval | None:
    """Mean of after - before over the same tasks, with the percentile bootstrap over tasks (Efron 1979).

    Both have shape (tasks,), pass rates in [0, 1]. None when there is no task. The interval depends on `seed` alone.
    """
    gains = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    if gains.size == 0:
        return None
    draws = np.random.default_rng(seed).integers(0, gains.size, size=(RESAMPLES, gains.size))
    low, high = np.quantile(gains[draws].mean(axis=1), [0.025, 0.975])
    return Interval(float(gains.mean()), float(low), float(high))
