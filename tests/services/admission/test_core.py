"""Protects admission: one decision per closed group whatever is read twice, and none before a version is known."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from schemas.bounds import YEAR_2200_MS
from schemas.codec import encode
from schemas.group import GroupAdmission
from schemas.record import Record
from schemas.topics import GROUP_ADMISSION, GROUP_CLOSED, POLICY_GATE, POLICY_PUBLISHED
from services.admission.core import PATIENCE_MS, AdmissionCore
from services.runtime.core import Effects
from tests.services.closure.records import RUN, admission, closed, gate, message, published
from tests.services.closure.simulation import Log, Simulation

WORDS = (("pass", "fail"), ("pass", "pass"), ("fail", "unknown"))


def ready(max_lag: int = 2) -> AdmissionCore:
    core = AdmissionCore(RUN, max_lag)
    core.assigned(frozenset({0}))
    core.caught_up(0)
    return core


def decisions(effects: Effects) -> list[tuple[str, str | None]]:
    records = [output.record for output in effects.outputs]
    return [(record.group_id, record.reason) for record in records if isinstance(record, GroupAdmission)]


def give(core: AdmissionCore, *records: Record) -> Effects:
    effects = Effects()
    for offset, record in enumerate(records):
        effects += core.handle(message(record, offset), 5000)
    return effects


def test_groups_wait_for_the_first_published_version() -> None:
    core = ready()
    assert give(core, closed(0), closed(1)).done == []
    assert core.waiting_groups == 2
    effects = give(core, published(0))
    assert decisions(effects) == [("run/00000000", None), ("run/00000001", None)]
    assert len(effects.done) == 3


def test_lag_is_measured_when_the_decision_is_made() -> None:
    core = ready(max_lag=1)
    give(core, published(0))
    assert decisions(give(core, closed(0))) == [("run/00000000", None)]
    give(core, published(1), published(2))
    assert decisions(give(core, closed(1))) == [("run/00000001", "stale")]


def test_a_group_waits_for_the_news_of_its_version() -> None:
    """The two stand on different topics: what was sampled with a version can be read before its publication."""
    core = ready(max_lag=0)
    give(core, published(0))
    assert decisions(give(core, closed(0, member_versions=(1, 1)))) == []
    effects = give(core, published(1))
    (output,) = effects.outputs
    assert isinstance(output.record, GroupAdmission)
    assert (output.record.reason, output.record.trainer_version, output.record.member_lags) == (None, 1, (0, 0))


def test_a_version_that_is_never_published_costs_its_own_group_only() -> None:
    """It was believed, and every later group was stale."""
    core = ready()
    give(core, published(3))
    lie = give(core, closed(0, member_versions=(3, 2**31 - 1)))
    assert decisions(lie) == []
    assert decisions(give(core, closed(1, member_versions=(3, 3)))) == [("run/00000001", None)]
    late = core.tick(5000 + PATIENCE_MS)
    assert decisions(late) == [("run/00000000", "poison")]
    assert len(late.done) == 1
    assert decisions(give(core, closed(2, member_versions=(3, 3)))) == [("run/00000002", None)]


@pytest.mark.parametrize(
    "changes",
    [
        {"member_trials": ("run/00000000/0", "run/00000000/2")}, {"group_size": 3},
        {"member_rewards": (None, 0.0)}, {"member_verdicts": ("unknown", "fail")},
    ],
)  # fmt: skip
def test_a_closure_that_contradicts_itself_is_poison(changes) -> None:
    core = ready()
    give(core, published(0))
    assert decisions(give(core, closed(0, **changes))) == [("run/00000000", "poison")]


def test_extreme_times_of_one_group_stop_nobody() -> None:
    """The sum of its ages was more than a record can hold."""
    core = ready()
    give(core, published(0))
    extreme = YEAR_2200_MS
    group = closed(
        0,
        first_started_ms=0,
        closed_ms=extreme,
        generation_ms=-extreme,
        tool_wait_ms=-extreme,
        verification_ms=-extreme,
    )
    effects = give(core, group, closed(1))
    assert [reason for _, reason in decisions(effects)] == [None, None]
    for output in effects.outputs:
        encode(output.record)


def test_a_halted_version_is_excluded_until_it_is_released() -> None:
    core = ready()
    give(core, published(0), gate(0), gate(0, "halted"))
    assert decisions(give(core, closed(0))) == [("run/00000000", "halted_version")]
    give(core, gate(0, "released"))
    assert decisions(give(core, closed(1))) == [("run/00000001", None)]


def test_evaluation_groups_pass_without_a_decision() -> None:
    core = ready()
    effects = give(core, published(0), closed(0, split="eval"))
    assert (effects.outputs, len(effects.done)) == ([], 2)


def test_a_group_closed_twice_is_decided_once() -> None:
    core = ready()
    give(core, published(0))
    assert len(give(core, closed(0), closed(0)).outputs) == 1


def test_the_trainer_s_own_exclusions_are_read_and_left_alone() -> None:
    core = ready()
    record = admission(closed(0))
    assert give(core, record).outputs == []
    core.tick(5000 + 2000)
    assert decisions(give(core, published(0), closed(0))) == []


def test_poison_is_named() -> None:
    said: list[str] = []
    core = AdmissionCore(RUN, 2, lambda group, why: said.append(f"{group}: {why}"))
    core.assigned(frozenset({0}))
    core.caught_up(0)
    give(core, published(0))
    assert decisions(give(core, closed(0, member_tokens=(0, 3)))) == [("run/00000000", "poison")]
    assert said == ["run/00000000: run/00000000/0: judged, but at version 0 with 0 sampled tokens"]


@settings(max_examples=1000, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.integers(0, 2**32), st.integers(1, 8))
def test_every_group_is_decided_exactly_once_whatever_crashes_when(seed: int, groups: int) -> None:
    random = Random(seed)
    log = Log()
    service = Simulation(
        log, lambda: AdmissionCore(RUN, 1), (GROUP_CLOSED, GROUP_ADMISSION), (POLICY_PUBLISHED, POLICY_GATE)
    )
    arrivals: list[Record] = [closed(group, random.choice(WORDS)) for group in range(groups)]
    for version in range(3):
        arrivals.insert(random.randrange(len(arrivals) + 1), published(version))
    for record in arrivals:
        log.append(record)
        for _ in range(random.randrange(30)):
            service.step(random)
    service.drain()
    decided = [record.group_id for record in log.of(GROUP_ADMISSION) if isinstance(record, GroupAdmission)]
    assert sorted(decided) == [f"run/{group:08d}" for group in range(groups)]
    for topic in (GROUP_CLOSED, GROUP_ADMISSION):
        assert log.committed[topic.name] == len(log.of(topic))
