"""Protects the decision on a group: measured at the right moment, with the right reason, and with every age."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.admission.decide import NEVER_SAMPLED, Standing, decide
from tests.services.closure.records import closed


def test_a_fresh_group_is_admitted_with_everything_that_the_trainer_needs() -> None:
    group = closed(0, ("pass", "fail"), member_versions=(3, 4))
    found = decide(group, Standing(5, 2), 9000)
    assert (found.decision, found.reason, found.stage) == ("admitted", None, "admission")
    assert (found.member_lags, found.oldest_version, found.trainer_version) == ((2, 1), 3, 5)
    assert found.member_trials == group.member_trials
    assert found.member_coefficients == group.member_coefficients
    assert found.member_rewards == group.member_rewards
    assert found.pass_rate == 0.5


@given(st.integers(0, 5), st.integers(0, 20), st.integers(0, 20))
def test_the_bound_is_exact(max_lag: int, oldest: int, ahead: int) -> None:
    """Bug class: an off-by-one in the lag bound, and a bound on the group's mean instead of its oldest member."""
    group = closed(0, ("pass", "fail"), member_versions=(oldest, min(oldest + 3, oldest + ahead)))
    found = decide(group, Standing(oldest + ahead, max_lag), 9000)
    assert (found.reason == "stale") == (ahead > max_lag)
    assert found.member_lags[0] == ahead


@pytest.mark.parametrize(
    ("words", "changes", "reason"),
    [
        (("pass", "unknown"), {}, "unresolved"),
        (("pass", "missing"), {"member_versions": (0, -1)}, "unresolved"),
        (("pass", "pass"), {}, "zero_contrast"),
        (("fail", "fail"), {}, "zero_contrast"),
        (("pass", "fail"), {"member_versions": (7, 9)}, "halted_version"),
        (("pass", "fail"), {"member_versions": (1, 9)}, "stale"),
        (("pass", "pass"), {"member_versions": (1, 9)}, "stale"),
        (("pass", "fail"), {"member_coefficients": (float("nan"), -1.0)}, "poison"),
        (("pass", "fail"), {"member_tokens": (0, 30)}, "poison"),
        (("pass", "fail"), {"member_versions": (-1, 9)}, "poison"),
        (("pass", "fail"), {"member_coefficients": (None, None)}, "poison"),
    ],
)
def test_every_exclusion_has_its_reason(words: tuple[str, ...], changes: dict[str, object], reason: str) -> None:
    group = replace(closed(0, words, member_versions=(9, 9)), **changes)
    found = decide(group, Standing(9, 2, frozenset({7})), 9000)
    assert (found.decision, found.reason) == ("excluded", reason)


def test_contrast_is_asked_of_the_coefficients() -> None:
    """All failed, but the format score differs: there is something to learn from."""
    group = closed(0, ("fail", "fail"), member_coefficients=(1.0, -1.0))
    assert decide(group, Standing(0, 0), 9000).decision == "admitted"


def test_members_outside_a_shrunk_group_do_not_make_it_stale() -> None:
    group = closed(0, ("pass", "fail", "unknown"))
    shrunk = replace(
        group, contrast="mixed", member_coefficients=(1.0, -1.0, None), member_versions=(9, 9, NEVER_SAMPLED)
    )
    found = decide(shrunk, Standing(9, 0), 9000)
    assert (found.decision, found.member_lags) == ("admitted", (0, 0, NEVER_SAMPLED))
    assert (found.oldest_version, found.pass_rate) == (9, 0.5)


def test_ages_are_split_by_stage_and_sum_to_the_time_since_the_first_start() -> None:
    group = closed(
        0, ("pass", "fail"), first_started_ms=1000, generation_ms=300, tool_wait_ms=200, verification_ms=100,
        closed_ms=2000,
    )  # fmt: skip
    found = decide(group, Standing(0, 0), 2500)
    ages = (found.age_generation_ms, found.age_tool_wait_ms, found.age_verification_ms, found.age_buffer_ms)
    assert ages == (300, 200, 100, 400)
    assert found.age_queue_ms == 500
    assert sum(ages) + found.age_queue_ms == 2500 - 1000


def test_an_unresolved_group_has_no_pass_rate() -> None:
    assert decide(closed(0, ("pass", "unknown")), Standing(0, 0), 9000).pass_rate is None
