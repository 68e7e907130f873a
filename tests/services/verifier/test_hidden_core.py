"""A check set of hidden pytest files goes through the verifier like any other: diff in, verdict out."""

import pytest

from schemas.verification import VerificationTrial, VerificationVerdict
from services.runtime.jail.launcher import JailHost
from services.runtime.settings import Verifier
from services.tasks.fixture import CheckSet, HiddenTests
from services.verifier import trial
from services.verifier.core import VerifierCore
from tests.services.jails import ADD_DIFF, Deliver, OneTask, add_fixture, completed
from tests.services.verifier.hidden_cases import BOUNDS, CALC_IDS, CALC_TESTS, check_of

HARD_CODED = ADD_DIFF.replace("    return a + b", "    return {(2, 3): 5, (-17, 400): 383}.get((a, b))")


def check(mode: str, source: str = CALC_TESTS) -> CheckSet:
    source = source.replace("from calc", "from solution")
    tests = HiddenTests({"test_calc.py": source}, "solution", mode, CALC_IDS, {"functions": ["add"]})
    return check_of(tests, task_id="tiny/add", entry="solution:add")


def verdict_of(host: JailHost, hidden: CheckSet, diff: str, **settings: object) -> tuple[VerificationVerdict, int]:
    fixture = add_fixture(hidden)
    core = VerifierCore(
        Verifier(canary_share=0, audit_share=0, **settings),  # type: ignore[arg-type]  # names of many types
        OneTask(fixture, hidden), lambda c, one, seed: trial.run(host, c.tree, one, seed, BOUNDS), str, "v", lambda: 0,
    )  # fmt: skip
    deliver = Deliver(core, "rollout.completed.v1")
    deliver.give(completed(fixture, diff=diff))
    (verdict,) = [one for one in deliver.outputs if isinstance(one, VerificationVerdict)]
    return verdict, sum(isinstance(one, VerificationTrial) for one in deliver.outputs)


def test_outside_the_repair_earns_the_reward(host: JailHost) -> None:
    verdict, trials = verdict_of(host, check("outside"), ADD_DIFF)
    assert (verdict.verdict, verdict.reward, verdict.evidence, trials) == ("pass", 1.0, "E2", 3)
    verdict, trials = verdict_of(host, check("outside"), ADD_DIFF.replace("a + b", "a * b"))
    assert (verdict.verdict, verdict.cause, verdict.reward, trials) == ("fail", "test_failed", 0.0, 1)


@pytest.mark.parametrize("diff", [ADD_DIFF, HARD_CODED])
def test_inside_whatever_passes_is_unknown_and_no_reward(host: JailHost, diff: str) -> None:
    verdict, trials = verdict_of(host, check("inside"), diff, trials=1)
    assert (verdict.verdict, verdict.cause, verdict.reward) == ("unknown", "evidence_too_low", None)
    assert (verdict.evidence, trials) == ("E1", 1)


def test_inside_a_fail_is_usable(host: JailHost) -> None:
    verdict, _ = verdict_of(host, check("inside"), ADD_DIFF.replace("a + b", "a * b"))
    assert (verdict.verdict, verdict.cause, verdict.reward) == ("fail", "test_failed", 0.0)


def test_inside_counts_only_where_somebody_says_so(host: JailHost) -> None:
    verdict, _ = verdict_of(host, check("inside"), ADD_DIFF, min_evidence="E1", trials=1)
    assert (verdict.verdict, verdict.reward, verdict.evidence) == ("pass", 1.0, "E1")


def test_tests_that_fail_by_themselves_give_no_verdict(host: JailHost) -> None:
    broken = check("outside", CALC_TESTS.replace("assert add(2, 3) == 5", "assert 1 == 2"))
    broken_first = check("outside", "import nothing_of_that_name\n" + CALC_TESTS)
    for one in (broken, broken_first):
        verdict, _ = verdict_of(host, one, ADD_DIFF)
        assert (verdict.verdict, verdict.cause, verdict.reward) == ("unknown", "check_fault_CheckFault", None)
