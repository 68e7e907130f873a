"""Builds the request records of a group, and the members that a crash left out of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from schemas import ids
from schemas.rollout import RolloutRequested
from services.dispatch import cohorts, draws
from services.dispatch.cohorts import Cell
from services.dispatch.selection import Choice, Task
from services.runtime.settings import Sampling
from services.tasks.fixture import Fixture


@dataclass(frozen=True)
class Planner:
    """What every request of a run shares."""

    run_id: str
    run_seed: int
    taskset_digest: str
    fixtures: Mapping[str, Fixture]
    sampling: Sampling

    def training(self, number: int, choice: Choice, size: int, version: int, now_ms: int) -> list[RolloutRequested]:
        """All members of a training group; member seeds differ by group and member."""
        first = self._first(number, choice, size, version, now_ms)
        return [self.member(first, member, now_ms) for member in range(size)]

    def evaluation(
        self, number: int, cell: Cell, sizes: Mapping[str, int], samples: int, now_ms: int
    ) -> list[RolloutRequested]:
        """All samples of one task as one group; seeds are the same at every version, so that pairs share the noise."""
        task = Task(cell.task_id, self.fixtures[cell.task_id].family)
        choice = Choice(task, cohorts.SELECTION, 1.0, cohorts.inputs(sizes))
        first = self._first(number, choice, samples, cell.version, now_ms)
        first = replace(first, split="eval", task_set=cell.task_set)
        return [self.member(first, member, now_ms) for member in range(samples)]

    def member(self, group: RolloutRequested, member: int, now_ms: int) -> RolloutRequested:
        """One member of the group that any other member of it describes."""
        if group.split == "eval":
            seed = draws.seed(self.run_seed, "evaluation", group.task_set, group.task_id, member)
        else:
            seed = draws.seed(self.run_seed, "training", ids.parse_trial(group.trial_id).group, member)
        trial = ids.trial_id(group.group_id, member)
        return replace(group, trial_id=trial, member=member, seed=seed, requested_ms=now_ms)

    def _first(self, number: int, choice: Choice, size: int, version: int, now_ms: int) -> RolloutRequested:
        fixture = self.fixtures[choice.task.task_id]
        group = ids.group_id(self.run_id, number)
        return RolloutRequested(
            run_id=self.run_id,
            group_id=group,
            trial_id=ids.trial_id(group, 0),
            member=0,
            group_size=size,
            task_id=fixture.task_id,
            family=fixture.family,
            fixture_digest=fixture.digest,
            taskset_digest=self.taskset_digest,
            split="train",
            task_set="train",
            policy_version=version,
            temperature=self.sampling.temperature,
            top_k=self.sampling.top_k,
            top_p=self.sampling.top_p,
            max_turns=fixture.budgets.turns,
            max_tokens=fixture.budgets.tokens,
            wall_s=fixture.budgets.wall_s,
            seed=0,
            selection=choice.policy,
            selection_weight=choice.weight,
            selection_inputs=choice.inputs,
            requested_ms=now_ms,
        )
