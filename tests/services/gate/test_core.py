"""Protects the gate: one decision per version in order, nothing decided twice, evaluations whole or named."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import ContractViolation
from schemas.policy import EvaluationResult, PolicyGate, PolicyPublished
from schemas.record import Record
from services.gate.core import ATTEMPTS, STORE_AGAIN_MS, GateCore, UnusableCheckpoint
from services.gate.evaluation import Evaluations
from services.gate.findings import Finding, Limits, Measured, Origin, decision, judge, to_json
from services.runtime.core import Effects
from services.runtime.store import StoreUnavailable
from tests.services.closure.records import RUN, alarm, gate, message, published, request, verdict

DEADLINE = 100_000
GOOD = [Finding("entropy", 0.5, 0.02, True)]


class Loop:
    """Runs the core's jobs at once, as a worker would, and keeps what was decided and measured."""

    def __init__(self, check: Callable[[PolicyPublished], list[Finding]] = lambda published: GOOD) -> None:
        self.now_ms = 0
        self.checked: list[int] = []
        self.check = check
        self.core = GateCore(RUN, self._check, Evaluations(RUN, DEADLINE), lambda: self.now_ms)
        self.out: list[Record] = []

    def _check(self, record: PolicyPublished) -> list[Finding]:
        self.checked.append(record.policy_version)
        return self.check(record)

    def apply(self, effects: Effects) -> None:
        self.out += [output.record for output in effects.outputs]
        for job in effects.jobs:
            try:
                result: object = job.run()
            except Exception as e:
                result = e
            self.apply(job.then(result))

    def give(self, *records: Record) -> None:
        for record in records:
            self.apply(self.core.handle(message(record), self.now_ms))

    def ready(self) -> Loop:
        self.apply(self.core.caught_up(self.now_ms))
        return self

    def tick(self, passed_ms: int = 0) -> None:
        self.now_ms += passed_ms
        self.apply(self.core.tick(self.now_ms))

    @property
    def decisions(self) -> list[tuple[int, str]]:
        return [(r.policy_version, r.decision) for r in self.out if isinstance(r, PolicyGate)]

    @property
    def results(self) -> list[EvaluationResult]:
        return [r for r in self.out if isinstance(r, EvaluationResult)]


def test_every_version_is_decided_once_and_in_order() -> None:
    loop = Loop().ready()
    loop.give(published(0), published(1), published(1), published(2))
    assert loop.decisions == [(0, "promoted"), (1, "promoted"), (2, "promoted")]


def test_versions_that_wait_together_are_decided_one_after_the_other() -> None:
    loop = Loop()
    loop.give(published(2), published(0), published(1))
    assert loop.decisions == []
    loop.ready()
    assert loop.checked == [0, 1, 2]


def test_a_stop_alarm_halts_every_promoted_version_and_those_to_come() -> None:
    loop = Loop().ready()
    loop.give(published(0), published(1), alarm("warn"))
    assert loop.decisions == [(0, "promoted"), (1, "promoted")]
    loop.give(alarm(), alarm(name="leak:other"), gate(1), published(2))
    assert loop.decisions[2:] == [(1, "halted"), (0, "halted"), (2, "halted")]
    (finding,) = json.loads(next(r for r in loop.out if isinstance(r, PolicyGate) and r.decision == "halted").findings)
    assert (finding["check"], finding["ok"]) == ("verdicts", False)
    assert "known to be wrong passed" in finding["value"]


def test_after_a_restart_an_old_alarm_halts_only_what_is_still_promoted() -> None:
    loop = Loop()
    loop.give(gate(0), gate(1), alarm(), gate(1, "halted"), gate(2), gate(2, "released"), gate(3, "held"))
    loop.ready()
    assert loop.decisions == [(0, "halted")]


def test_what_was_decided_before_a_restart_stays_decided() -> None:
    loop = Loop()
    loop.give(published(0), published(1), gate(0, "held"))
    loop.ready()
    loop.give(published(0))
    assert loop.decisions == [(1, "promoted")]


def test_a_failed_check_holds_the_version_and_says_which() -> None:
    bad = [*GOOD, Finding("valid_actions", 0.1, 0.5, False)]
    loop = Loop(lambda published: bad).ready()
    loop.give(published(0))
    (record,) = loop.out
    assert isinstance(record, PolicyGate)
    assert record.decision == "held"
    assert [finding["check"] for finding in json.loads(record.findings) if not finding["ok"]] == ["valid_actions"]


