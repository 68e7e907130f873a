"""Supervised repair traces of the training split: the reference edit, alone or after a wrong try and its feedback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from services.agent.context import TrialContext
from services.agent.harness import Harness
from services.agent.template import editable_path
from services.tasks import examples
from services.tasks.fixture import Fixture
from services.tasks.repair import reference_edit
from services.tasks.taskset import TRAIN, TaskSet
from services.trainer.packing import ScoredCall, TrainGroup, TrainMember


@dataclass(frozen=True)
class Repair:
    """One training task with the line edit that mends it, and lines that other bugs of the problem would leave."""

    fixture: Fixture
    line: int
    text: str
    wrong: tuple[tuple[int, str], ...]


def repairs(tasks: TaskSet, limit: int = 0) -> list[Repair]:
    """Every training task (the first `limit` when not 0) with its reference edit; nothing of the held-out splits."""
    fixtures = tasks.split(TRAIN)[: limit or None]
    faults: dict[str, list[tuple[int, str]]] = {}
    edits = {}
    for fixture in fixtures:
        line, text = edits[fixture.task_id] = reference_edit(fixture)
        (source,) = fixture.base_tree.values()
        faults.setdefault(fixture.problem, []).append((line, source.splitlines()[line - 1]))
    return [
        Repair(f, *edits[f.task_id], tuple(x for x in faults[f.problem] if x[0] != edits[f.task_id][0]))
        for f in fixtures
    ]


def reference_action(harness: Harness, repair: Repair) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Ids of the reference edit as an action, stop token included."""
    return harness.action_ids(f"edit {repair.line}: {repair.text.strip()}")


def _call(context: TrialContext, ids: np.ndarray[tuple[int], np.dtype[np.int32]]) -> ScoredCall:
    call = ScoredCall(context.prefix, ids, np.zeros(len(ids), np.float32))
    context.after_invocation(ids)
    return call


def _gold(context: TrialContext, harness: Harness, repair: Repair) -> list[ScoredCall]:
    calls = [_call(context, reference_action(harness, repair))]
    context.observe("ok")
    calls.append(_call(context, harness.action_ids("submit")))
    return calls


def trace(harness: Harness, repair: Repair, rng: Random, wrong_share: float) -> TrainGroup:
    """One supervised group: other visible examples than the fixture's own, the gold trial, and in `wrong_share` of the
    cases a second trial that recovers from a wrong edit (which is context there, never a target)."""
    fixture = examples.redraw(repair.fixture, rng)
    gold = TrialContext(harness, fixture)
    members = [TrainMember("gold", tuple(_gold(gold, harness, repair)), 1.0, 1.0)]
    if repair.wrong and rng.random() < wrong_share:
        line, text = rng.choice(repair.wrong)
        source = fixture.base_tree[editable_path(fixture)].splitlines()
        source[line - 1] = text
        seen = examples.first_failure("\n".join(source) + "\n", fixture.entry, fixture.problem, fixture.public_checks)
        if seen is not None:
            context = TrialContext(harness, fixture)
            context.after_invocation(harness.action_ids(f"edit {line}: {text.strip()}"))
            context.observe(seen)
            members.append(TrainMember("recovery", tuple(_gold(context, harness, repair)), 1.0, 1.0))
    return TrainGroup(fixture.task_id, tuple(members))


def epochs(found: Sequence[Repair], rng: Random) -> list[Repair]:
    """One pass over all repairs in random order."""
    order = list(found)
    rng.shuffle(order)
    return order
