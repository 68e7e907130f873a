"""All-pass over k, infrastructure retries, and the reward, held to the golden numbers."""

import itertools
import math

import pytest

from services.runtime import settings as run_settings
from services.runtime.errors import UserError
from services.runtime.jail.limits import Usage
from services.verifier.attribution import Facts
from services.verifier.judge import Judgement, judge, trial_seed
from services.verifier.reward import Weights, compose

PASS = Facts(wanted=1, answered=1)
FAIL = Facts(wanted=1, answered=1, rejection="wrong_value", ending="stopped")
INFRA = Facts(fault="no_boot", booted=False)
STARVED = Facts(ending="deadline", pressure=0.9, wall_s=10, usage=Usage(cpu_s=0.1, host_wait_s=9.0))


def run(script: list[Facts], trials: int = 3, retries: int = 3) -> tuple[Judgement, list[float]]:
    rest, slept = iter(script), []
    return judge("t.0", trials, retries, lambda seed: next(rest), lambda: 0, slept.append), slept


def enumerated(p: float, k: int) -> tuple[float, float]:
    """Exact acceptance and expected runs of the real loop, over every sequence of outcomes."""
    accept = expected = 0.0
    for outcomes in itertools.product([PASS, FAIL], repeat=k):
        weight = math.prod(p if one is PASS else 1 - p for one in outcomes)
        done, _ = run(list(outcomes), trials=k)
        accept += weight * (done.verdict == "pass")
        expected += weight * len(done.runs)
    return accept, expected


def test_golden_all_pass() -> None:
    accept, expected = enumerated(0.20, 3)
    assert (round(accept, 4), round(expected, 2)) == (0.008, 1.24)
    accept, expected = enumerated(0.98, 3)
    assert (round(1 - accept, 4), round(expected, 4)) == (0.0588, 2.9404)


def test_golden_smallest_k() -> None:
    assert next(k for k in range(1, 9) if enumerated(0.30, k)[0] < 0.01) == 4


def test_golden_one_trial_each_lets_a_wrong_candidate_through() -> None:
    assert round(1 - (1 - enumerated(0.20, 1)[0]) ** 16, 3) == 0.972


def test_a_fail_is_never_retried() -> None:
    done, slept = run([PASS, FAIL, PASS])
    assert (done.verdict, done.cause, len(done.runs), slept) == ("fail", "wrong_value", 2, [])


def test_infrastructure_is_retried_with_backoff_and_does_not_count_as_a_run() -> None:
    done, slept = run([INFRA, PASS, INFRA, PASS, PASS])
    assert done.verdict == "pass"
    assert [(r.number, r.infra_attempt, r.outcome) for r in done.runs] == [
        (0, 0, "infra"), (0, 1, "pass"), (1, 1, "infra"), (1, 2, "pass"), (2, 2, "pass"),
    ]  # fmt: skip
    assert slept == sorted(slept)
    assert len(slept) == 2


def test_after_the_retries_the_verdict_is_unknown_never_fail() -> None:
    done, _ = run([INFRA] * 9)
    assert (done.verdict, done.cause, len(done.runs)) == ("unknown", "no_boot", 4)


def test_a_starved_host_is_retried_once() -> None:
    done, _ = run([STARVED] * 9)
    assert (done.verdict, done.cause, len(done.runs)) == ("unknown", "host_starved", 2)


def test_seeds_are_secret_and_differ_for_the_same_name() -> None:
    seeds = {trial_seed("a") for _ in range(100)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_golden_weights() -> None:
    with pytest.raises(ValueError, match="less than 1"):
        Weights(0.4, 0.7)
    with pytest.raises(UserError, match="must be < 1"):
        run_settings.load(verifier={"format_weight": 0.4, "length_weight": 0.7})


def test_every_pass_beats_every_fail() -> None:
    lowest_pass = compose(True, 4, 4, 999, 100, Weights(0.3, 0.6)).reward
    highest_fail = compose(False, 4, 0, 0, 100, Weights(0.3, 0.6)).reward
    assert lowest_pass == pytest.approx(1 - 0.6)
    assert highest_fail == pytest.approx(0.3)
    assert lowest_pass > highest_fail


def test_component_scores() -> None:
    scores = compose(True, 4, 1, 50, 200, Weights(0.2, 0.1))
    assert (scores.correctness, scores.format_score, scores.length_score) == (1.0, 0.75, 0.25)
    assert scores.reward == pytest.approx(1 + 0.15 - 0.025)
    assert compose(False, 0, 0, 0, 0, Weights(0.2, 0.1)).reward == 0
