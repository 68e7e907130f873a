"""One verdict per attempt, whatever is delivered twice, lost or moved; identical candidates judged once."""

import dataclasses
import threading

import pytest

from schemas.verification import VerificationTrial, VerificationVerdict
from services.runtime.errors import UserError
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, Limits
from services.runtime.settings import Verifier
from services.runtime.store import StoreUnavailable
from services.tasks.build import build_catalogue
from services.verifier import trial
from services.verifier.attribution import Facts
from services.verifier.core import VerifierCore
from services.verifier.echoes import SETTLE_MS
from tests.services.jails import ADD_DIFF, Deliver, OneTask, add_check, add_fixture, completed

CHECK = add_check()
FIXTURE = add_fixture(CHECK)
PASS = Facts(wanted=5, answered=5)
FAIL = Facts(wanted=5, answered=1, rejection="wrong_value", ending="stopped")
INFRA = Facts(fault="no_boot", booted=False)
WRONG_DIFF = ADD_DIFF.replace("a + b", "a * b")


class Script:
    """A check runner that answers from a list (the last one for ever) and counts."""

    def __init__(self, *facts: Facts) -> None:
        self.facts = list(facts) or [PASS]
        self.ran = 0

    def __call__(self, candidate: object, check: object, seed: int) -> Facts:
        self.ran += 1
        return self.facts.pop(0) if len(self.facts) > 1 else self.facts[0]


def made(script: object = None, check=CHECK, fixture=FIXTURE, fetch=lambda uri: ADD_DIFF, **changes) -> Deliver:
    settings = Verifier(**{"infra_retries": 1, "canary_share": 0, "audit_share": 0, "rejudge_share": 0, **changes})
    core = VerifierCore(settings, OneTask(fixture, check), script or Script(), fetch, "sha256:v", lambda: 2_000)
    return Deliver(core, "rollout.completed.v1")


def rested(deliver: Deliver, times: int = 9) -> Deliver:
    """Wakes what rests after a fault until nothing does."""
    for _ in range(times):
        deliver.apply(deliver.core.tick(10**9))
    return deliver


def verdicts(deliver: Deliver) -> list[VerificationVerdict]:
    """The final ones."""
    found = [one for one in deliver.outputs if isinstance(one, VerificationVerdict)]
    return [one for one in found if one.verdict != "pending"]


def test_a_pass_carries_everything_over() -> None:
    deliver = made(format_weight=0.2, length_weight=0.1)
    message = deliver.give(completed(FIXTURE))
    (verdict,) = verdicts(deliver)
    assert (verdict.verdict, verdict.cause, verdict.correctness, verdict.evidence) == ("pass", "ok", 1.0, "E2")
    assert verdict.reward == pytest.approx(1 + 0.2 * 0.5 - 0.1 * 0.3)
    assert (verdict.trials_run, verdict.trials_wanted, verdict.reused) == (3, 3, False)
    assert (verdict.check_digest, verdict.fixture_digest) == (CHECK.digest, FIXTURE.digest)
    carried = "split policy_version newest_version invocations policy_tokens requested_ms started_ms ended_ms"
    for name in (*carried.split(), "generation_ms", "tool_wait_ms", "task_id", "attempt"):
        assert getattr(verdict, name) == getattr(message.record, name)
    runs = [one for one in deliver.outputs if isinstance(one, VerificationTrial)]
    assert [(one.number, one.outcome) for one in runs] == [(0, "pass"), (1, "pass"), (2, "pass")]
    assert deliver.done == [message.position]


def test_a_fail_stops_at_the_first_rejection() -> None:
    deliver = made(Script(PASS, FAIL))
    deliver.give(completed(FIXTURE))
    (verdict,) = verdicts(deliver)
    assert (verdict.verdict, verdict.cause, verdict.reward, verdict.trials_run) == ("fail", "wrong_value", 0.0, 2)


@pytest.mark.parametrize(("diff", "cause"), [("", "no_change"), ("hello\n", "grammar"), (None, "no_candidate")])
def test_what_admission_refuses_is_a_fail_and_runs_nothing(diff: str | None, cause: str) -> None:
    script = Script()
    deliver = made(script)
    deliver.give(completed(FIXTURE, diff=diff, stop_reason="submitted" if diff is not None else "turn_budget"))
    (verdict,) = verdicts(deliver)
    assert (verdict.verdict, verdict.cause, verdict.evidence, script.ran) == ("fail", cause, "none", 0)


