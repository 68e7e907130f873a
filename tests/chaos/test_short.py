"""The short form: a dozen faults over every service, the broker and the links; `make chaos` is the long one."""

import pytest

from tests.chaos.__main__ import SMALL, chaos
from tests.chaos.explained import Injured, explained
from tests.chaos.faults import BROKER, CLOCKS, EVERYTHING, KINDS, STORE, Fault, Targets, schedule

NAMES = ["sampler", "sampler-2", "gate"]
TARGETS = Targets(NAMES, [BROKER], [BROKER, STORE], store=True, clocked=[*NAMES, BROKER])


def test_a_seed_gives_its_schedule_again_and_each_target_is_hit_in_every_way():
    first, again = (schedule(7, 600, 60, TARGETS, 6.0) for _ in range(2))
    assert first == again
    assert first != schedule(8, 600, 60, TARGETS, 6.0)
    assert {name for fault in first for name in fault.hit} == {*NAMES, BROKER, STORE, EVERYTHING}
    assert {fault.kind for fault in first} >= set(KINDS) - {
        "slicer",
        "limit_data",
        "reset",
        "cut",
        "bandwidth",
        "latency",
    }
    assert {fault.kind for seed in range(5) for fault in schedule(seed, 600, 60, TARGETS, 6.0)} == set(KINDS)
    assert all(0 <= fault.at_s < 600 for fault in first)
    for name in (*NAMES, BROKER, STORE):
        assert {"kill", "long_pause"} <= {fault.kind for fault in first if fault.target == name}, name


def test_without_a_store_and_clocks_nothing_asks_for_them():
    plain = schedule(7, 600, 60, Targets(NAMES, [BROKER], [BROKER]), 6.0)
    assert not {fault.kind for fault in plain} & {*CLOCKS, "outage"}
    assert STORE not in {fault.target for fault in plain}


def test_only_what_a_trial_depends_on_explains_its_end():
    killed = Injured(Fault(10.0, "kill", "sandbox-2", 1.0, 0), since=110.0, until=111.0)
    assert explained("sandbox_lost", 112.0, [killed])
    assert not explained("sandbox_lost", 109.0, [killed]), "before it"
    assert not explained("sandbox_lost", 400.0, [killed]), "long after it"
    assert not explained("engine", 112.0, [killed]), "the sampler does not need it"
    assert not explained("missing", 112.0, [killed]), "nothing explains a deadline that passed"
    assert not explained("sandbox_lost", None, [killed])
    assert explained("engine", 112.0, [Injured(Fault(10.0, "rebalance", "closure+kafka-2", 1.0, 0), 110.0, 111.0)])


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_dozen_faults_lose_nothing_and_double_nothing(shared_equipment, tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLSTREAM_CACHE", str(tmp_path / "cache"))
    said = []
    outcome = chaos(shared_equipment, tmp_path, seed=20, seconds=25, count=12, shape=SMALL, say=said.append)
    story = "\n".join([*said, *outcome.lines()])
    assert not outcome.reckoning.problems, story
    assert outcome.reckoning.losses == 0, story
    assert outcome.reckoning.trials > 50, story
    assert outcome.faults == 12, story
