"""The short form: a dozen faults over every service, the broker and the links; `make chaos` is the long one."""

import pytest

from tests.chaos.__main__ import chaos
from tests.chaos.faults import BROKER, LINK_FAULTS, PROCESS_FAULTS, schedule

NAMES = ["a", "b", "c"]


def test_a_seed_gives_its_schedule_again_and_each_target_is_hit():
    first, again = (schedule(7, 600, 60, NAMES, [BROKER], 6.0) for _ in range(2))
    assert first == again
    assert first != schedule(8, 600, 60, NAMES, [BROKER], 6.0)
    assert {fault.target for fault in first} == {*NAMES, BROKER}
    assert {fault.kind for fault in first} == {*PROCESS_FAULTS, *LINK_FAULTS}
    assert all(0 <= fault.at_s < 600 for fault in first)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(420)
def test_a_dozen_faults_lose_nothing_and_double_nothing(shared_equipment, tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLSTREAM_CACHE", str(tmp_path / "cache"))
    said = []
    outcome = chaos(shared_equipment, tmp_path, seed=20, seconds=25, count=12, instances=1, say=said.append)
    story = "\n".join([*said, *outcome.lines()])
    assert not outcome.reckoning.problems, story
    assert outcome.reckoning.losses == 0, story
    assert outcome.reckoning.trials > 50, story
    assert sum(outcome.world.injected.values()) >= 10, story
