"""Supervised repair traces of the training split: the reference edit, alone or after a wrong try and its feedback."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from services.agent.context import TrialContext
from services.agent.grammar import Malformed
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
    cases a second trial that recovers from one or two wrong tries (which are context there, never targets)."""
    fixture = examples.redraw(repair.fixture, rng)
    members = [TrainMember("gold", tuple(_gold(TrialContext(harness, fixture), harness, repair)), 1.0, 1.0)]
    if rng.random() < wrong_share:
        context = TrialContext(harness, fixture)
        lines = fixture.base_tree[editable_path(fixture)].splitlines()
        tries = [_wrong_try(repair, lines, rng) for _ in range(rng.choice((1, 1, 2)))]
        if all(_try_in_vain(context, harness, fixture, text) for text in tries):
            members.append(TrainMember("recovery", tuple(_gold(context, harness, repair)), 1.0, 1.0))
    return TrainGroup(fixture.task_id, tuple(members))


def _wrong_try(repair: Repair, lines: Sequence[str], rng: Random) -> str:
    """A mistake as a young policy makes them: another bug, a line in the wrong place, half a line, no text."""
    kind = rng.random()
    if kind < 0.4 and repair.wrong:
        line, text = rng.choice(repair.wrong)
        return f"edit {line}: {text.strip()}"
    line = rng.randint(1, len(lines))
    if kind < 0.8:
        return f"edit {line}: {rng.choice(lines).strip()}"
    if kind < 0.95:
        text = repair.text.strip()
        return f"edit {line}: {text[: rng.randint(1, len(text))]}"
    return f"edit {line}"


def _try_in_vain(context: TrialContext, harness: Harness, fixture: Fixture, text: str) -> bool:
    """Let the trial make this try and see what came of it; False where the visible checks do not notice it."""
    action = context.after_invocation(harness.action_ids(text))
    if isinstance(action, Malformed):
        context.observe(f"BAD {action.message}")
        return True
    arguments = json.loads(context.command(action).arguments)
    source = fixture.base_tree[editable_path(fixture)].splitlines()
    source[arguments["line"] - 1] = arguments["text"]
    seen = _seen("\n".join(source) + "\n", fixture)
    if seen is None:
        return False
    context.observe(seen)
    return True


def _seen(source: str, fixture: Fixture) -> str | None:
    """The observation of the public checks on lines of ours, as the sandbox words it (None: passes, or not cheap)."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        return f"{type(error).__name__} line {error.lineno}"
    try:
        return examples.first_failure(source, fixture.entry, fixture.problem, fixture.public_checks)
    except Exception:  # a shuffled function may not even be defined, or need what the guard does not offer
        return None


def epochs(found: Sequence[Repair], rng: Random) -> list[Repair]:
    """One pass over all repairs in random order."""
    order = list(found)
    rng.shuffle(order)
    return order