def test_infrastructure_becomes_unknown_and_never_a_reward() -> None:
    deliver = made(Script(INFRA))
    deliver.give(completed(FIXTURE))
    (verdict,) = verdicts(rested(deliver))
    assert (verdict.verdict, verdict.cause, verdict.reward, verdict.correctness) == ("unknown", "no_boot", None, None)


@pytest.mark.parametrize("stop", ["engine", "sandbox_lost", "preempted"])
def test_infra_stops_are_unknown_when_final_and_silent_before(stop: str) -> None:
    deliver = made()
    message = deliver.give(completed(FIXTURE, stop_reason=stop, final_attempt=False, diff=None))
    assert deliver.done == [message.position]
    assert not deliver.outputs
    deliver.give(completed(FIXTURE, stop_reason=stop, attempt=1, diff=None, infra_error="gone"))
    (verdict,) = verdicts(deliver)
    assert (verdict.verdict, verdict.cause, verdict.reward) == ("unknown", stop, None)


@pytest.mark.parametrize(("change", "cause"), [
    ({"task_id": "tiny/other"}, "unknown_task"), ({"fixture_digest": "sha256:0"}, "fixture_mismatch")])  # fmt: skip
def test_what_cannot_be_judged_is_unknown(change: dict, cause: str) -> None:
    deliver = made()
    deliver.give(completed(FIXTURE, **change))
    (verdict,) = verdicts(deliver)
    assert (verdict.verdict, verdict.cause) == ("unknown", cause)


def test_a_check_set_of_another_digest_is_not_used() -> None:
    deliver = made(check=add_check(call_cpu_s=0.3))
    deliver.give(completed(FIXTURE))
    assert verdicts(deliver)[0].cause == "check_mismatch"


def test_a_broken_check_set_is_not_the_candidates_fault() -> None:
    def broken(*_: object) -> Facts:
        raise RuntimeError("the reference raised")

    deliver = made(broken)
    deliver.give(completed(FIXTURE))
    assert (verdicts(deliver)[0].verdict, verdicts(deliver)[0].cause) == ("unknown", "check_fault_RuntimeError")


def test_a_pass_below_the_wanted_evidence_is_no_pass() -> None:
    deliver = made(min_evidence="E3")
    deliver.give(completed(FIXTURE))
    deliver.give(completed(FIXTURE, member=1, diff=WRONG_DIFF))
    assert [one.verdict for one in verdicts(deliver)] == ["unknown", "unknown"]
    failing = made(Script(FAIL), min_evidence="E3")
    failing.give(completed(FIXTURE))
    assert verdicts(failing)[0].verdict == "fail"


def test_identical_candidates_are_judged_once_even_while_in_flight() -> None:
    script = Script()
    deliver = made(script)
    for member in range(3):
        deliver.give(completed(FIXTURE, member), run=False)
    deliver.step()  # each is admitted
    assert len(deliver.held) == 1
    deliver.run_jobs()
    deliver.give(completed(FIXTURE, 3))
    assert [(v.verdict, v.reused, v.trials_run) for v in verdicts(deliver)] == [
        ("pass", False, 3), ("pass", True, 0), ("pass", True, 0), ("pass", True, 0),
    ]  # fmt: skip
    assert script.ran == 3
    assert len(deliver.done) == 4


def test_unknown_is_never_reused() -> None:
    script = Script(INFRA, INFRA, PASS)
    deliver = made(script)
    deliver.give(completed(FIXTURE, 0))
    rested(deliver).give(completed(FIXTURE, 1))
    assert [(v.verdict, v.reused) for v in verdicts(deliver)] == [("unknown", False), ("pass", False)]


def test_reuse_can_be_switched_off() -> None:
    script = Script()
    deliver = made(script, reuse=False)
    for member in range(2):
        deliver.give(completed(FIXTURE, member))
    assert script.ran == 6
    assert not any(v.reused for v in verdicts(deliver))


def test_a_reused_verdict_says_whose_it_is() -> None:
    deliver = made()
    for member in range(2):
        deliver.give(completed(FIXTURE, member))
    assert [(v.reused, v.earlier_trial, v.rejudged) for v in verdicts(deliver)] == [
        (False, None, False), (True, "run/00000000/0.0", False)]  # fmt: skip