def test_a_checkpoint_that_cannot_be_used_is_held_at_once() -> None:
    def check(published: PolicyPublished) -> list[Finding]:
        raise UnusableCheckpoint("the weights are cut")

    loop = Loop(check).ready()
    loop.give(published(0))
    (record,) = loop.out
    assert isinstance(record, PolicyGate)
    assert (record.decision, "the weights are cut" in record.findings) == ("held", True)


def test_storage_that_does_not_answer_is_tried_again_and_then_held() -> None:
    trouble = [3]

    def check(published: PolicyPublished) -> list[Finding]:
        trouble[0] -= 1
        if trouble[0] >= 0:
            raise ConnectionError("no route")
        return GOOD

    loop = Loop(check).ready()
    loop.give(published(0))
    loop.tick(100)
    assert (loop.decisions, len(loop.checked)) == ([], 1)
    for _ in range(20):
        loop.tick(1000)
    assert (loop.decisions, len(loop.checked)) == ([(0, "promoted")], 4)
    trouble[0] = 10**6
    loop.give(published(1))
    for _ in range(ATTEMPTS):
        loop.tick(10**6)
    assert loop.decisions[-1] == (1, "held")


def test_a_store_that_is_down_for_long_holds_no_version() -> None:
    down = [True]

    def check(record: PolicyPublished) -> list[Finding]:
        if down[0]:
            raise StoreUnavailable("the object store does not answer")
        return GOOD

    loop = Loop(check).ready()
    loop.give(published(0))
    for _ in range(10 * ATTEMPTS):
        loop.tick(STORE_AGAIN_MS)
    assert loop.decisions == []
    down[0] = False
    loop.tick(STORE_AGAIN_MS)
    assert loop.decisions == [(0, "promoted")]


def test_a_person_s_decision_during_the_check_stands() -> None:
    loop = Loop()
    loop.check = lambda record: (loop.core.handle(message(gate(record.policy_version, "halted")), 0), GOOD)[1]
    loop.ready()
    loop.give(published(0))
    assert loop.decisions == []


def measured(**changes: object) -> Measured:
    plain: dict[str, object] = {
        "finite_weights": True, "round_trip": True, "tokenizer": "t", "template": "p", "valid_actions": 0.9,
        "entropy": 0.4, "memory_mb": 300.0, "probes": 16, "tokens": 200, "seconds": 0.1,
    }  # fmt: skip
    return Measured(**{**plain, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({}, None),
        ({"finite_weights": False}, "finite_weights"),
        ({"round_trip": False}, "round_trip"),
        ({"tokenizer": "other"}, "tokenizer"),
        ({"template": "other"}, "template"),
        ({"valid_actions": 0.49}, "valid_actions"),
        ({"valid_actions": math.nan}, "valid_actions"),
        ({"entropy": 0.019}, "entropy"),
        ({"entropy": math.nan}, "entropy"),
        ({"memory_mb": 5000.0}, "memory_mb"),
        ({"probes": 0}, "probes"),
    ],
)
def test_every_bound_holds_a_version_back(changes: dict[str, object], failed: str | None) -> None:
    findings = judge(measured(**changes), Origin("t", "p"), Limits(0.02, 0.5, 4096))
    assert [finding.check for finding in findings if not finding.ok] == ([failed] if failed else [])
    assert decision(findings) == ("held" if failed else "promoted")
    assert json.loads(to_json(findings))


# --- evaluations -----------------------------------------------------------------------------------------------------


def planned(group: int, member: int, version: int = 0, tasks: int = 2, task: int | None = None) -> Record:
    inputs = json.dumps({"cohort": {"heldout_bugs": tasks}})
    name = f"task-{group if task is None else task}"
    return request(
        group, member, 2, split="eval", task_set="heldout_bugs", policy_version=version, selection_inputs=inputs,
        task_id=name,
    )  # fmt: skip


def judged(group: int, member: int, word: str = "pass", task: int | None = None, **changes: Any) -> Record:
    name = f"task-{group if task is None else task}"
    said = {"split": "eval", "policy_version": 99, "newest_version": 99, "task_id": name, **changes}
    return verdict(group, member, word, **said)


