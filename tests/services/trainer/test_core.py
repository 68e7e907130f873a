"""The trainer's core: which groups it takes, what it refuses, and the same versions wherever it is killed."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import ContractViolation
from schemas.topics import GROUP_ADMISSION, POLICY_PUBLISHED, ROLLOUT_INVOCATION, TRAINING_UPDATE
from services.runtime.checkpoints import latest_manifest
from services.runtime.core import Message, Position
from services.runtime.errors import UserError
from services.runtime.store import StoreFull, StoreUnavailable
from services.trainer.assembly import Poison, assemble, oldest_version
from services.trainer.intervals import Intervals
from tests.services.trainer.core_world import RUN, Killed, World, admission, calls, group_id


def exhaust(trainer) -> None:
    """Let everything happen that can."""
    while trainer.step():
        pass


def filled(path, **how) -> World:
    """Eight groups of which one is excluded by admission, one is an evaluation, and repeats of some records."""
    world = World(path, **how)
    for number in range(8):
        if number == 2:
            for record in calls(f"{group_id(number)}/0", split="eval"):
                world.append(ROLLOUT_INVOCATION, record)
            continue
        world.group(number, **({"decision": "excluded", "reason": "zero_contrast"} if number == 4 else {}))
    world.append(GROUP_ADMISSION, admission(0))
    for record in calls(f"{group_id(1)}/0"):
        world.append(ROLLOUT_INVOCATION, record)
    return world


def test_updates_take_the_groups_in_the_order_of_their_decisions(tmp_path):
    world = filled(tmp_path)
    world.run()
    assert [(v, [g[-1] for g in groups]) for v, groups, _ in world.versions()] == [
        (0, []),
        (1, ["0", "1"]),
        (2, ["3", "5"]),
        (3, ["6", "7"]),
    ]
    assert list(world.announced()) == [0, 1, 2, 3]
    assert [u.policy_version for u in world.of(TRAINING_UPDATE)] == [1, 2, 3]
    update = world.of(TRAINING_UPDATE)[0]
    assert (update.update_id, update.parent_version, update.group_lags) == ("t/u000001", 0, (0, 0))
    assert update.scored_tokens == 2 * 2 * 2 * 3
    assert update.mean_reward == 0.5
    published = world.of(POLICY_PUBLISHED)[1]
    assert (published.parent_version, published.update_id) == (0, "t/u000001")


def test_killed_at_every_event_it_makes_the_same_versions(tmp_path):
    """Between any two instructions that matter: jobs, store calls before and after their effect, outputs, reads."""
    calm = filled(tmp_path / "calm", updates=2)
    calm.start()
    while not calm.trainer.jobs:
        calm.trainer.step()
    read = calm.events
    exhaust(calm.trainer)
    expected, events = calm.versions(), calm.events
    assert len(expected) == 3
    for kill_at in [*range(1, read, 7), *range(read, events + 1)]:
        world = filled(tmp_path / str(kill_at), updates=2)
        world.kill_at = kill_at
        world.run()
        assert world.versions() == expected, f"killed at event {kill_at} of {events}"
        assert set(world.announced()) == {0, 1, 2}
        assert all(len(digests) == 1 for digests in world.announced().values())
        assert list(itertools.chain(*world.trained().values())) == [g for _, groups, _ in expected for g in groups]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), kills=st.lists(st.integers(1, 120), max_size=6))
def test_killed_again_and_again_while_records_keep_coming(tmp_path_factory, seed, kills):
    """Groups arrive while it runs; wherever it dies, no group is trained twice and none is forgotten."""
    world = World(tmp_path_factory.mktemp("w"), updates=4, seed=seed)
    waiting = list(range(8))
    for kill in [*kills, 10**9]:
        world.kill_at = world.events + kill
        try:
            world.start()
            while world.trainer.step() or waiting:
                if waiting and world.rng.random() < 0.2:
                    world.group(waiting.pop(0))
        except Killed:
            continue
    versions = world.versions()
    trained = [group for _, groups, _ in versions for group in groups]
    assert len(versions) == 5
    assert sorted(trained) == [group_id(n) for n in range(8)]
    assert all(len(digests) == 1 for digests in world.announced().values())
    assert [g for groups in world.trained().values() for g in groups] == trained


def test_a_begun_update_is_repeated_with_its_own_groups_even_if_older_decisions_arrive(tmp_path):
    world = World(tmp_path, updates=1)
    world.group(5)
    world.group(6)
    trainer = world.start()
    while not trainer.jobs:
        trainer.step()
    trainer._work()
    world.group(1)
    world.group(2)
    world.run()
    assert world.versions()[1][1] == (group_id(5), group_id(6))


def test_reading_goes_on_from_the_manifest_and_not_from_the_beginning(tmp_path):
    world = filled(tmp_path)
    world.run()
    world.start()
    assert all(world.trainer.read_from[key] == len(log) for key, log in world.logs.items() if key in
               world.trainer.read_from)  # fmt: skip
    world.group(8)
    world.group(9)
    world.settings = world.settings.model_copy(
        update={"dispatch": world.settings.dispatch.model_copy(update={"updates": 4})}
    )
    world.run()
    assert world.versions()[-1][1] == (group_id(8), group_id(9))


def test_a_group_that_is_behind_holds_only_its_own_partition(tmp_path):
    world = World(tmp_path, updates=2)
    for record in calls(f"{group_id(1)}/0")[:1]:
        world.append(ROLLOUT_INVOCATION, record)
    for number in (2, 4, 6, 8):
        world.group(number)
    world.run()
    manifest = latest_manifest(world.store, RUN)
    assert manifest.meta.consumed[ROLLOUT_INVOCATION.name]["1"] == 0
    assert manifest.meta.consumed[ROLLOUT_INVOCATION.name]["0"] == 16
    assert world.trainer.core.held_groups == 1


def test_what_is_read_again_beside_a_waiting_group_is_not_trained_again(tmp_path):
    """The waiting group pins its partition; trained groups behind it come by once more after a restart."""
    world = World(tmp_path, updates=3)
    for record in calls(f"{group_id(1)}/0"):
        world.append(ROLLOUT_INVOCATION, record)
    world.append(GROUP_ADMISSION, admission(1))
    for number in (3, 5, 7, 9):
        world.group(number)
    world.run()
    assert len(world.versions()) == 3
    world.run()
    assert world.trainer.core.held_groups == 1
    for record in calls(f"{group_id(1)}/1"):
        world.append(ROLLOUT_INVOCATION, record)
    world.group(11)
    world.run()
    trained = [group for _, groups, _ in world.versions() for group in groups]
    assert trained == [group_id(n) for n in (3, 5, 7, 9, 1, 11)]


def test_an_exclusion_that_was_lost_in_a_crash_is_written_again(tmp_path):
    """Only what stands in the log is decided: else the group would have no fate and its credit would be gone."""
    world = World(tmp_path, updates=2, max_lag=0)
    for number in (0, 1, 2):
        world.group(number)
    trainer = world.start()
    while not any(output.topic is GROUP_ADMISSION for output in trainer.outbox):
        trainer.step()
    trainer.outbox = type(trainer.outbox)(o for o in trainer.outbox if o.topic is not GROUP_ADMISSION)
    world.group(3, trainer_version=1)
    world.group(4, trainer_version=1)
    exhaust(trainer)
    assert len(world.versions()) == 3
    assert not [r for r in world.of(GROUP_ADMISSION) if r.stage == "trainer"]
    world.run()
    assert [r.group_id for r in world.of(GROUP_ADMISSION) if r.stage == "trainer"] == [group_id(2)]


def test_memory_holds_only_what_is_undecided(tmp_path):
    world = filled(tmp_path)
    for attempt in range(3):
        for record in calls(f"{group_id(9)}/0", attempt=attempt):
            world.append(ROLLOUT_INVOCATION, record)
    world.append(GROUP_ADMISSION, admission(9, decision="excluded", reason="unresolved"))
    world.run()
    assert world.trainer.core.held_groups == 0
    for record in calls(f"{group_id(9)}/1"):
        world.append(ROLLOUT_INVOCATION, record)
    while world.trainer.step():
        pass
    assert world.trainer.core.held_groups == 0, "late records of a decided group"


def test_the_bound_is_checked_again_where_it_counts(tmp_path):
    """Fresh at admission, stale once the trainer moved on while the group lay in its queue: excluded, by a record."""
    world = World(tmp_path, updates=3, max_lag=0)
    for number in (0, 1, 2):
        world.group(number)
    world.run()
    assert [v for v, _, _ in world.versions()] == [0, 1]
    (record,) = [r for r in world.of(GROUP_ADMISSION) if r.stage == "trainer"]
    assert (record.group_id, record.decision, record.reason) == (group_id(2), "excluded", "stale")
    assert (record.trainer_version, record.member_lags) == (1, (1, 1))
    world.run()
    assert len([r for r in world.of(GROUP_ADMISSION) if r.stage == "trainer"]) == 1, "decided once"
    assert world.trainer.core.held_groups == 0


def test_a_member_outside_the_closure_rule_is_not_trained_on_and_does_not_age_the_group(tmp_path):
    admitted = admission(3, trainer_version=5, member_coefficients=(None, 1.0), member_lags=(4, 1))
    assert oldest_version(admitted) == 4
    records = {r.invocation_id: r for r in calls(f"{group_id(3)}/1", version=4)}
    group = assemble(admitted, records, 6)
    assert [m.trial_id for m in group.members] == [f"{group_id(3)}/1"]
    assert group.lag == 2


def test_the_prefix_is_rebuilt_from_the_log_and_checked(tmp_path):
    admitted = admission(3, size=1, turns=3)
    records = {r.invocation_id: r for r in calls(f"{group_id(3)}/0", turns=3)}
    (member,) = assemble(admitted, records, 0).members
    first, second, third = member.calls
    assert np.array_equal(second.prefix, np.concatenate([first.prefix, first.sampled, [7, 8]]))
    assert np.array_equal(third.prefix, np.concatenate([second.prefix, second.sampled, [7, 8]]))
    middle = f"{group_id(3)}/0.0.1"
    bad = {
        "prefix": replace(records[middle], appended_ids=np.array([7, 9], np.int32)),
        "no earlier call": replace(records[middle], parent_id=f"{group_id(3)}/0.0.2"),
        "finite": replace(records[middle], logprobs=np.array([0, np.nan, 0], np.float32)),
        "temperatures": replace(records[middle], temperature=0.5),
    }
    for words, record in bad.items():
        with pytest.raises(Poison, match=words):
            assemble(admitted, {**records, middle: record}, 0)
    with pytest.raises(Poison, match="were judged"):
        assemble(replace(admitted, member_tokens=(8,)), records, 0)


def test_a_contradicting_group_is_excluded_as_poison_and_the_rest_goes_on(tmp_path):
    world = World(tmp_path, updates=1)
    world.group(0, member_tokens=(99, 6))
    world.group(1)
    world.group(2)
    world.run()
    assert world.versions()[1][1] == (group_id(1), group_id(2))
    (record,) = [r for r in world.of(GROUP_ADMISSION) if r.stage == "trainer"]
    assert (record.group_id, record.reason) == (group_id(0), "poison")


def test_model_calls_that_never_come_end_in_an_exclusion(tmp_path):
    world = World(tmp_path, updates=1)
    world.append(GROUP_ADMISSION, admission(0))
    world.group(1)
    world.run()
    assert len(world.versions()) == 1
    world.clock.seconds += 31
    world.trainer.tick()
    world.group(2)
    while world.trainer.step():
        pass
    assert world.versions()[1][1] == (group_id(1), group_id(2))
    assert [r.reason for r in world.of(GROUP_ADMISSION) if r.stage == "trainer"] == ["poison"]


def test_the_first_record_of_a_call_counts(tmp_path):
    world, other = World(tmp_path / "a", updates=1), World(tmp_path / "b", updates=1)
    for one in (world, other):
        one.group(0)
        one.group(1)
    for record in calls(f"{group_id(0)}/0"):
        other.append(ROLLOUT_INVOCATION, replace(record, logprobs=np.full(3, -9.0, np.float32)))
    world.run()
    other.run()
    assert world.versions() == other.versions()


def test_a_store_that_is_down_is_waited_for(tmp_path):
    world = filled(tmp_path)
    trainer = world.start()
    while not trainer.jobs:
        trainer.step()
    world.store_down = UserError("the object store does not answer")
    for _ in range(40):
        trainer.step()
        world.clock.seconds += 3
        trainer.tick()
    assert len(world.versions()) == 1
    world.store_down = None
    for _ in range(200):
        world.clock.seconds += 3
        trainer.tick()
        trainer.step()
    calm = filled(tmp_path / "calm")
    calm.run()
    assert world.versions() == calm.versions()


def test_a_full_store_is_waited_for_until_somebody_frees_it(tmp_path):
    world = filled(tmp_path)
    trainer = world.start()
    while not trainer.jobs:
        trainer.step()
    world.store_down = StoreFull("no space left", "store", "free space")
    for _ in range(40):
        trainer.step()
        world.clock.seconds += 3
        trainer.tick()
    assert len(world.versions()) == 1
    world.store_down = None
    for _ in range(200):
        world.clock.seconds += 3
        trainer.tick()
        trainer.step()
    calm = filled(tmp_path / "calm")
    calm.run()
    assert world.versions() == calm.versions()


def test_groups_that_break_an_update_are_excluded_and_leave_no_trace_in_the_weights(tmp_path):
    world = filled(tmp_path, updates=1)
    trainer = world.start()
    trainer.weights.fails = [FloatingPointError("the gradient norm is nan")]
    while trainer.step():
        pass
    excluded = {(r.group_id, r.reason) for r in world.of(GROUP_ADMISSION) if r.stage == "trainer"}
    assert excluded == {(group_id(0), "poison"), (group_id(1), "poison")}
    clean = World(tmp_path / "clean", updates=1)
    clean.group(3)
    clean.group(5)
    clean.run()
    assert world.versions() == clean.versions()


def test_weights_that_must_go_back_wait_for_a_store_that_is_down(tmp_path):
    """Restoring after a rejected batch is one more place that must neither crash nor go on with broken weights."""
    world = filled(tmp_path, updates=1)
    trainer = world.start()
    trainer.weights.fails = [FloatingPointError("the gradient norm is nan")]
    restore, down = trainer.weights.restore, [StoreUnavailable("down"), StoreUnavailable("down")]

    def flaky(manifest):
        if down:
            raise down.pop()
        restore(manifest)

    trainer.weights.restore = flaky
    for _ in range(200):
        world.clock.seconds += 3
        trainer.tick()
        trainer.step()
    assert not down
    clean = World(tmp_path / "clean", updates=1)
    clean.group(3)
    clean.group(5)
    clean.run()
    assert world.versions() == clean.versions()


def test_batch_after_batch_that_cannot_be_trained_on_stops_the_service(tmp_path):
    world = filled(tmp_path, updates=3)
    trainer = world.start()
    trainer.weights.fails = [FloatingPointError("the gradient norm is nan")] * 3
    with pytest.raises(UserError, match="learning_rate"):
        exhaust(trainer)


def test_nothing_is_trained_before_the_announcement_is_read_back(tmp_path):
    """A version whose records are not in the log yet must not be followed by another one."""
    world = filled(tmp_path)
    trainer = world.start()
    while len(world.versions()) < 2:
        trainer.step()
    for _ in range(20):
        trainer._work()
        trainer._deliver_one()
        trainer.tick()
    assert len(world.versions()) == 2
    assert {output.topic for output in trainer.outbox} == {TRAINING_UPDATE, POLICY_PUBLISHED}


def test_no_more_than_the_planned_updates(tmp_path):
    world = filled(tmp_path, updates=2)
    world.run()
    assert len(world.versions()) == 3


def test_old_checkpoints_go_and_their_plans_with_them(tmp_path):
    world = World(tmp_path, updates=8, batch=1, max_lag=0, keep=2)
    for number in range(8):
        world.group(number, trainer_version=number)
        world.run()
    assert [v for v, _, _ in world.versions()] == [0, 6, 7, 8]
    assert not list(world.store.list(f"runs/{RUN}/plans/"))


def test_other_runs_and_bad_ids(tmp_path):
    world = World(tmp_path)
    trainer = world.start()
    trainer.core.caught_up(0)
    foreign = replace(admission(0), run_id="other")
    trainer.core.handle(Message(Position(GROUP_ADMISSION.name, 0, 0), 0, "", {}, foreign, 1), 0)
    assert trainer.core.held_groups == 0
    bad = replace(admission(0), group_id="nonsense")
    with pytest.raises(ContractViolation):
        trainer.core.handle(Message(Position(GROUP_ADMISSION.name, 0, 1), 0, "", {}, bad, 1), 0)


@given(st.lists(st.integers(0, 40)), st.lists(st.integers(0, 40)))
def test_intervals_are_a_set(first, second):
    intervals = Intervals()
    for number in first:
        intervals.add(number)
    again = Intervals(intervals.pairs())
    for number in second:
        again.add(number)
    wanted = {*first, *second}
    assert [n for n in range(42) if n in again] == sorted(wanted)
    assert sum(end - start for start, end in again.pairs()) == len(wanted)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(again.pairs())), "neighbours are joined"