@pytest.mark.parametrize(("facts", "verdict"), [(PASS, "pass"), (FAIL, "fail")], ids=["passes", "fails"])
def test_a_declared_share_of_what_could_be_reused_is_judged_afresh(facts: Facts, verdict: str) -> None:
    """Chosen by the trial's id alone: the same ones in every process, whatever order they come in."""
    script = Script(facts)
    deliver = made(script, rejudge_share=0.25)
    for member in range(200):
        deliver.give(completed(FIXTURE, member))
    found = verdicts(deliver)
    assert {v.verdict for v in found} == {verdict}
    afresh = {v.trial_id for v in found if v.rejudged}
    assert 30 < len(afresh) < 70
    assert all((v.reused, v.earlier_trial) == (not v.rejudged, "run/00000000/0.0") for v in found[1:])
    assert script.ran == (1 + len(afresh)) * (3 if verdict == "pass" else 1)
    again = made(Script(facts), rejudge_share=0.25)
    for member in reversed(range(200)):
        again.give(completed(FIXTURE, member), run=False)
    again.run_jobs()
    first = verdicts(again)[0].trial_id
    assert {v.trial_id for v in verdicts(again) if v.rejudged} - {first} == afresh - {first}


def test_a_lucky_pass_is_not_handed_on_once_it_is_contradicted() -> None:
    deliver = made(Script(PASS, PASS, PASS, FAIL), rejudge_share=1)
    for member in range(3):
        deliver.give(completed(FIXTURE, member))
    first, second, third = verdicts(deliver)
    assert (first.verdict, second.verdict, second.cause, second.rejudged) == ("pass", "fail", "wrong_value", True)
    assert (second.earlier_trial, second.reused) == ("run/00000000/0.0", False)
    assert (third.verdict, third.cause, third.reward) == ("fail", "contradicted", 0.0)


def test_a_fail_that_is_contradicted_by_a_limit_is_only_not_reused() -> None:
    slow = Facts(wanted=5, answered=1, ending="limit")
    script = Script(slow, PASS)
    deliver = made(script, rejudge_share=1)
    deliver.give(completed(FIXTURE, 0))
    deliver.give(completed(FIXTURE, 1))
    deliver.core._reuse._share = 0
    deliver.give(completed(FIXTURE, 2))
    assert [(v.verdict, v.reused) for v in verdicts(deliver)] == [("fail", False), ("pass", False), ("pass", False)]
    assert script.ran == 7


def test_redelivery_gives_no_second_verdict() -> None:
    deliver = made()
    deliver.give(completed(FIXTURE), run=False)
    deliver.give(completed(FIXTURE), run=False)
    deliver.run_jobs()
    deliver.give(completed(FIXTURE))
    assert len(verdicts(deliver)) == 1
    assert len(deliver.done) == 3


@pytest.mark.parametrize("first_infra", [True, False], ids=["infra first", "candidate first"])
def test_of_two_ends_of_one_attempt_the_first_in_the_log_counts(first_infra: bool) -> None:
    deliver = made()
    infra = completed(FIXTURE, stop_reason="sandbox_lost", diff=None, infra_error="gone", final_attempt=False)
    both = (
        [infra, completed(FIXTURE)]
        if first_infra
        else [completed(FIXTURE), dataclasses.replace(infra, final_attempt=True)]
    )
    for record in both:
        deliver.give(record, run=False)
    deliver.run_jobs()
    assert [v.verdict for v in verdicts(deliver)] == ([] if first_infra else ["pass"])
    assert len(deliver.done) == 2


def test_after_a_restart_verdicts_in_the_log_are_found_before_anything_is_judged() -> None:
    first = made()
    first.give(completed(FIXTURE))
    (known,) = verdicts(first)
    script = Script()
    again = made(script)
    again.core.assigned(frozenset({0}))
    again.give(completed(FIXTURE))
    again.give(completed(FIXTURE, member=1, diff=WRONG_DIFF))
    assert not again.done
    again.give(known, topic="verification.verdict.v1")
    again.apply(again.core.caught_up(5))
    assert [v.trial_id for v in verdicts(again)] == ["run/00000000/1"]
    assert script.ran == 3
    assert len(again.done) == 2
    again.apply(again.core.tick(again.now_ms + SETTLE_MS))
    assert len(again.done) == 3


