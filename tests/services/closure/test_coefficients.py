"""Protects the golden numbers of groups: a wrong coefficient trains on noise without anything looking broken."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.closure.coefficients import coefficients

REWARDS = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=1, max_size=32)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0, 1, 0], [-0.707107, 1.414214, -0.707107]),
        ([1, 0, 0, 1], [1, -1, -1, 1]),
        ([1, 0, 0, 0], [math.sqrt(3), *[-1 / math.sqrt(3)] * 3]),
    ],
)
def test_golden_groups(rewards: list[float], expected: list[float]) -> None:
    assert coefficients(rewards, "std", 0.0).values == pytest.approx(expected, abs=5e-7)


def test_golden_one_pass_in_sixteen() -> None:
    found = coefficients([1, *[0] * 15], "std", 0.0)
    assert (round(found.values[0], 2), round(found.values[1], 3), found.mean) == (3.87, -0.258, 0.0625)


def test_golden_one_pass_in_eight() -> None:
    found = coefficients([1, *[0] * 7], "std", 0.0)
    assert (found.mean, round(found.std, 3)) == (0.125, 0.331)
    assert (round(found.values[0], 2), round(found.values[1], 3)) == (2.65, -0.378)
    assert coefficients([1, *[0] * 7], "centered", 0.0).values[:2] == (0.875, -0.125)


def test_the_default_epsilon_moves_golden_numbers_by_less_than_a_hundred_thousandth() -> None:
    assert coefficients([1, 0, 0, 1], "std", 1e-6).values == pytest.approx([1, -1, -1, 1], abs=1e-5)


@given(st.floats(-1e6, 1e6), st.integers(1, 64), st.sampled_from(["std", "centered", "leave_one_out"]))
def test_equal_rewards_give_exactly_zero(reward: float, count: int, advantage: str) -> None:
    found = coefficients([reward] * count, advantage, 1e-6)  # type: ignore[arg-type]
    assert found.values == (0.0,) * count
    assert found.std == 0.0


@given(REWARDS)
def test_centred_is_g_minus_one_over_g_times_leave_one_out(rewards: list[float]) -> None:
    count = len(rewards)
    centred = coefficients(rewards, "centered", 0.0).values
    alone = coefficients(rewards, "leave_one_out", 0.0).values
    assert centred == pytest.approx([value * (count - 1) / count for value in alone], abs=1e-9)
    for index, value in enumerate(alone):
        others = rewards[:index] + rewards[index + 1 :]
        if others and max(rewards) != min(rewards):
            assert value == pytest.approx(rewards[index] - math.fsum(others) / len(others), abs=1e-8)


@given(REWARDS)
def test_coefficients_sum_to_zero_and_keep_the_order_of_rewards(rewards: list[float]) -> None:
    values = coefficients(rewards, "centered", 0.0).values
    assert math.fsum(values) == pytest.approx(0, abs=1e-9)
    order = sorted(range(len(rewards)), key=lambda i: rewards[i])
    assert all(values[a] <= values[b] + 1e-12 for a, b in itertools.pairwise(order))


@pytest.mark.parametrize("rewards", [[], [0.0, math.nan], [math.inf, 1.0]])
def test_what_is_no_reward_is_refused(rewards: list[float]) -> None:
    with pytest.raises(ValueError):
        coefficients(rewards, "std", 0.0)
