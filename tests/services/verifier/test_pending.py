"""Protects candidates against infrastructure: pending, then another try later, then unknown; never a fail, no thread
that waits, nothing committed before the final verdict, and no repeat of anything but infrastructure."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.verification import VerificationTrial, VerificationVerdict
from services.runtime.jail.limits import Usage
from services.runtime.settings import Verifier
from services.runtime.watermark import Watermarks
from services.verifier.attribution import Facts
from services.verifier.core import VerifierCore
from services.verifier.judge import Course, judge
from tests.services.jails import Deliver, OneTask, add_check, add_fixture, completed

CHECK = add_check()
FIXTURE = add_fixture(CHECK)
PASS = Facts(wanted=5, answered=5)
FAIL = Facts(wanted=5, answered=1, rejection="wrong_value", ending="stopped")
INFRA = Facts(fault="no_boot", booted=False)
STARVED = Facts(ending="deadline", wall_s=10.0, pressure=0.9, usage=Usage(cpu_s=0.1, host_wait_s=9.0))
NAMES = {"p": PASS, "f": FAIL, "i": INFRA, "s": STARVED}


class World:
    """A core whose clock is moved by hand and whose check runs follow a script (the last one for ever)."""

    def __init__(self, script: str, **settings: object) -> None:
        self.rest = list(script)
        self.ran = 0
        self.now_ms = 1_000
        chosen = Verifier(**{"canary_share": 0, "audit_share": 0, "retry_backoff_s": 1.0, **settings})
        self.core = VerifierCore(chosen, OneTask(FIXTURE, CHECK), self.run, str, "v", lambda: self.now_ms)
        self.deliver = Deliver(self.core, "rollout.completed.v1")

    def run(self, *_: object) -> Facts:
        self.ran += 1
        return NAMES[self.rest.pop(0) if len(self.rest) > 1 else self.rest[0]]

    def tick(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.deliver.apply(self.core.tick(self.now_ms))

    @property
    def said(self) -> list[tuple[str, str, int | None]]:
        found = [one for one in self.deliver.outputs if isinstance(one, VerificationVerdict)]
        return [(one.verdict, one.cause, one.retry) for one in found]


def test_a_fault_is_pending_and_repeated_after_a_doubling_rest_until_it_is_unknown() -> None:
    world = World("i", infra_retries=3)
    message = world.deliver.give(completed(FIXTURE))
    for faults, rest_ms in [(1, 1_000), (2, 2_000), (3, 4_000)]:
        assert world.said[-1] == ("pending", "no_boot", faults)
        assert world.deliver.done == []
        world.tick(rest_ms - 1)
        assert (world.ran, world.core.resting) == (faults, 1)
        world.tick(1)
        assert world.ran == faults + 1
    assert world.said[-1] == ("unknown", "no_boot", None)
    assert world.deliver.done == [message.position]
    assert world.core.resting == 0
    final = world.deliver.outputs[-1]
    assert (final.reward, final.correctness, final.trials_run) == (None, None, 4)


def test_nothing_occupies_a_worker_while_a_judgement_rests() -> None:
    world = World("ip")
    world.deliver.give(completed(FIXTURE))
    assert (world.deliver.held, world.core.resting) == ([], 1)


def test_runs_that_passed_before_the_fault_count_on() -> None:
    world = World("ppip")
    world.deliver.give(completed(FIXTURE))
    world.tick(1_000)
    assert [word for word, _, _ in world.said] == ["pending", "pass"]
    runs = [one for one in world.deliver.outputs if isinstance(one, VerificationTrial)]
    assert [(run.number, run.infra_attempt, run.outcome) for run in runs] == [
        (0, 0, "pass"), (1, 0, "pass"), (2, 0, "infra"), (2, 1, "pass")]  # fmt: skip
    assert len({run.seed for run in runs}) == 4


def test_a_starved_host_is_given_one_more_try_at_the_full_deadline() -> None:
    world = World("sp")
    world.deliver.give(completed(FIXTURE))
    world.tick(1_000)
    assert [word for word, _, _ in world.said] == ["pending", "pass"]
    twice = World("s")
    twice.deliver.give(completed(FIXTURE))
    twice.tick(1_000)
    assert twice.said[-1] == ("unknown", "host_starved", None)
    assert twice.ran == 2


def test_everybody_who_waits_for_the_candidate_is_told() -> None:
    world = World("ip")
    for member in range(3):
        world.deliver.give(completed(FIXTURE, member), run=False)
    world.deliver.run_jobs()
    world.deliver.give(completed(FIXTURE, 3))
    world.tick(1_000)
    assert Counter(word for word, _, _ in world.said) == {"pending": 3, "pass": 4}
    assert len(world.deliver.done) == 4


def test_a_pending_verdict_read_back_settles_nothing() -> None:
    world = World("ip")
    world.deliver.give(completed(FIXTURE))
    pending = world.deliver.outputs[-1]
    again = World("p")
    again.core.assigned(frozenset({0}))
    again.deliver.give(completed(FIXTURE))
    again.deliver.give(pending, topic="verification.verdict.v1")
    assert again.said == []
    again.deliver.apply(again.core.caught_up(5))
    assert [word for word, _, _ in again.said] == ["pass"]


def test_the_watermark_stays_below_a_pending_completion() -> None:
    world, marks = World("ip"), Watermarks()
    key = ("rollout.completed.v1", 0)
    marks.open([key])
    finished = 0
    for member in range(3):
        diff = None if member else completed(FIXTURE).diff
        message = world.deliver.message(completed(FIXTURE, member, diff=diff))
        marks.deliver(message.position)
        world.deliver.apply(world.core.handle(message, world.now_ms))
        marks.finish_now(world.deliver.done[finished:])
        finished = len(world.deliver.done)
    assert (finished, marks.committable()) == (2, {})
    world.tick(1_000)
    marks.finish_now(world.deliver.done[finished:])
    assert marks.committable() == {key: 3}


def test_what_nobody_waits_for_any_more_is_not_repeated() -> None:
    world = World("ip")
    world.deliver.give(completed(FIXTURE))
    world.core.revoked(frozenset({0}))
    world.tick(1_000)
    assert (world.ran, world.core.resting) == (1, 0)
    world.deliver.give(completed(FIXTURE))
    assert world.said[-1][0] == "pass"


@given(st.text("pfis", min_size=1, max_size=12), st.integers(1, 4), st.integers(0, 4))
def test_any_course_of_events_ends_as_the_table_says(script: str, trials: int, retries: int) -> None:
    """Against a plain count: the first fail fails, faults only ever lead to unknown, k passes pass."""
    rest = iter(script + "p" * 20)
    judgement = judge("t", trials, retries, lambda seed: NAMES[next(rest)], lambda: 0, lambda s: None)
    passes = faults = starved = 0
    for letter in script + "p" * 20:
        passes += letter == "p"
        faults += letter in "is"
        starved += letter == "s"
        if letter == "f" or passes == trials or faults > retries or starved == 2:
            break
    expected = "fail" if letter == "f" else "pass" if passes == trials else "unknown"
    assert judgement.verdict == expected
    assert len(judgement.runs) == passes + faults + (letter == "f")


@pytest.mark.parametrize(("script", "verdict", "runs"), [
    ("fp", "fail", 2), ("pf", "fail", 2), ("fff", "fail", 6), ("ppppppp", "pass", 6), ("fifp", "fail", 4)])  # fmt: skip
def test_a_thorough_course_goes_on_until_it_has_seen_both(script: str, verdict: str, runs: int) -> None:
    course, rest = Course("t", 6, 3, thorough=True), iter(script + script[-1] * 9)
    judgement = course.go_on(lambda seed: NAMES[next(rest)], lambda: 0)
    while judgement.verdict == "pending":
        judgement = course.go_on(lambda seed: NAMES[next(rest)], lambda: 0)
    assert (judgement.verdict, len(judgement.runs)) == (verdict, runs)


def test_faults_and_crashes_in_any_order_leave_one_final_verdict_each() -> None:
    """Many candidates, faults at random, revocations and redeliveries: each attempt ends in exactly one final verdict,
    and only those whose own check run rejects fail."""
    draw = random.Random(7)
    for _ in range(30):
        world = World("p", reuse=draw.random() < 0.5, infra_retries=50)
        world.run = lambda *_: NAMES[draw.choice("ppi")]
        world.core._courses._check_runner = world.run
        members = [completed(FIXTURE, member) for member in range(6)]
        for record in members:
            world.deliver.give(record, partition=draw.randrange(2))
        if draw.random() < 0.5:
            world.core.revoked(frozenset({0, 1}))
            for record in members:
                world.deliver.give(record)
        for _ in range(60):
            world.tick(10**9)
        final = Counter(one.trial_id for one in world.deliver.outputs
                        if isinstance(one, VerificationVerdict) and one.verdict == "pass")  # fmt: skip
        assert final == {record.trial_id: 1 for record in members}
        assert {word for word, _, _ in world.said} <= {"pending", "pass"}
