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
        line, _ = edits[fixture.task_id] = reference_edit(fixture)
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
    cases a second trial that recovers from one or two wrong edits (which are context there, never targets)."""
    fixture = examples.redraw(repair.fixture, rng)
    members = [TrainMember("gold", tuple(_gold(TrialContext(harness, fixture), harness, repair)), 1.0, 1.0)]
    if repair.wrong and rng.random() < wrong_share:
        context = TrialContext(harness, fixture)
        tries = rng.sample(repair.wrong, min(len(repair.wrong), rng.choice((1, 1, 2))))
        if all(_try_in_vain(context, harness, fixture, *wrong) for wrong in tries):
            members.append(TrainMember("recovery", tuple(_gold(context, harness, repair)), 1.0, 1.0))
    return TrainGroup(fixture.task_id, tuple(members))


def _try_in_vain(context: TrialContext, harness: Harness, fixture: Fixture, line: int, text: str) -> bool:
    """Let the trial make an edit and see its failure; False where the visible checks do not notice it."""
    source = fixture.base_tree[editable_path(fixture)].splitlines()
    source[line - 1] = text
    seen = examples.first_failure("\n".join(source) + "\n", fixture.entry, fixture.problem, fixture.public_checks)
    if seen is None:
        return False
    context.after_invocation(harness.action_ids(f"edit {line}: {text.strip()}"))
    context.observe(seen)
    return True


def epochs(found: Sequence[Repair], rng: Random) -> list[Repair]:
    """One pass over all repairs in random order."""
    order = list(found)
    rng.shuffle(order)
    return order
