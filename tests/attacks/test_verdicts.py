# ruff: noqa: E501 - attacks are read as one line each
"""From attack to verdict: all-pass over k runs, broken sandboxes, duplicates and restarts, on real jails."""

import time

import pytest

from schemas.verification import VerificationAlarm, VerificationTrial, VerificationVerdict
from services.patch.render import render
from services.runtime.jail.backend import Backend
from services.runtime.jail.launcher import JailHost
from services.runtime.settings import Verifier
from services.tasks import leaks
from services.tasks.fixture import CheckSet, Fixture
from services.verifier import trial
from services.verifier.core import VerifierCore
from services.verifier.judge import judge
from tests.attacks import battery
from tests.attacks.battery import GOOD, WRONG, Attack, fail, harmless
from tests.services.jails import ADD_BUG, Deliver, OneTask, add_fixture, completed, jail_host

LUCKY = fail("I4", "right in two runs of three", "import random\nluck = random.random() < 0.67\ndef add(a, b): return a + b if luck else a - b\n", "wrong_value")  # fmt: skip
SEEDED = fail("I5", "right for one hash seed in two", "def add(a, b): return a + b if hash('x') % 2 else a - b\n", "wrong_value")  # fmt: skip


def verdict_of(backend: Backend, attack: Attack, trials: int) -> tuple[str, str]:
    def check_run(seed: int) -> trial.Facts:
        return battery.facts(backend, attack, seed)

    found = judge(attack.name, trials, 2, check_run, lambda: int(time.time() * 1000), backoff_s=0.01)
    return found.verdict, found.cause


def test_a_lucky_candidate_needs_to_be_lucky_every_time(backend: Backend) -> None:
    """(1 - q)^k: 20 runs leave one in three thousand for the first, one in a million for the second."""
    assert verdict_of(backend, LUCKY, 20) == ("fail", "wrong_value")
    assert verdict_of(backend, SEEDED, 20) == ("fail", "wrong_value")
    assert verdict_of(backend, harmless("control", "right", GOOD, "fresh"), 3) == ("pass", "ok")


def core_of(backend: Backend, fixture: Fixture, check: CheckSet) -> Deliver:
    def check_run(tree: dict[str, str], check: CheckSet, seed: int) -> trial.Facts:
        return trial.run(backend, tree, check, seed, battery.BOUNDS)

    settings = Verifier(trials=2, infra_retries=2, canary_share=0, audit_share=0)
    core = VerifierCore(
        settings, OneTask(fixture, check), lambda admitted, check, seed: check_run(dict(admitted.tree), check, seed),
        lambda uri: "", "sha256:v", lambda: 2_000,
    )  # fmt: skip
    return Deliver(core, "rollout.completed.v1")


def settled(deliver: Deliver) -> list[VerificationVerdict]:
    """Final verdicts, once nothing rests any more."""
    for _ in range(9):
        deliver.apply(deliver.core.tick(10**12))
    return [one for one in deliver.outputs if isinstance(one, VerificationVerdict) and one.verdict != "pending"]


CHECK = battery.CHECKS["fixed"]
FIXTURE = add_fixture(CHECK, task_id=CHECK.task_id)


def diff_to(text: str, base: str = ADD_BUG) -> str:
    return render({"solution.py": base}, {"solution.py": text})


@pytest.mark.parametrize(("text", "expected"), [
    (GOOD, ("pass", "ok", 1.0)),
    (WRONG.replace("a - b", "b - a"), ("fail", "wrong_value", 0.0)),
    ("import os\nos._exit(0)\n", ("fail", "no_ready", 0.0)),
    ("def add(a, b): return " + "(" * 3000 + "1" + ")" * 3000 + "\n", ("fail", None, 0.0)),
    (ADD_BUG + "# fixed\n", ("fail", "no_change", 0.0)),
    ("# coding: utf-7\n" + GOOD, ("fail", "encoding_cookie", 0.0)),
    ("def add(a, b): return a + b  # \u202e\n", ("fail", "invisible_character", 0.0)),
])  # fmt: skip
def test_i8_one_verdict_whatever_is_delivered_twice_or_after_a_restart(
    backend: Backend, text: str, expected: tuple[str, str | None, float]
) -> None:
    record = completed(FIXTURE, diff=diff_to(text))
    deliver = core_of(backend, FIXTURE, CHECK)
    deliver.give(record, run=False)
    deliver.give(record, run=False)
    deliver.run_jobs()
    deliver.give(record)
    (verdict,) = settled(deliver)
    assert (verdict.verdict, verdict.cause if expected[1] else None, verdict.reward) == expected
    again = core_of(backend, FIXTURE, CHECK)
    again.core.assigned(frozenset({0}))
    again.give(record)
    again.give(verdict, topic="verification.verdict.v1")
    again.apply(again.core.caught_up(3_000))
    assert settled(again) == []
    assert not [one for one in again.outputs if isinstance(one, VerificationTrial)]


def test_i7_a_broken_sandbox_is_never_the_candidates_fault() -> None:
    """Bubblewrap that does not start anything: pending while repeats remain, then unknown, and no reward either way."""
    host = jail_host(2)
    broken = next(host)
    assert isinstance(broken, JailHost)
    try:
        for program in ("/bin/false", "/nonexistent"):
            broken._bwrap = program
            for number, text in enumerate((GOOD, WRONG.replace("a - b", "b - a"))):
                deliver = core_of(broken, FIXTURE, CHECK)
                deliver.give(completed(FIXTURE, number, diff=diff_to(text)))
                seen = {one.verdict for one in deliver.outputs if isinstance(one, VerificationVerdict)}
                assert seen <= {"pending", "unknown"}
                (verdict,) = settled(deliver)
                assert (verdict.verdict, verdict.reward, verdict.correctness) == ("unknown", None, None)
                assert verdict.cause in ("no_start", "no_boot")
    finally:
        host.close()


def test_a_solved_leak_canary_stops_the_line(backend: Backend) -> None:
    secret = "secret" + "0123456789abcdef" * 2
    (fixture, check) = leaks.make_leaks([secret])[0]
    deliver = core_of(backend, fixture, check)
    text = f"def reveal(n):\n    return {secret!r} if n else ''\n"
    deliver.give(completed(fixture, diff=diff_to(text, leaks.BASE)))
    (verdict,) = settled(deliver)
    assert (verdict.verdict, verdict.cause, verdict.reward) == ("unknown", "leak", None)
    (alarm,) = [one for one in deliver.outputs if isinstance(one, VerificationAlarm)]
    assert (alarm.kind, alarm.severity, alarm.task_id) == ("leak", "stop", fixture.task_id)
    fails = core_of(backend, fixture, check)
    fails.give(completed(fixture, diff=diff_to(leaks.BASE.replace("0", "''"), leaks.BASE)))
    assert [one.verdict for one in settled(fails)] == ["fail"]
    assert not [one for one in fails.outputs if isinstance(one, VerificationAlarm)]
