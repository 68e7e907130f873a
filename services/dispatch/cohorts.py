"""Evaluation cohorts: which tasks are measured before, during and after training, always the same ones."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.codec import ContractViolation
from schemas.rollout import RolloutRequested
from services.dispatch import draws
from services.dispatch.selection import canonical

SELECTION = "evaluation"


class Cell(NamedTuple):
    """One task of one set, to be measured on one version."""

    version: int
    task_set: str
    task_id: str


@dataclass(frozen=True)
class EvaluationPlan:
    """Tasks of each set in the order of their draw; the first n of a set are the same whatever n is."""

    sets: Mapping[str, tuple[str, ...]]
    samples: int

    def cells(self, version: int) -> list[Cell]:
        """Everything that one evaluation measures, set by set."""
        return [Cell(version, name, task) for name, tasks in self.sets.items() for task in tasks]

    @property
    def sizes(self) -> dict[str, int]:
        """How many tasks each enabled set measures."""
        return {name: len(tasks) for name, tasks in self.sets.items() if tasks}


def draw_tasks(run_seed: int, task_set: str, tasks: Iterable[str], count: int) -> tuple[str, ...]:
    """The first `count` tasks in an order that depends on seed, set and task id alone."""
    ranked = sorted(tasks, key=lambda task: (draws.unit(run_seed, "evaluation", task_set, task), task))
    return tuple(ranked[:count])


def inputs(sizes: Mapping[str, int]) -> str:
    """What an evaluation request logs: how many tasks of every set belong to its cohort."""
    return canonical({"cohort": dict(sizes)})


def read_sizes(record: RolloutRequested) -> dict[str, int]:
    """Inverse of `inputs`. Raises ContractViolation."""
    try:
        sizes = json.loads(record.selection_inputs)["cohort"]
        found = {str(name): int(count) for name, count in sizes.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
        raise ContractViolation("cohort", f"{record.trial_id}: {record.selection_inputs[:99]!r} names no cohort") from e
    if record.task_set not in found:
        raise ContractViolation("cohort", f"{record.trial_id}: its cohort has no set {record.task_set!r}")
    return found


@dataclass
class Cohorts:
    """Evaluations that were asked for, by version: their announced sizes and the tasks requested so far."""

    sizes: dict[int, dict[str, int]] = field(default_factory=dict)
    _tasks: dict[tuple[int, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    _results: set[tuple[int, str]] = field(default_factory=set)

    def asked(self, version: int, sizes: Mapping[str, int], task_set: str, task_id: str) -> None:
        self.sizes.setdefault(version, dict(sizes))
        self._tasks[version, task_set].add(task_id)

    def measured(self, version: int, task_set: str) -> None:
        self._results.add((version, task_set))

    def complete(self, version: int) -> bool:
        """Whether every set of this version's evaluation has its result."""
        return version in self.sizes and all((version, name) in self._results for name in self.sizes[version])

    def missing(self, plan: EvaluationPlan) -> list[Cell]:
        """Cells of announced evaluations that were never requested: a crash came between."""
        out = []
        for version, sizes in sorted(self.sizes.items()):
            for name, count in sizes.items():
                if (version, name) not in self._results:
                    wanted = plan.sets.get(name, ())[:count]
                    have = self._tasks[version, name]
                    out += [Cell(version, name, task) for task in wanted if task not in have]
        return out