def test_a_result_needs_the_whole_cohort_and_every_verdict() -> None:
    loop = Loop().ready()
    loop.give(planned(0, 0), planned(0, 1), judged(0, 0), judged(0, 1, "fail"))
    loop.tick()
    assert loop.results == [], "one of two announced tasks was requested"
    loop.give(planned(1, 0), planned(1, 1), judged(1, 0), verdict(1, 1, "pending", split="eval"))
    loop.tick()
    assert loop.results == []
    loop.give(judged(1, 1))
    loop.tick()
    (result,) = loop.results
    assert (result.task_ids, result.task_samples, result.task_passes) == (("task-0", "task-1"), (2, 2), (1, 2))
    assert (result.pass_at_1, result.pass_at_k, result.pass_hat_k, result.k) == (0.75, 1.0, 0.5, 2)
    assert (result.parent_version, result.difference, result.unresolved) == (None, None, 0)
    assert result.policy_version == 0, "the version asked for, though a newer one sampled"
    loop.tick(DEADLINE)
    assert len(loop.results) == 1


@pytest.mark.parametrize("lie", [{"task_id": "easy"}, {"fixture_digest": "sha256:other"}, {"policy_tokens": 101}])
@pytest.mark.parametrize("first", [True, False])
def test_a_pass_on_another_task_is_not_measured(lie: dict[str, Any], first: bool) -> None:
    """Whether the verdict is read before its request or after it."""
    loop = Loop().ready()
    asked = [planned(0, 0, tasks=1), planned(0, 1, tasks=1)]
    said = [judged(0, 0, **lie), judged(0, 1, "fail")]
    loop.give(*(said + asked if first else asked + said))
    loop.tick()
    (result,) = loop.results
    assert (result.pass_at_1, result.unresolved, result.task_samples) == (0.0, 1, (1,))


def test_an_unknown_trial_is_no_failure() -> None:
    loop = Loop().ready()
    loop.give(planned(0, 0, tasks=1), planned(0, 1, tasks=1), judged(0, 0), judged(0, 1, "unknown"))
    loop.tick()
    (result,) = loop.results
    assert (result.pass_at_1, result.unresolved, result.task_samples) == (1.0, 1, (1,))
    assert math.isnan(result.pass_at_k)


def test_a_trial_that_never_gets_a_verdict_does_not_hold_the_evaluation_for_ever() -> None:
    loop = Loop().ready()
    loop.give(planned(0, 0, tasks=1), planned(0, 1, tasks=1), judged(0, 0))
    loop.tick(DEADLINE - 1)
    assert loop.results == []
    loop.tick(1)
    (result,) = loop.results
    assert (result.unresolved, result.pass_at_1) == (1, 1.0)


def test_the_difference_is_paired_with_the_version_measured_before() -> None:
    loop = Loop().ready()
    for version, word in ((0, "fail"), (4, "pass")):
        for task in range(2):
            number = version * 10 + task
            for member in range(2):
                loop.give(planned(number, member, version, task=task))
                loop.give(judged(number, member, word if task == 0 else "fail", task))
        loop.tick()
    before, after = loop.results
    assert (before.parent_version, after.parent_version) == (None, 0)
    assert after.difference == 0.5
    assert after.difference_low is not None
    assert after.difference_high is not None
    assert after.difference_low <= 0.5 <= after.difference_high


def test_training_trials_and_other_runs_are_no_business_of_an_evaluation() -> None:
    loop = Loop().ready()
    loop.give(
        request(0, 0), verdict(0, 0), request(1, 0, 1, run_id="other", split="eval", group_id="x", trial_id="x/0")
    )
    loop.tick(DEADLINE)
    assert loop.results == []
    assert loop.core.waiting == {}


def test_a_cohort_that_nobody_announced_is_refused() -> None:
    loop = Loop().ready()
    with pytest.raises(ContractViolation):
        loop.give(request(0, 0, 2, split="eval", task_set="train"))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_one_result_whatever_the_order_and_the_restart(seed: int, tasks: int) -> None:
    """Requests, verdicts and our own results lie on different topics: a replay reads them in any order."""
    random = Random(seed)
    records: list[Record] = []
    for task in range(tasks):
        for member in range(2):
            records += [planned(task, member, tasks=tasks), judged(task, member, random.choice(("pass", "fail")))]
    records += random.sample(records, random.randrange(len(records)))
    random.shuffle(records)
    loop = Loop().ready()
    cut = random.randrange(len(records) + 1)
    loop.give(*records[:cut])
    loop.tick()
    again = Loop()
    again.give(*random.sample([*records[:cut], *loop.out], cut + len(loop.out)))
    again.ready()
    again.give(*records[cut:])
    again.tick()
    (result,) = loop.results + again.results
    assert sum(result.task_samples) == 2 * tasks
