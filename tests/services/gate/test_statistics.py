"""Protects the golden numbers of evaluation."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gate.statistics import (
    discordance,
    half_width,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    plug_in,
    standard_error,
)


def test_golden_pass_at_k() -> None:
    assert (round(pass_at_k(10, 2, 3), 3), round(plug_in(10, 2, 3), 3)) == (0.533, 0.488)
    assert (round(pass_at_k(10, 3, 5), 3), round(plug_in(10, 3, 5), 3)) == (0.917, 0.832)


def test_golden_standard_error() -> None:
    assert round(standard_error(0.5, 200), 3) == 0.035
    assert round(100 * half_width(0.5, 200), 1) == 6.9


def test_golden_paired_test() -> None:
    found = discordance(40, 30, 500)
    assert (found.difference, round(found.error, 4)) == (0.02, 0.0167)
    assert round(found.difference / found.error, 1) == round(found.z, 1) == 1.2


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_both_estimates_are_the_average_over_every_choice_of_samples(numbers: tuple[int, int, int]) -> None:
    samples, passes, k = numbers
    outcomes = [True] * passes + [False] * (samples - passes)
    chosen = list(itertools.combinations(outcomes, k))
    assert pass_at_k(samples, passes, k) == pytest.approx(sum(any(c) for c in chosen) / len(chosen))
    assert pass_hat_k(samples, passes, k) == pytest.approx(sum(all(c) for c in chosen) / len(chosen))


@pytest.mark.parametrize("numbers", [(2, 1, 3), (2, 3, 1), (0, 0, 1), (2, 1, 0), (2, -1, 1)])
def test_impossible_counts_are_refused(numbers: tuple[int, int, int]) -> None:
    for estimate in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError):
            estimate(*numbers)


def test_no_discordant_task_is_no_test() -> None:
    with pytest.raises(ValueError):
        discordance(0, 0, 10)


def test_the_bootstrap_agrees_with_the_normal_interval() -> None:
    before = [0.0] * 40 + [1.0] * 30 + [1.0] * 430
    after = [1.0] * 40 + [0.0] * 30 + [1.0] * 430
    found = paired_difference(before, after, seed=1)
    assert found is not None
    error = discordance(40, 30, 500).error
    assert found.difference == pytest.approx(0.02)
    assert found.low == pytest.approx(0.02 - 1.96 * error, abs=0.004)
    assert found.high == pytest.approx(0.02 + 1.96 * error, abs=0.004)
    assert found == paired_difference(before, after, seed=1)


def test_the_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    import numpy as np

    random = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        gains = random.choice([-0.5, 0.0, 0.5], size=80, p=[0.15, 0.5, 0.35])
        found = paired_difference([0.0] * 80, gains.tolist(), seed=trial)
        assert found is not None
        hits += found.low <= 0.1 <= found.high
    assert 0.89 <= hits / 200 <= 0.99


def test_no_common_task_gives_no_interval() -> None:
    assert paired_difference([], [], seed=0) is None
    same = paired_difference([0.5], [0.5], seed=0)
    assert same is not None
    assert (same.difference, same.low, same.high) == (0.0, 0.0, 0.0)
    assert not math.isnan(same.low)
