"""Protects the course of a run: credit, evaluations in their place, an end to every wait, and kill -9 at any moment."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from schemas.codec import ContractViolation
from schemas.rollout import RolloutRequested
from services.dispatch import ending
from services.runtime.ledger import audit
from tests.services.closure.records import alarm, gate, message, published, update
from tests.services.dispatch.world import FIXTURES, Dispatch, World, make_core

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]


def within_credit(world: World) -> None:
    """groups started <= (max_lag + version + 1) * batch + refunded, for the newest promoted version."""
    started = len(world.groups("train"))
    assert started <= (world.max_lag + world.promoted + 1) * world.batch + world.excluded


def run_to_end(world: World, dispatch: Dispatch, limit: int = 4000) -> None:
    for _ in range(limit):
        if dispatch.core.finished:
            return
        world.step()
        dispatch.read_all()
        dispatch.emit(dispatch.core.tick(world.now_ms))
        within_credit(world)
    raise AssertionError(f"no end after {limit} steps: {dispatch.core.facts}")


def test_a_run_measures_trains_measures_and_ends() -> None:
    world = World(Random(1))
    dispatch = Dispatch(world)
    assert {record.split for record in world.requests()} == {"eval"}
    run_to_end(world, dispatch)
    assert dispatch.core.finished == "updates"
    assert world.trainer_version == 4
    order = [(record.split, record.policy_version) for record in world.requests()]
    assert order[0] == ("eval", 0)
    assert order[-1] == ("eval", 4)
    before = [(r.task_id, r.member, r.seed) for r in world.requests() if r.split == "eval" and r.policy_version == 0]
    after = [(r.task_id, r.member, r.seed) for r in world.requests() if r.split == "eval" and r.policy_version == 4]
    assert sorted(before) == sorted(after)
    assert len(before) == (3 + 2) * 2
    report = audit(world.facts, over=True)
    assert report.balanced, report.lines()
    assert set(report.counts) <= {"trained", "excluded/zero_contrast", "excluded/stale", "evaluated"}


def test_nothing_is_asked_after_the_end() -> None:
    world = World(Random(1))
    dispatch = Dispatch(world)
    run_to_end(world, dispatch)
    count = len(world.requests())
    dispatch.start()
    assert dispatch.core.finished == "updates"
    dispatch.emit(dispatch.core.tick(world.now_ms))
    assert len(world.requests()) == count


def test_training_waits_for_every_result_of_the_first_evaluation() -> None:
    world = World(Random(1))
    dispatch = Dispatch(world)
    assert world.groups("train") == {}
    while not world.measured:
        world.measure()
    dispatch.read_all()
    assert len(world.groups("train")) == (world.max_lag + 0 + 1) * world.batch


def test_without_evaluation_training_starts_at_once() -> None:
    world = World(Random(1))
    dispatch = Dispatch(world, evaluated=(0, 0))
    assert len(world.groups("train")) == 6
    run_to_end(world, dispatch)
    assert world.groups("eval") == {}


def test_no_updates_is_an_evaluation_only() -> None:
    world = World(Random(1))
    dispatch = Dispatch(world, updates=0)
    run_to_end(world, dispatch)
    assert world.groups("train") == {}
    assert len(world.groups("eval")) == 5


def test_synchronous_mode_starts_no_group_while_an_update_is_due() -> None:
    world = World(Random(1), max_lag=0, lose=0.0)
    dispatch = Dispatch(world, evaluated=(0, 0))
    assert len(world.groups("train")) == world.batch
    run_to_end(world, dispatch)
    assert audit(world.facts).counts == {"trained": 4 * world.batch * 2}


def test_no_more_groups_are_started_than_the_last_update_can_use() -> None:
    world = World(Random(1), lose=0.0)
    run_to_end(world, Dispatch(world, evaluated=(0, 0)))
    assert len(world.groups("train")) == 4 * world.batch + world.excluded


def test_every_group_excluded_does_not_stop_dispatch() -> None:
    world = World(Random(1), lose=1.0)
    dispatch = Dispatch(world, evaluated=(0, 0))
    for _ in range(100):
        world.settle_group()
        dispatch.read_all()
        within_credit(world)
    assert len(world.groups("train")) == 106


def test_exclusions_without_end_end_the_run() -> None:
    """Bug class: endless empty rollouts burn compute."""
    world = World(Random(1), lose=1.0)
    dispatch = Dispatch(world, evaluated=(0, 0))
    while not dispatch.core.finished:
        world.settle_group()
        dispatch.read_all()
        dispatch.emit(dispatch.core.tick(world.now_ms))
        assert world.excluded <= ending.BARREN_BATCHES * world.batch + 6
    assert dispatch.core.finished == "barren"


def test_a_version_held_for_ever_ends_the_run_with_the_last_promoted_one() -> None:
    world = World(Random(1), max_lag=0, lose=0.0)
    dispatch = Dispatch(world)
    world.hold = 1.0
    for _ in range(200):
        world.step()
        dispatch.read_all()
    assert (world.trainer_version, dispatch.core.finished) == (1, None)
    count = len(world.requests())
    dispatch.emit(dispatch.core.tick(world.now_ms))
    world.now_ms += ending.HELD_GRACE_MS
    dispatch.emit(dispatch.core.tick(world.now_ms))
    assert dispatch.core.finished == "held"
    assert len(world.requests()) == count, "version 0 was measured already"


def test_a_held_version_that_is_released_goes_on() -> None:
    world = World(Random(1), max_lag=0, lose=0.0)
    dispatch = Dispatch(world)
    world.hold = 1.0
    for _ in range(200):
        world.step()
        dispatch.read_all()
    world.hold = 0.0
    world.append(gate(1, "released"))
    world.promoted = 1
    run_to_end(world, dispatch)
    assert dispatch.core.finished == "updates"


def test_a_first_version_that_is_held_ends_the_run() -> None:
    core = make_core()
    core.caught_up(0)
    core.handle(message(gate(0, "held")), 1000)
    assert core.finished is None
    core.tick(1000 + ending.HELD_GRACE_MS)
    assert core.finished == "held"


def test_a_halted_version_collects_no_more() -> None:
    world = World(Random(1), max_lag=0)
    dispatch = Dispatch(world, evaluated=(0, 0))
    world.append(gate(0, "halted"))
    dispatch.read_all()
    count = len(world.requests())
    world.settle_group()
    dispatch.read_all()
    assert len(world.requests()) == count


def test_nothing_is_started_that_could_only_arrive_stale() -> None:
    """The trainer runs ahead of the newest promoted version: refunds alone must not start group after group."""
    core = make_core(evaluated=(0, 0), max_lag=0, batch=1)
    core.caught_up(0)
    assert len(core.handle(message(gate(0)), 0).outputs) == 2
    core.handle(message(update(1, (0,))), 0)
    assert core.handle(message(gate(1, "held")), 0).outputs == []


def test_the_wall_clock_ends_a_run_after_what_is_under_way() -> None:
    world = World(Random(1), lose=0.0)
    dispatch = Dispatch(world, updates=1000, wall_s=20.0)
    run_to_end(world, dispatch)
    assert dispatch.core.finished == "wall"
    assert 0 < world.trainer_version < 1000
    assert {r.policy_version for r in world.requests() if r.split == "eval"} == {0, world.trainer_version}
    report = audit(world.facts, over=True)
    assert report.balanced, report.lines()
    assert set(report.in_flight) <= {"admitted, waiting for an update"}
    assert report.counts.get("in_flight", 0) < world.batch * 2


def test_the_time_in_which_the_stack_was_stopped_is_not_training_time() -> None:
    world = World(Random(1), lose=0.0)
    dispatch = Dispatch(world, updates=1000, wall_s=600.0, evaluated=(0, 0))
    for _ in range(50):
        world.step()
        dispatch.read_all()
    world.now_ms += 10**9
    dispatch.start()
    dispatch.emit(dispatch.core.tick(world.now_ms))
    assert dispatch.core.finished is None
    assert not dispatch.core._stopping


def test_evaluations_on_the_way_come_once_per_interval() -> None:
    world = World(Random(1))
    dispatch = Dispatch(world, updates=6, every=2)
    run_to_end(world, dispatch)
    assert sorted({r.policy_version for r in world.requests() if r.split == "eval"}) == [0, 2, 4, 6]


def test_an_overdue_group_is_named_once() -> None:
    alarms: list[tuple[str, tuple[str, ...]]] = []
    world = World(Random(1))
    dispatch = Dispatch(world, evaluated=(0, 0), alarms=alarms)
    dispatch.core.tick(world.now_ms + 900_000)
    assert alarms == []
    dispatch.core.tick(world.now_ms + 970_000)
    dispatch.core.tick(world.now_ms + 980_000)
    ((what, names),) = alarms
    assert what == "groups without a decision"
    assert len(names) == 6


def test_another_run_s_records_are_ignored() -> None:
    core = make_core(evaluated=(0, 0))
    core.caught_up(0)
    other = type(gate(0))(**{**{s.name: getattr(gate(0), s.name) for s in gate(0).TYPE.fields}, "run_id": "other"})
    assert core.handle(message(other), 0).outputs == []


@pytest.mark.parametrize("max_lag", [0, 2])
@settings(max_examples=25, deadline=None, phases=PHASES)
@given(st.integers(0, 2**32))
def test_a_run_ends_balanced_whatever_dies_when(max_lag: int, seed: int) -> None:
    """Kill -9 while reading, deciding or sending: no member twice, none missing, credit kept, every wait ends."""
    random = Random(seed)
    world = World(random, max_lag=max_lag, hold=0.0 if max_lag == 0 else 0.2)
    dispatch = Dispatch(world, death=0.2, every=random.choice((0, 2)))
    for _ in range(3000):
        if dispatch.core.finished:
            break
        world.step()
        for _ in range(random.randrange(4)):
            dispatch.read_one()
        dispatch.emit(dispatch.core.tick(world.now_ms))
        if random.random() < 0.03:
            dispatch.start()
        within_credit(world)
        if not dispatch.pending():
            world.now_ms += random.choice((0, 0, 0, ending.HELD_GRACE_MS))
    assert dispatch.core.finished in ("updates", "held"), dispatch.core.facts
    trials = [record.trial_id for record in world.requests()]
    assert len(trials) == len(set(trials))
    for members in [*world.groups("train").values(), *world.groups("eval").values()]:
        assert sorted(r.member for r in members) == list(range(members[0].group_size))
    _in_order(world)
    report = audit(world.facts, over=dispatch.core.finished == "updates")
    assert report.balanced, report.lines()


def _in_order(world: World) -> None:
    """Within a partition group numbers only rise: closure takes a lower one for a group that it has closed."""
    for (name, _), records in world.log.items():
        numbers = [r.group_id for r in records if isinstance(r, RolloutRequested)]
        assert numbers == sorted(numbers), name


def test_published_is_not_read() -> None:
    """Dispatch follows the gate alone: a published version that no gate has seen collects nothing."""
    core = make_core(evaluated=(0, 0))
    core.caught_up(0)
    with pytest.raises(ValueError):
        core.handle(message(published(0)), 0)


def test_a_stop_alarm_ends_the_run_once_what_is_under_way_is_decided() -> None:
    world = World(Random(1))
    dispatch = Dispatch(world, evaluated=(0, 0))
    world.append(alarm("warn", "quarantine:c"))
    dispatch.read_all()
    count = len(world.requests())
    world.append(alarm())
    dispatch.read_all()
    assert dispatch.core.finished is None
    while dispatch.core.facts.undecided:
        world.settle_group()
        dispatch.read_all()
        dispatch.emit(dispatch.core.tick(world.now_ms))
    assert dispatch.core.finished == "alarm"
    assert len(world.requests()) == count
    dispatch.start()
    assert dispatch.core.finished == "alarm"
    assert len(world.requests()) == count
    assert audit(world.facts, over=True).balanced


def test_a_stop_alarm_does_not_wait_for_trials_that_never_end() -> None:
    world = World(Random(1))
    dispatch = Dispatch(world, evaluated=(0, 0))
    world.append(alarm())
    dispatch.read_all()
    assert dispatch.core.facts.undecided
    dispatch.emit(dispatch.core.tick(world.now_ms + ending.ALARM_GRACE_MS - 1))
    assert dispatch.core.finished is None
    dispatch.emit(dispatch.core.tick(world.now_ms + ending.ALARM_GRACE_MS))
    assert dispatch.core.finished == "alarm"


def test_a_quarantined_task_is_not_asked_for_again() -> None:
    world = World(Random(1))
    dispatch = Dispatch(world, evaluated=(0, 0))
    (first, *_) = [record.task_id for record in world.requests()]
    world.append(replace(alarm("warn", "quarantine:c"), kind="quarantine", task_id=first))
    dispatch.read_all()
    known = len(world.requests())
    run_to_end(world, dispatch)
    assert dispatch.core.finished == "updates"
    later = {record.task_id for record in world.requests()[known:]}
    assert later
    assert first not in later


def test_a_run_whose_every_task_is_quarantined_ends() -> None:
    world = World(Random(1))
    dispatch = Dispatch(world, evaluated=(0, 0))
    for task_id in FIXTURES:
        world.append(replace(alarm("warn", f"quarantine:{task_id}"), kind="quarantine", task_id=task_id))
    run_to_end(world, dispatch)
    assert dispatch.core.finished == "barren"


def test_a_request_of_the_last_group_that_there_can_be_is_refused() -> None:
    """The next group would have had no number: dispatch could ask for nothing more, at any start."""
    world = World(Random(1))
    dispatch = Dispatch(world, evaluated=(0, 0))
    first = world.requests()[0]
    group = f"{first.run_id}/{10**8 - 1}"
    lie = replace(first, group_id=group, trial_id=f"{group}/{first.member}")
    with pytest.raises(ContractViolation):
        dispatch.core.handle(message(lie, 999), world.now_ms)
    run_to_end(world, dispatch)
    assert dispatch.core.finished == "updates"
