"""Protects the judge from itself: canaries and audits run on the candidates' path, a rejected reference quarantines, a
known-bad that passes stops the line, and a restart or a second instance knows it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from schemas.record import Record
from schemas.verification import VerificationAlarm, VerificationCanary, VerificationVerdict
from services.patch.admission import admit
from services.runtime.jail.limits import Usage
from services.runtime.settings import Verifier
from services.tasks.certificates import Certificate, Pool, Tally
from services.tasks.certificates import Mutants as NoMutants
from services.verifier.assurance.sequential import DEFAULT
from services.verifier.attribution import Facts
from services.verifier.candidate import LEAKS
from services.verifier.core import VerifierCore
from services.verifier.reuse import Reuse
from tests.services.jails import ADD_BUG, ADD_DIFF, ADD_FIX, Deliver, OneTask, add_check, add_fixture, completed
from tests.services.verifier.records import canary

CHECK = add_check(reference={"solution.py": ADD_FIX}, known_bad=({"solution.py": ADD_BUG},))
FIXTURE = add_fixture(CHECK)
PASS = Facts(wanted=5, answered=5)
FAIL = Facts(wanted=5, answered=1, rejection="wrong_value", ending="stopped")
INFRA = Facts(fault="no_boot", booted=False)


class Dice:
    """Chances in a given order, then never."""

    def __init__(self, *draws: float) -> None:
        self.draws = list(draws)

    def random(self) -> float:
        return self.draws.pop(0) if self.draws else 1.0

    def choice(self, seq: list[Any]) -> Any:
        return seq[0]


REFERENCE, KNOWN_BAD, NONE = (0.0, 0.0), (0.0, 0.9), (1.0,)


class World:
    """A core on honest check runs: a tree passes if it adds. `truth` may lie about a tree, as a broken judge would."""

    def __init__(self, *draws: float, fixture: Any = FIXTURE, check: Any = CHECK, **changes: Any) -> None:
        self.lies: dict[str, list[Any]] = {}
        self.ran: Counter[str] = Counter()
        certificate = changes.pop("certificate", None)
        settings = Verifier(**{"audit_share": 0.0, "infra_retries": 0, "rejudge_share": 0.0, **changes})
        self.core = VerifierCore(
            settings, OneTask(fixture, check), self.run, str, "v", lambda: 2_000, run_id="run", chance=Dice(*draws),
            certificate_of=lambda digest: certificate,
        )  # fmt: skip
        self.fixture = fixture
        self.deliver = Deliver(self.core, "rollout.completed.v1")

    def run(self, admitted: Any, check: Any, seed: int) -> Facts:
        text = admitted.tree["solution.py"]
        self.ran[text] += 1
        lies = self.lies.get(text)
        if lies:
            told = lies.pop(0) if len(lies) > 1 else lies[0]
            if isinstance(told, Exception):
                raise told
            return told
        return PASS if "a + b" in text else FAIL

    def judge(self, member: int = 0, diff: str | None = ADD_DIFF, **changes: Any) -> str:
        self.deliver.give(completed(self.fixture, member, diff=diff, **changes))
        verdicts = self.found(VerificationVerdict)
        return f"{verdicts[-1].verdict} {verdicts[-1].cause}"

    def found(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.deliver.outputs if isinstance(one, kind)]

    def alarms(self) -> list[tuple[str, str]]:
        return [(one.kind, one.severity) for one in self.found(VerificationAlarm)]


def test_a_canary_is_judged_on_the_same_path_and_recorded_beside_the_candidate() -> None:
    world = World(*REFERENCE, *KNOWN_BAD)
    assert world.judge(0) == "pass ok"
    assert world.judge(1, ADD_DIFF.replace("a + b", "b + a")) == "fail wrong_value"
    good, bad = world.found(VerificationCanary)
    assert (good.kind, good.expected, good.verdict, good.runs) == ("reference", "pass", "pass", 3)
    assert good.log_ratio == pytest.approx(3 * DEFAULT.clean_step)
    assert (bad.kind, bad.expected, bad.verdict, bad.cause, bad.log_ratio) == (
        "known_bad", "fail", "fail", "wrong_value", None)  # fmt: skip
    assert good.candidate_digest != bad.candidate_digest
    assert world.ran[ADD_BUG] == 1
    assert world.alarms() == []
    assert len(world.found(VerificationVerdict)) == 2


def test_about_the_wanted_share_is_interleaved() -> None:
    import random

    world = World(canary_share=0.1, reuse=False)
    world.core._known_answers._chance = random.Random(3)
    for member in range(600):
        world.judge(member)
    assert 40 < len(world.found(VerificationCanary)) < 80
    assert Counter(one.kind for one in world.found(VerificationCanary)).keys() == {"reference", "known_bad"}


def test_a_task_without_known_answers_has_no_canaries() -> None:
    plain = add_check()
    world = World(*REFERENCE, *KNOWN_BAD, fixture=add_fixture(plain), check=plain)
    assert world.judge(0) == "pass ok"
    assert world.found(VerificationCanary) == []


def test_a_rejected_reference_quarantines_its_check_set() -> None:
    world = World(*NONE, *REFERENCE)
    assert world.judge(0) == "pass ok"
    world.lies[ADD_FIX] = [PASS, PASS, FAIL]
    world.core._reuse = Reuse(Verifier())
    world.judge(1, ADD_DIFF.replace("a + b", "a + b + 0"))
    assert world.alarms() == [("quarantine", "warn")]
    (alarm,) = world.found(VerificationAlarm)
    assert (alarm.check_digest, alarm.count, alarm.total) == (CHECK.digest, 1, 3)
    assert world.found(VerificationCanary)[0].log_ratio >= alarm.bound == DEFAULT.quarantine
    before = sum(world.ran.values())
    assert world.judge(2) == "unknown quarantined"
    assert world.judge(3, ADD_DIFF.replace("a + b", "a * b")) == "unknown quarantined"
    assert sum(world.ran.values()) == before
    assert world.found(VerificationVerdict)[-1].reward is None


def test_a_judgement_that_is_under_way_when_its_check_set_falls_is_unknown() -> None:
    world = World(*REFERENCE)
    world.lies[ADD_FIX] = [FAIL]
    message = world.deliver.message(completed(FIXTURE, 0, diff=ADD_DIFF.replace("a + b", "b + a + 0")))
    world.deliver.apply(world.core.handle(message, 0), run=False)
    world.deliver.step()
    candidate, reference = world.deliver.held
    world.deliver.held = [reference, candidate]
    world.deliver.run_jobs()
    assert [v.cause for v in world.found(VerificationVerdict)] == ["quarantined"]


def test_a_known_bad_that_passes_stops_the_line() -> None:
    world = World(*KNOWN_BAD)
    world.lies[ADD_BUG] = [PASS]
    assert world.judge(0) == "pass ok"
    assert world.alarms() == [("soundness", "stop")]
    assert "known to be wrong passed" in world.found(VerificationAlarm)[0].detail
    assert world.core.standing.count("stop") == 1


def test_infrastructure_counts_for_nothing() -> None:
    world = World(*REFERENCE, *KNOWN_BAD, infra_retries=1)
    world.lies[ADD_FIX] = [PASS, PASS, PASS, INFRA]
    world.lies[ADD_BUG] = [INFRA]
    world.judge(0)
    world.judge(1, ADD_DIFF.replace("a + b", "b + a"))
    for _ in range(3):
        world.deliver.apply(world.core.tick(10**9))
    assert {one.verdict for one in world.found(VerificationCanary)} == {"unknown"}
    assert world.alarms() == []
    assert not world.core.standing.quarantined(CHECK.digest)


def test_an_audit_that_confirms_is_recorded_with_its_version() -> None:
    world = World(1.0, 0.0, audit_share=0.5)
    assert world.judge(0) == "pass ok"
    (audit,) = world.found(VerificationCanary)
    assert (audit.kind, audit.verdict, audit.runs, audit.policy_version) == ("audit", "pass", 12, 3)
    assert audit.trial_id == "run/00000000/0"
    assert world.core.tally.estimate(3).audits.count == 1


def test_an_audit_of_an_unsteady_candidate_warns_and_counts_as_a_false_accept() -> None:
    world = World(1.0, 0.0, audit_share=0.5)
    world.lies[ADD_FIX] = [PASS, PASS, PASS, PASS, FAIL, PASS]
    assert world.judge(0) == "pass ok"
    (audit,) = world.found(VerificationCanary)
    assert (audit.verdict, audit.cause, audit.runs) == ("fail", "unsteady_wrong_value", 2)
    assert world.alarms() == [("soundness", "warn")]
    assert (world.core.tally.estimate(3).audits.hits, world.core.tally.estimate(3).audits.count) == (1, 1)


@pytest.mark.parametrize("evidence", ["E3", "E2"])
def test_an_audit_that_is_wrong_every_time_costs_that_candidate_and_nobody_else(evidence: str) -> None:
    """It may count its check runs: right in the first three, wrong in every one after that."""
    check = add_check(evidence=evidence)
    world = World(1.0, 0.0, fixture=add_fixture(check), check=check, audit_share=0.5)
    world.lies[ADD_FIX] = [PASS, PASS, PASS, FAIL]
    assert world.judge(0) == "pass ok"
    (audit,) = world.found(VerificationCanary)
    assert (audit.verdict, audit.runs, audit.cause == "always_wrong") == ("fail", 12, evidence == "E3")
    assert world.alarms() == [("soundness", "warn")]
    before = sum(world.ran.values())
    assert world.judge(1) == "fail contradicted"
    assert sum(world.ran.values()) == before
    verdict = world.found(VerificationVerdict)[-1]
    assert (verdict.reward, verdict.reused, verdict.evidence) == (0.0, False, "none")
    assert world.judge(2, ADD_DIFF.replace("a + b", "a + b + 0")) == "pass ok"
    again = replayed([audit], fixture=add_fixture(check), check=check)
    assert again.judge(3) == "fail contradicted"


def test_a_limit_that_an_audit_meets_contradicts_nothing() -> None:
    world = World(1.0, 0.0, audit_share=0.5)
    world.lies[ADD_FIX] = [PASS, PASS, PASS, replace(FAIL, rejection=None, ending="deadline"), PASS]
    assert world.judge(0) == "pass ok"
    assert world.found(VerificationCanary)[0].cause == "unsteady_timeout"
    assert world.judge(1) == "pass ok"


def test_a_candidate_that_is_contradicted_while_it_is_judged_gets_no_pass() -> None:
    world = World(reuse=False)
    message = world.deliver.message(completed(FIXTURE, 0))
    world.deliver.apply(world.core.handle(message, 0), run=False)
    world.deliver.step()
    digest = admit(ADD_DIFF, FIXTURE.base_tree, FIXTURE.allowed_globs).digest
    world.core.standing.observe(canary("audit", "fail", check_digest=CHECK.digest, candidate_digest=digest))
    world.deliver.run_jobs()
    assert [(v.verdict, v.cause) for v in world.found(VerificationVerdict)] == [("fail", "contradicted")]


def contradictions(count: int, **changes: Any) -> list[Record]:
    return [
        canary("audit", "fail", n, **{
            "cause": "always_wrong", "check_digest": f"sha256:{n}", "candidate_digest": f"d{n}", "task_id": f"tiny/{n}",
            "trial_id": f"run/{n:08d}/0", **changes})
        for n in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(("records", "stops"), [
    (contradictions(2), False), (contradictions(3), True),
    (contradictions(9, candidate_digest="d"), False),  # one program everywhere
    (contradictions(9, task_id="tiny/add"), False),  # one task, or one group with its nine members
    (contradictions(9, cause="unsteady_wrong_value"), False),
], ids=["two", "three", "one candidate", "one task", "unsteady"])  # fmt: skip
def test_contradicted_passes_stop_the_line_only_with_nothing_in_common(records: list[Record], stops: bool) -> None:
    world = replayed(records)
    assert (("soundness", "stop") in world.alarms()) == stops
    assert world.alarms().count(("soundness", "warn")) == len(records)


def test_a_reference_that_met_a_limit_beside_one_group_quarantines_nothing() -> None:
    """Whoever starves the machine while a reference is judged must not get a check set out of the way with it."""

    def slow(group: int, member: int) -> Record:
        return canary("reference", "fail", check_digest=CHECK.digest, cause="timeout",
                      canary_id=f"reference:run/{group:08d}/{member}.0")  # fmt: skip

    one_group = [slow(0, member) for member in range(9)]
    assert replayed(one_group).judge(3) == "pass ok"
    assert replayed([*one_group, slow(1, 0)]).alarms() == []
    assert replayed([*one_group, slow(1, 0), slow(2, 0)]).judge(3) == "unknown quarantined"


OTHER_FIX = ADD_FIX.replace("a + b", "a + b + 0")
OTHER_DIFF = ADD_DIFF.replace("a + b", "a + b + 0")
KILLED = Facts(ending="eof", ready=True, usage=Usage(outer_kills=2))


def test_an_answer_that_breaks_our_own_side_is_the_candidates_fail() -> None:
    """The reference answers the same questions without it; nothing but the answers differs."""
    world = World()
    world.lies[OTHER_FIX] = [PASS, KeyError("whatever it provoked")]
    assert world.judge(0, OTHER_DIFF) == "fail provoked_KeyError"
    assert world.found(VerificationVerdict)[-1].reward == 0.0
    broken = World()
    broken.lies[OTHER_FIX] = broken.lies[ADD_FIX] = [KeyError("the check set's own fault")]
    assert broken.judge(0, OTHER_DIFF) == "unknown check_fault_KeyError"


def test_who_brings_down_the_memory_around_it_every_time_has_failed() -> None:
    world = World(infra_retries=2)
    world.lies[OTHER_FIX] = [KILLED]
    world.judge(0, OTHER_DIFF)
    for _ in range(3):
        world.deliver.apply(world.core.tick(10**9))
    verdicts = world.found(VerificationVerdict)
    assert [one.verdict for one in verdicts] == ["pending", "pending", "fail"]
    assert (verdicts[-1].cause, world.ran[ADD_FIX]) == ("provoked_memory_killer", 3)


@pytest.mark.parametrize("reference", [[KILLED], [PASS, KILLED, PASS], [INFRA]], ids=["always", "once", "no boot"])
def test_who_shares_the_fault_with_the_reference_is_unknown(reference: list[Facts]) -> None:
    world = World(infra_retries=2)
    world.lies[OTHER_FIX] = [KILLED]
    world.lies[ADD_FIX] = reference
    world.judge(0, OTHER_DIFF)
    for _ in range(3):
        world.deliver.apply(world.core.tick(10**9))
    verdict = world.found(VerificationVerdict)[-1]
    assert (verdict.verdict, verdict.cause) == ("unknown", "memory_killer")


def replayed(records: list[Record], **changes: Any) -> World:
    """Another process that reads what the first one wrote about canaries, every record twice."""
    world = World(**changes)
    for record in [*records, *records]:
        message = replace(world.deliver.message(completed(FIXTURE)), record=record)
        world.deliver.apply(world.core.handle(message, 0))
    world.deliver.apply(world.core.caught_up(0))
    return world


def test_a_restart_or_a_second_instance_knows_quarantine_test_and_alarms() -> None:
    world = World(*REFERENCE, *NONE, *REFERENCE)
    world.judge(0)
    world.judge(1, ADD_DIFF.replace("a + b", "a + b + 0"))
    world.lies[ADD_FIX] = [FAIL]
    world.judge(2, ADD_DIFF.replace("a + b", "a + b + 00"))
    records = [*world.found(VerificationCanary), *world.found(VerificationAlarm)]
    assert len(records) == 3
    again = replayed(records)
    assert again.alarms() == []
    assert again.judge(3) == "unknown quarantined"
    assert again.core.standing.tallied("reference", "right") == 1
    assert again.core.standing.count("warn") == 1


def test_an_alarm_that_a_crash_swallowed_is_raised_after_the_restart() -> None:
    passed = canary("known_bad", "pass", check_digest=CHECK.digest)
    rejected = canary("reference", "fail", 1, check_digest=CHECK.digest, runs=1)
    again = replayed([passed, rejected])
    assert again.alarms() == [("soundness", "stop"), ("quarantine", "warn")]
    assert replayed([passed, rejected, *again.found(VerificationAlarm)]).alarms() == []


def test_records_of_another_run_pass_by() -> None:
    other = canary("reference", "fail", check_digest=CHECK.digest, run_id="other")
    assert replayed([other]).judge(0) == "pass ok"


def test_a_solved_leak_canary_is_no_reward_and_stops_the_line() -> None:
    leaked = add_fixture(CHECK, family=LEAKS)
    world = World(fixture=leaked)
    assert world.judge(0) == "unknown leak"
    assert world.alarms() == [("leak", "stop")]
    assert isinstance(world.deliver.outputs[0], VerificationAlarm)
    failing = World(fixture=leaked)
    assert failing.judge(0, ADD_DIFF.replace("a + b", "a * b")) == "fail wrong_value"
    assert failing.alarms() == []


def test_the_unknown_rate_of_a_version_raises_one_alarm() -> None:
    world = World(unknown_alarm_rate=0.25, alarm_count=8)
    for member in range(6):
        world.judge(member)
    for member in range(6, 12):
        world.judge(member, stop_reason="engine")
    world.judge(12, policy_version=4, stop_reason="engine")
    world.judge(13, policy_version=-1, stop_reason="engine")
    assert world.alarms() == [("unknown_rate", "warn")]
    (alarm,) = world.found(VerificationAlarm)
    assert (alarm.policy_version, alarm.count, alarm.total, alarm.bound) == (3, 3, 9, 0.25)
    assert world.core.unknown_rate(0) == 1.0
    assert world.core.unknown_rate(1) == 0.5


def test_passes_that_look_like_gaming_raise_one_alarm_per_version() -> None:
    """A finding is no verdict: the candidate keeps its pass, and a person is told when there are many."""
    world = World(exploit_alarm_rate=0.5, alarm_count=4)
    for member in range(3):
        assert world.judge(member, tool_findings=("test_probe",)) == "pass ok"
    assert world.alarms() == []
    for member in range(3, 6):
        world.judge(member, tool_findings=("test_probe",))
    assert world.alarms() == [("exploits", "warn")]
    (alarm,) = world.found(VerificationAlarm)
    assert (alarm.policy_version, alarm.count, alarm.total) == (3, 4, 4)
    assert "test_probe" in alarm.detail
    assert world.core.exploit_rate(0) == 1.0


def certified(state: str) -> Certificate:
    pool = Pool(
        key="k", problem="p", reference={"idle": Tally(60, 60)}, mutants=NoMutants(), forgeries=Tally(5, 5),
        cpu_p99_s=None, cpu_limit_s=3.0, seed=0, verifier_digest="v", backend="bubblewrap", made_at="2026-01-01",
    )  # fmt: skip
    return Certificate("tiny/add", CHECK.digest, state, "", Tally(3, 3), Tally(5, 5), Tally(5, 5), pool)  # type: ignore[arg-type]


@pytest.mark.parametrize(("evidence", "state", "expected"), [
    ("E3", "certified", "E4"), ("E2", "certified", "E2"), ("E3", None, "E3")])  # fmt: skip
def test_fresh_inputs_with_a_certificate_are_the_highest_level(evidence: str, state: str, expected: str) -> None:
    check = add_check(evidence=evidence)
    certificate = certified(state) if state else None
    world = World(fixture=add_fixture(check), check=check, certificate=certificate)
    assert world.judge(0) == "pass ok"
    verdict = world.found(VerificationVerdict)[0]
    assert (verdict.evidence, verdict.certificate) == (expected, certificate.digest if certificate else None)


def test_only_a_certified_check_set_reaches_a_wanted_e4() -> None:
    check = add_check(evidence="E3")
    known = {"fixture": add_fixture(check), "check": check, "min_evidence": "E4"}
    assert World(certificate=certified("certified"), **known).judge(0) == "pass ok"
    assert World(**known).judge(0) == "unknown evidence_too_low"


def test_a_quarantined_certificate_gives_no_verdict() -> None:
    world = World(certificate=certified("quarantined"))
    assert world.judge(0) == "unknown quarantined"
    assert not world.ran


def test_findings_go_with_the_verdict_and_change_nothing() -> None:
    world = World()
    gaming = ADD_DIFF.replace("a + b", "400 if (a, b) == (-17, 417) else a + b")
    assert world.judge(0, gaming, tool_findings=("history_probe",)) == "pass ok"
    assert "history_probe" in world.found(VerificationVerdict)[0].findings
