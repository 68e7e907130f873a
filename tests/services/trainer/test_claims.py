"""What an admission or a call claims is bounded by what is there: it costs nothing, and excludes its group alone."""

from dataclasses import replace

import numpy as np
import pytest

from schemas.topics import GROUP_ADMISSION
from services.agent.context import prefix_digest
from services.runtime.core import Position
from services.trainer.assembly import Poison, Room, assemble
from services.trainer.buffer import Buffer
from tests.services.trainer.core_world import World, admission, calls


@pytest.mark.parametrize("claimed", [65_536, 2**62])
def test_claimed_calls_cost_no_more_than_those_that_are_there(claimed):
    """Every record of the run asks whether the group is complete: 5,000,000 claimed calls took 2.6 s each time."""
    buffer = Buffer()
    for trial in ("t/00000000/0", "t/00000000/1"):
        for record in calls(trial):
            buffer.invocation(record, Position("i", 0, 0))
    held = buffer.admission(admission(0, member_invocations=(2, claimed)), Position("a", 0, 0), 0.0)
    looked = []

    class Counting(dict):
        def __contains__(self, key):
            looked.append(key)
            return super().__contains__(key)

    held.records = Counting(held.records)
    assert not held.complete
    assert len(looked) == 5


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"appended_ids": np.array([1000], np.int32)}, "token 1000"),
        ({"sampled_ids": np.array([5, 2**31 - 1, 7], np.int32)}, "token 2147483647"),
        ({"temperature": 0.0}, "temperature 0"),
        ({"policy_version": 4}, "versions 0 to 4"),
    ],
)
def test_calls_that_the_policy_cannot_have_made_are_poison(changes, why):
    """A token outside of the vocabulary ended the trainer at each start."""
    trial = "t/00000000/0"
    records = calls(trial)
    changed = replace(records[-1], **changes)
    if "appended_ids" in changes:
        prefix = np.concatenate([records[0].appended_ids, records[0].sampled_ids, changed.appended_ids])
        changed = replace(changed, prefix_length=len(prefix), prefix_digest=prefix_digest(prefix))
    found = {record.invocation_id: record for record in (*records[:-1], changed)}
    with pytest.raises(Poison, match=why):
        assemble(admission(0, size=1), found, 3, Room(vocabulary=1000, context=100))
    with pytest.raises(Poison, match="over 8"):
        assemble(admission(0, size=1), {r.invocation_id: r for r in records}, 3, Room(context=8))


def test_an_update_that_breaks_in_any_way_excludes_its_groups_and_goes_on(tmp_path):
    world = World(tmp_path, updates=2)
    for number in range(4):
        world.group(number)
    trainer = world.start()
    trainer.core._weights.fails = [IndexError("index out of range in self")]
    while trainer.step():
        pass
    gone = [r.group_id for r in world.of(GROUP_ADMISSION) if r.stage == "trainer"]
    assert gone == ["t/00000000", "t/00000001"]
    assert [groups for _, groups, _ in world.versions()][1:] == [("t/00000002", "t/00000003")]
