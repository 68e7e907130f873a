"""Protects the arithmetic of false accepts, held to the golden numbers, and the live estimate over records."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.watch import soundness
from services.watch.soundness import Posterior
from tests.services.closure.records import verdict
from tests.services.verifier.records import canary


def test_golden_false_accepts() -> None:
    valid, wrong = soundness.accepts(8_192, 0.10, 0.025)
    assert (round(valid, 2), round(wrong, 2), round(valid + wrong, 2)) == (819.20, 184.32, 1_003.52)
    assert round(soundness.false_share(0.10, 0.025), 3) == 0.184
    assert round(soundness.false_share(0.04, 0.02), 3) == 0.324
    assert round(soundness.false_share(0.40, 0.02), 3) == 0.029
    largest = soundness.largest_false_accept_rate(0.04, 0.10)
    assert round(largest, 5) == 0.00463
    assert soundness.false_share(0.04, largest) == pytest.approx(0.10)


def test_golden_all_pass() -> None:
    assert round(soundness.accept_probability(0.20, 3), 3) == 0.008
    assert round(1 - soundness.accept_probability(0.98, 3), 4) == 0.0588
    assert round(soundness.expected_runs(0.20, 3), 2) == 1.24
    assert round(soundness.expected_runs(0.98, 3), 4) == 2.9404
    assert soundness.expected_runs(1.0, 3) == 3
    assert round(soundness.any_false_pass(0.20, 16), 3) == 0.972
    assert soundness.smallest_k(0.30, 0.01) == 4


@given(st.floats(0, 1), st.floats(0, 1))
def test_golden_symmetric_flips(p: float, flips: float) -> None:
    exact = p * (1 - flips) + (1 - p) * flips
    assert soundness.observed_reward(p, flips) == pytest.approx(exact)
    slope = (soundness.observed_reward(1, flips) - soundness.observed_reward(0, flips)) / 1
    assert soundness.signal_scale(flips) == pytest.approx(slope)


@given(st.floats(0.001, 0.999), st.floats(0, 0.999))
def test_the_share_from_accepts_agrees_with_the_share_from_valid_rates(valid: float, rate: float) -> None:
    accepted = sum(soundness.accepts(1, valid, rate))
    assert soundness.share_of_accepts(accepted, rate) == pytest.approx(soundness.false_share(valid, rate), abs=1e-6)


def test_the_posterior_bound_is_the_integral_of_its_density() -> None:
    # With no hit of n the bound solves (1 - x)^(n + 1) = 0.05.
    for clean in (0, 10, 60, 300):
        assert Posterior(0, clean).upper() == pytest.approx(1 - 0.05 ** (1 / (clean + 1)), abs=1e-6)
    draws = random.Random(1)
    sample = sorted(draws.betavariate(1 + 3, 1 + 37) for _ in range(20_000))
    assert Posterior(3, 40).upper() == pytest.approx(sample[int(0.95 * len(sample))], abs=0.005)
    assert Posterior(3, 40).mean == pytest.approx(4 / 42)
    assert Posterior(5, 5).upper() > 0.99


def test_the_live_estimate_is_of_the_records_alone() -> None:
    records = [verdict(n, 0, "pass" if n < 20 else "fail", policy_version=n % 2) for n in range(100)]
    records += [verdict(100, 0, "unknown", policy_version=1), verdict(101, 0, "pending", policy_version=1)]
    records += [canary("known_bad", "fail", n) for n in range(50)]
    records += [canary("audit", "pass", n, policy_version=1) for n in range(9)]
    records += [canary("audit", "fail", 9, policy_version=1), canary("audit", "unknown", 10, policy_version=1)]
    records += [canary("reference", "fail", 0)]
    shuffled = [*records, *records[:40]]
    random.Random(2).shuffle(shuffled)
    first, second, whole = soundness.estimates(shuffled)
    assert (first.policy_version, second.policy_version, whole.policy_version) == (0, 1, None)
    assert (second.judged, second.accepted, second.unknown) == (50, 10, 1)
    assert (second.audits, first.audits) == (Posterior(1, 10), Posterior(0, 0))
    assert whole.known_bad == first.known_bad == Posterior(0, 50)
    assert second.audited_share() == pytest.approx(2 / 12)
    assert second.share() == pytest.approx(soundness.share_of_accepts(0.2, 1 / 52))
    assert second.share() < second.share(upper=True) < 1
    assert not math.isnan(soundness.estimates([])[0].share())


def test_a_verdict_of_a_later_attempt_counts_on_its_own() -> None:
    again = replace(verdict(0, 0, "pass"), attempt=1)
    assert soundness.estimates([verdict(0, 0, "unknown"), again, again])[0].judged == 1
