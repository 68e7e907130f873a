"""What a verdict claims is compared with what was asked for, in whatever order the two are read; the audit names it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.group import CONTRADICTED, GroupClosed
from schemas.record import Record
from services.admission.decide import Standing, decide
from services.closure import core as closure_core
from services.closure.cohort import Rewards, Rule
from services.closure.core import ClosureCore
from services.runtime.core import Blamed, Effects
from services.runtime.ledger import audit
from services.runtime.settings import Verifier
from tests.services.closure.records import RUN, completed, message, request, verdict

LIES: list[dict[str, Any]] = [
    {"task_id": "easy"}, {"fixture_digest": "sha256:easy"}, {"split": "eval"}, {"invocations": 4},
    {"policy_tokens": 101}, {"policy_version": 3, "newest_version": 2}, {"reward": 99.0}, {"reward": -1.0},
]  # fmt: skip


def close(records: list[Record], said: list[tuple[str, str]]) -> GroupClosed:
    core = ClosureCore(RUN, Rule(), 10_000, Rewards.of(Verifier()), lambda trial, why: said.append((trial, why)))
    core.assigned(frozenset({0}))
    core.caught_up(0)
    effects = Effects()
    for offset, record in enumerate(records):
        effects += core.handle(message(record, offset), 0)
    (group,) = [output.record for output in effects.outputs]
    assert isinstance(group, GroupClosed)
    assert len(effects.done) == len(records)
    return group


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("first", [True, False])
def test_a_verdict_that_contradicts_its_request_earns_nothing(lie: dict[str, Any], first: bool) -> None:
    asked: list[Record] = [request(0, 0, 2), request(0, 1, 2)]
    said: list[Record] = [verdict(0, 0, "pass", **lie), verdict(0, 1, "fail")]
    named: list[tuple[str, str]] = []
    group = close(said + asked if first else asked + said, named)
    assert group.member_verdicts == (CONTRADICTED, "fail")
    assert group.member_rewards == (None, 0.0)
    assert [trial for trial, _ in named] == ["run/00000000/0"]
    decision = decide(group, Standing(5, 10), 0)
    assert (decision.decision, decision.reason) == ("excluded", "poison")


def test_rewards_are_those_that_the_objective_can_give() -> None:
    shaped = Rewards.of(Verifier(format_weight=0.1, length_weight=0.2))
    assert shaped.contradiction(verdict(0, 0, "pass", reward=0.85)) is None
    assert shaped.contradiction(verdict(0, 0, "fail", reward=-0.15)) is None
    for word, reward in (("pass", 0.5), ("pass", 1.2), ("fail", 0.2), ("fail", -0.3)):
        assert shaped.contradiction(verdict(0, 0, word, reward=reward)) is not None


def test_the_audit_names_who_says_what_the_plan_does_not() -> None:
    honest = [request(0, 0, 1), completed(0, 0), verdict(0, 0)]
    assert audit(honest).balanced
    for lie in LIES[:-2]:
        said = audit([honest[0], completed(0, 0, **lie), verdict(0, 0)])
        assert [p for p in said.problems if "run/00000000/0: its rollout.completed record says" in p]
        said = audit([verdict(0, 0, **lie), *honest[:2]])
        assert [p for p in said.problems if "run/00000000/0: its verification.verdict record says" in p]
    said = audit([honest[0], completed(0, 0, malformed_actions=3), verdict(0, 0)])
    assert "malformed" in said.problems[0]


def test_the_audit_names_a_reward_that_no_verdict_gave() -> None:
    records = [request(0, 0, 2), request(0, 1, 2), verdict(0, 0, "pass"), verdict(0, 1, "fail")]
    group = close(records, [])
    records += [completed(0, 0), completed(0, 1)]
    assert audit([*records, group]).balanced
    inflated = replace(group, member_rewards=(100.0, 0.0))
    assert [p for p in audit([*records, inflated]).problems if "reward 100" in p]


def test_a_group_whose_closing_breaks_costs_its_own_verdicts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests stay: the group still closes, by its deadline."""
    real = closure_core.close

    def breaks(cohort: Any, *rest: Any) -> GroupClosed:
        if cohort.number == 0:
            raise OverflowError("a bug")
        return real(cohort, *rest)

    monkeypatch.setattr(closure_core, "close", breaks)
    core = ClosureCore(RUN, Rule(), 10_000)
    core.assigned(frozenset({0}))
    for offset, record in enumerate([request(0, 0, 1), verdict(0, 0), request(1, 0, 1), verdict(1, 0)]):
        core.handle(message(record, offset), 0)
    with pytest.raises(Blamed) as caught:
        core.caught_up(0)
    assert [position.offset for position in caught.value.positions] == [1]
