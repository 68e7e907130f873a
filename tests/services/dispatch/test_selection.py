"""Protects task selection: no task starves, families balance, and every draw can be repeated from the log alone."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.group import GroupAdmission
from schemas.rollout import RolloutRequested
from services.dispatch import draws
from services.dispatch.cohorts import draw_tasks
from services.dispatch.selection import FLOOR, WINDOW, PassRates, Task, choose
from tests.services.dispatch.world import TASKS, Dispatch, World

NONE: frozenset[str] = frozenset()


def test_an_untried_task_counts_as_half_solved() -> None:
    estimate = PassRates().estimate("new")
    assert (estimate.rate, estimate.members) == (0.5, 0)
    assert estimate.weight == pytest.approx(0.25 + FLOOR)


def test_the_estimate_is_smoothed_and_forgets() -> None:
    rates = PassRates()
    for group in range(WINDOW + 2):
        rates.observe("a", group, 0.0 if group < 2 else 1.0, 8)
    assert rates.estimate("a").rate == pytest.approx((WINDOW * 8 + 1) / (WINDOW * 8 + 2))
    rates.observe("a", WINDOW + 1, 0.0, 8)
    assert rates.estimate("a").members == WINDOW * 8, "a group that is reported again counts once"


@given(st.permutations([(group, group / 10) for group in range(8)]))
def test_the_order_of_reading_does_not_matter(order: list[tuple[int, float]]) -> None:
    rates = PassRates()
    for group, rate in order:
        rates.observe("a", group, rate, 4)
    assert rates.estimate("a").rate == pytest.approx((4 * (0.5 + 0.6 + 0.7) + 1) / (4 * WINDOW + 2))


def test_families_come_equally_often_and_no_task_starves() -> None:
    tasks = [Task(f"big-{n}", "big") for n in range(20)] + [Task("small-0", "small"), Task("small-1", "small")]
    rates = PassRates()
    for group in range(WINDOW):
        rates.observe("small-0", group, 0.0, 8)  # never solved
    drawn = [choose("pass_rate", 7, group, tasks, rates, NONE, {}).task for group in range(2000)]
    assert Counter(task.family for task in drawn) == {"big": 1000, "small": 1000}
    counts = Counter(task.task_id for task in drawn)
    weight = rates.estimate("small-0").weight
    share = weight / (weight + 0.25 + FLOOR)
    assert counts["small-0"] == pytest.approx(1000 * share, abs=60)
    assert min(counts[f"big-{n}"] for n in range(20)) > 20


def test_uniform_draws_every_task_equally() -> None:
    counts = Counter(choose("uniform", 3, group, TASKS, PassRates(), NONE, {}).task.task_id for group in range(6000))
    assert all(count == pytest.approx(500, abs=90) for count in counts.values())
    assert len(counts) == len(TASKS)


def test_a_task_under_way_is_passed_over_unless_all_are() -> None:
    busy = {task.task_id for task in TASKS[1:]}
    assert choose("uniform", 0, 5, TASKS, PassRates(), busy, {}).task == TASKS[0]
    assert choose("uniform", 0, 5, TASKS, PassRates(), {*busy, TASKS[0].task_id}, {}).weight == 1 / len(TASKS)


@pytest.mark.parametrize("policy", ["uniform", "pass_rate"])
def test_the_logged_probability_is_that_of_the_draw(policy: str) -> None:
    rates = PassRates()
    rates.observe("sorting-0", 0, 1.0, 8)
    total = 0.0
    for task in TASKS:
        found = [c for c in (choose(policy, 1, g, TASKS, rates, NONE, {}) for g in range(600)) if c.task == task]  # type: ignore[arg-type]
        total += found[0].weight
        assert len(found) / 600 == pytest.approx(found[0].weight, abs=0.06)
    assert total == pytest.approx(1.0)


def test_every_selection_can_be_repeated_from_the_topics() -> None:
    """`selection_inputs` names how far group.admission was read; with the records up to there the draw comes out the
    same, long after the run."""
    world = World(Random(5))
    dispatch = Dispatch(world)
    for _ in range(1500):
        world.step()
        if world.random.random() < 0.5:
            dispatch.read_one()
        dispatch.emit(dispatch.core.tick(world.now_ms))
    firsts = [members[0] for members in world.groups("train").values()]
    assert len(firsts) > 10
    for first in firsts:
        _repeat(world, first, firsts)


def _repeat(world: World, first: RolloutRequested, firsts: list[RolloutRequested]) -> None:
    offsets = {int(k): v for k, v in json.loads(first.selection_inputs)["admission_offsets"].items()}
    rates, decided = PassRates(), set()
    for partition, end in offsets.items():
        for record in world.log["group.admission.v1", partition][:end]:
            assert isinstance(record, GroupAdmission)
            decided.add(record.group_id)
            if record.pass_rate is not None:
                judged = sum(coefficient is not None for coefficient in record.member_coefficients)
                rates.observe(record.task_id, int(record.group_id[-8:]), record.pass_rate, judged)
    number = int(first.group_id[-8:])
    earlier = [other for other in firsts if int(other.group_id[-8:]) < number]
    busy = {other.task_id for other in earlier if other.group_id not in decided}
    again = choose("pass_rate", 0, number, TASKS, rates, busy, offsets)
    assert (again.task.task_id, again.weight) == (first.task_id, first.selection_weight)
    assert again.inputs == first.selection_inputs


def test_the_first_tasks_of_an_evaluation_are_the_same_however_many_are_wanted() -> None:
    names = [f"t{n}" for n in range(50)]
    assert draw_tasks(3, "train", names, 20)[:7] == draw_tasks(3, "train", reversed(names), 7)
    assert draw_tasks(4, "train", names, 20) != draw_tasks(3, "train", names, 20)


@given(st.lists(st.one_of(st.text(), st.integers()), min_size=1))
def test_draws_stay_in_their_range(parts: list[str | int]) -> None:
    assert 0.0 <= draws.unit(*parts) < 1.0
    assert 0 <= draws.seed(*parts) < 2**63
