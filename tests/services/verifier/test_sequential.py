"""Protects the sequential test of check sets: Wald's worked numbers, one rejection is enough."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.verifier.assurance.sequential import DEFAULT, Sequential


def test_worked_numbers_of_the_bounds() -> None:
    assert DEFAULT.failed_step == pytest.approx(math.log(25))
    assert DEFAULT.quarantine == pytest.approx(math.log(19))
    assert DEFAULT.accept == pytest.approx(-math.log(19))
    assert round(DEFAULT.clean_step, 4) == -0.0493
    assert round(DEFAULT.expected_runs(healthy=True)) == 62
    assert round(DEFAULT.expected_runs(healthy=False)) == 23


def test_sixty_clean_runs_accept_and_start_again() -> None:
    test = Sequential()
    assert [test.observe(1, False) for _ in range(60)] == ["open"] * 59 + ["accepted"]
    assert (test.log_ratio, test.runs, test.acceptances) == (0.0, 60, 1)


@given(st.lists(st.integers(0, 70), max_size=20))
def test_one_rejection_quarantines_whatever_came_before(clean: list[int]) -> None:
    test = Sequential()
    for count in clean:
        assert test.observe(count, False) != "quarantined"
    assert test.observe(2, True) == "quarantined"
    assert (test.runs, test.rejections) == (sum(clean) + 3, 1)
