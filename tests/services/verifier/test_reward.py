"""Protects the order of rewards: whatever the weights allowed, every pass earns more than every non-pass."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from services.runtime import settings as run_settings
from services.runtime.errors import UserError
from services.runtime.settings import Verifier
from services.verifier.attribution import Facts, attribute
from services.verifier.judge import CheckRun, Judgement
from services.verifier.reward import Weights, compose, partial_score

SHARES = st.floats(0, 1)
WRONG = Facts(wanted=10, answered=10, rejection="wrong_value", ending="complete", right=7)


def judged(*facts: Facts) -> Judgement:
    runs = [CheckRun(n, 0, n, *attribute(one), one, 0, 0) for n, one in enumerate(facts)]
    last = runs[-1]
    return Judgement("pass" if last.outcome == "pass" else "fail", last.cause, runs)


@pytest.mark.parametrize("weights", [(0.4, 0.7, 0), (0.4, 0.3, 0.3), (-0.1, 0, 0), (0, 0, -0.1), (1, 0, 0),
                                     (math.nan, 0, 0), (0, 0, 1)])  # fmt: skip
def test_weights_that_could_outweigh_a_right_answer_are_refused(weights: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="less than 1"):
        Weights(*weights)


def test_the_bound_holds_at_load_for_the_declared_objective_only() -> None:
    heavy = {"format_weight": 0.3, "length_weight": 0.5, "partial_weight": 0.3}
    assert run_settings.load(verifier=heavy).verifier.objective == "all_pass"
    with pytest.raises(UserError, match="must be < 1"):
        run_settings.load(verifier={**heavy, "objective": "partial_cases"})
    with pytest.raises(UserError, match="must be < 1"):
        run_settings.load(verifier={"format_weight": 0.4, "length_weight": 0.7})


def test_weights_come_from_the_objective() -> None:
    plain = Verifier(format_weight=0.1, length_weight=0.2, partial_weight=0.3)
    assert Weights.of(plain) == Weights(0.1, 0.2, 0.0)
    assert Weights.of(plain.model_copy(update={"objective": "partial_cases"})) == Weights(0.1, 0.2, 0.3)


@given(SHARES, SHARES, SHARES, st.integers(0, 9), st.integers(0, 99), st.integers(0, 999), SHARES)
def test_every_pass_beats_every_fail(
    form: float, length: float, partial: float, invocations: int, malformed: int, tokens: int, right: float
) -> None:
    assume(form + length + partial < 0.999999)
    weights = Weights(form, length, partial)
    worst = compose(True, invocations, malformed, tokens, 100, weights, 1.0).reward
    best = compose(False, 9, 0, 0, 100, weights, right).reward
    assert worst > best
    assert worst >= 1 - length - 1e-9
    assert best <= form + partial + 1e-9


def test_a_count_below_zero_earns_nothing_more() -> None:
    """50,000 well-formed actions out of one were worth a reward of 50,000."""
    assert compose(True, 1, -50_000, 0, 10, Weights(form=0.5)).reward == 1.5


def test_partial_credit_is_the_share_of_right_answers_over_all_runs() -> None:
    clean = replace(WRONG, rejection=None, right=10)
    assert partial_score(judged(clean, WRONG)) == pytest.approx(17 / 20)
    assert partial_score(judged(clean)) == 1.0
    assert compose(False, 1, 0, 0, 10, Weights(partial=0.3), 0.5).reward == pytest.approx(0.15)
    assert compose(False, 1, 0, 0, 10, Weights(), None).partial is None


@pytest.mark.parametrize("facts", [
    replace(WRONG, rejection="unencodable"), replace(WRONG, ending="protocol"), replace(WRONG, ending="log_flood"),
    replace(WRONG, rejection=None, answered=5, ending="eof"), replace(WRONG, right=None),
    replace(WRONG, rejection="inconsistent"), replace(WRONG, ready=False, import_error="NameError"),
])  # fmt: skip
def test_no_credit_for_anything_but_wrong_answers(facts: Facts) -> None:
    assert partial_score(judged(facts)) == 0.0