def test_a_revoked_partition_gets_nothing_while_others_still_do() -> None:
    deliver = made()
    kept = deliver.give(completed(FIXTURE, 1), partition=1, run=False)
    deliver.give(completed(FIXTURE, 0), partition=0, run=False)
    deliver.step()
    deliver.core.revoked(frozenset({0}))
    deliver.run_jobs()
    assert deliver.done == [kept.position]
    assert [v.trial_id for v in verdicts(deliver)] == ["run/00000000/1"]
    deliver.give(completed(FIXTURE, 0), partition=0)
    assert verdicts(deliver)[-1].reused


def test_a_claim_check_is_fetched_and_a_missing_one_is_unknown() -> None:
    deliver = made()
    deliver.give(completed(FIXTURE, diff=None, diff_uri="sha256/ab/abc"))
    assert verdicts(deliver)[0].verdict == "pass"

    def gone(uri: str) -> str:
        raise KeyError(uri)

    deliver = made(fetch=gone)
    deliver.give(completed(FIXTURE, diff=None, diff_uri="sha256/ab/abc"))
    assert (verdicts(deliver)[0].verdict, verdicts(deliver)[0].cause) == ("unknown", "diff_unavailable")


def test_a_store_that_is_down_is_waited_for_and_decides_nothing() -> None:
    answers = [StoreUnavailable("down"), UserError("wrong key"), ADD_DIFF]

    def fetch(uri: str) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    deliver = made(fetch=fetch)
    deliver.give(completed(FIXTURE, diff=None, diff_uri="sha256/ab/abc"))
    assert [v.verdict for v in verdicts(deliver)] == ["pass"]


# -- with real jails and the real catalogue ----------------------------------------------------------------------


class Catalogue:
    def __init__(self) -> None:
        self.tasks = build_catalogue(0)

    def fixture(self, task_id: str):
        return self.tasks.get(task_id)

    def check(self, task_id: str):
        return self.tasks.checks.get(task_id)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def test_the_catalogues_repairs_pass_and_its_known_bads_fail(host: JailHost, catalogue: Catalogue) -> None:
    from services.patch.render import render
    from services.tasks.repair import reference_edit

    bounds = trial.Bounds(Limits(128 * MIB, 12, cpu_s=3), 0.1, 10.0)
    settings = Verifier(canary_share=0, audit_share=0)

    def check_run(candidate, check, seed: int) -> Facts:
        return trial.run(host, candidate.tree, check, seed, bounds)

    core = VerifierCore(settings, catalogue, check_run, str, "v", lambda: 0)
    deliver = Deliver(core, "rollout.completed.v1")
    problems = {f.problem: f for f in catalogue.tasks.split("train")}
    for number, fixture in enumerate(problems.values()):
        (path,) = fixture.base_tree
        line, text = reference_edit(fixture)
        lines = fixture.base_tree[path].split("\n")
        lines[line - 1] = text
        right = render(fixture.base_tree, {path: "\n".join(lines)})
        deliver.give(completed(fixture, number, diff=right))
        bad = render(fixture.base_tree, catalogue.check(fixture.task_id).known_bad[0])
        deliver.give(completed(fixture, 1000 + number, diff=bad))
    got = {int(v.trial_id.rsplit("/", 1)[1]): v for v in verdicts(deliver)}
    wrong = {n: (v.task_id, v.verdict, v.cause) for n, v in got.items() if (v.verdict == "pass") != (n < 1000)}
    assert not wrong
    assert {v.evidence for n, v in got.items() if n < 1000} == {"E3"}
    assert len(got) == 2 * len(problems)


def test_two_threads_judge_at_once_without_mixing(host: JailHost) -> None:
    bounds = trial.Bounds(Limits(128 * MIB, 12, cpu_s=3), 0.1, 10.0)
    found: list[tuple[int, str | None]] = []

    def work(right: bool) -> None:
        source = "def add(a, b):\n    return a + b\n" if right else "def add(a, b):\n    return a - b\n"
        for seed in range(6):
            facts = trial.run(host, {"solution.py": source}, CHECK, seed, bounds)
            found.append((right, facts.rejection))

    threads = [threading.Thread(target=work, args=(right,)) for right in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found, key=str) == sorted([(False, "wrong_value")] * 6 + [(True, None)] * 6, key=str)
