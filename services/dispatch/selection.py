"""Task selection: uniform, or a curriculum by running pass rate; a pure function of logged inputs."""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple

from services.dispatch import draws

Policy = Literal["uniform", "pass_rate"]
WINDOW = 3
"""Groups per task that the running pass rate looks back on: the policy moves, old outcomes mislead."""
PRIOR_PASSES, PRIOR_MEMBERS = 1.0, 2.0
"""Optimistic prior: a task never tried counts as half solved, where contrast is likeliest."""
FLOOR = 0.05
"""Added to every weight, so that a task that always passes or always fails still comes up (p(1-p) is at most 0.25)."""


class Task(NamedTuple):
    """What selection knows of a task."""

    task_id: str
    family: str


class Estimate(NamedTuple):
    """Smoothed pass rate and how many members it rests on."""

    rate: float
    members: int

    @property
    def weight(self) -> float:
        """Proportional to the chance of being drawn: the variance of one reward, plus the floor."""
        return self.rate * (1.0 - self.rate) + FLOOR


class PassRates:
    """Running pass rate per task over its last `WINDOW` groups by number: the order of reading cannot matter."""

    def __init__(self) -> None:
        self._groups: dict[str, list[tuple[int, float, int]]] = defaultdict(list)

    def observe(self, task_id: str, group: int, pass_rate: float, members: int) -> None:
        """Note a resolved group; a second report of the same group is ignored."""
        kept = self._groups[task_id]
        if all(number != group for number, _, _ in kept):
            heapq.heappush(kept, (group, pass_rate, members))
            if len(kept) > WINDOW:
                heapq.heappop(kept)

    def estimate(self, task_id: str) -> Estimate:
        """(passes + prior) / (members + prior) over the window."""
        kept = self._groups.get(task_id, ())
        passes = sum(rate * members for _, rate, members in kept)
        members = sum(count for _, _, count in kept)
        return Estimate((passes + PRIOR_PASSES) / (members + PRIOR_MEMBERS), members)


@dataclass(frozen=True)
class Choice:
    """A drawn task with what is logged about it: policy, probability of the draw, and canonical JSON of its inputs."""

    task: Task
    policy: str
    weight: float
    inputs: str


def canonical(value: Mapping[str, object]) -> str:
    """JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def choose(
    policy: Policy,
    run_seed: int,
    group: int,
    tasks: Sequence[Task],
    rates: PassRates,
    busy: Set[str],
    offsets: Mapping[int, int],
) -> Choice:
    """Draw the task of a training group. `tasks` must not be empty.

    Tasks with an undecided group (`busy`) are passed over while others are free. `offsets` says up to where each
    partition of group.admission was read: rates and busy tasks can be rebuilt from the topics alone, so the draw can be
    repeated. `pass_rate` first takes a family (each once per cycle, in a drawn order), then a task by weight in it.
    """
    seen = {str(partition): offset for partition, offset in sorted(offsets.items())}
    if policy == "uniform":
        free = _free(tasks, busy)
        task = free[int(draws.unit(run_seed, "task", group) * len(free))]
        logged: dict[str, object] = {"admission_offsets": seen, "candidates": len(free)}
        return Choice(task, policy, 1.0 / len(free), canonical(logged))
    families = sorted({task.family for task in tasks})
    family = _family(run_seed, group, families)
    free = _free([task for task in tasks if task.family == family], busy)
    estimates = [rates.estimate(task.task_id) for task in free]
    weights = [estimate.weight for estimate in estimates]
    index = _draw(weights, draws.unit(run_seed, "task", group))
    logged = {
        "admission_offsets": seen,
        "candidates": len(free),
        "families": len(families),
        "family": family,
        "members": estimates[index].members,
        "rate": round(estimates[index].rate, 6),
    }
    weight = weights[index] / sum(weights) / len(families)
    return Choice(free[index], policy, weight, canonical(logged))


def _free(tasks: Sequence[Task], busy: Set[str]) -> Sequence[Task]:
    return [task for task in tasks if task.task_id not in busy] or tasks


def _family(run_seed: int, group: int, families: Sequence[str]) -> str:
    cycle, index = divmod(group, len(families))
    order = sorted(families, key=lambda family: draws.unit(run_seed, "family", cycle, family))
    return order[index]


def _draw(weights: Sequence[float], at: float) -> int:
    left = at * sum(weights)
    for index, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return index
    return len(weights) - 1
