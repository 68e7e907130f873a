"""Wall time that is set while a service runs: what its deadlines are measured by goes on evenly."""

import pytest

from services.runtime.clock import SystemClock


class Machine:
    def __init__(self):
        self.wall, self.since_boot = 1_000_000.0, 50.0
        self.clock = SystemClock(lambda: self.wall, lambda: self.since_boot)

    def pass_s(self, seconds):
        self.wall += seconds
        self.since_boot += seconds


def test_undisturbed_it_is_the_wall_clock():
    machine = Machine()
    for seconds in (0.0, 0.001, 7.25, 3600.0):
        machine.pass_s(seconds)
        assert machine.clock.now_ms() == pytest.approx(machine.wall * 1000, abs=1)


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0], ids=["an hour back", "an hour ahead"])
def test_a_step_neither_ends_nor_stretches_a_deadline(step_s):
    machine = Machine()
    began = machine.clock.now_ms()
    machine.wall += step_s
    last = machine.clock.now_ms()
    assert last == pytest.approx(began, abs=1)
    for _ in range(600):
        machine.pass_s(1.0)
        now = machine.clock.now_ms()
        assert now > last, "time never goes backwards"
        last = now
    assert 0.89 * 600_000 <= last - began <= 1.11 * 600_000


def test_it_comes_back_to_the_wall_clock_in_the_end():
    machine = Machine()
    machine.wall -= 60
    for _ in range(700):
        machine.pass_s(1.0)
        machine.clock.now_ms()
    assert machine.clock.now_ms() == pytest.approx(machine.wall * 1000, abs=1)
