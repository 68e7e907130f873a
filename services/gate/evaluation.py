"""Collects the verdicts of an evaluation's cohort and turns them into one result per version and task set."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas import ids
from schemas.codec import ContractViolation
from schemas.policy import EvaluationResult
from schemas.rollout import RolloutRequested
from schemas.verification import VerificationVerdict
from services.gate.statistics import paired_difference, pass_at_k, pass_hat_k
from services.runtime import plan
from services.runtime.plan import Claim

UNKNOWN = "unknown"


class Cell(NamedTuple):
    """One evaluation: a version measured on a task set. The version is the one that the cohort was asked for."""

    version: int
    task_set: str


@dataclass
class _Cohort:
    """The trials of one evaluation as far as they were requested; `tasks` is how many groups it will have."""

    tasks: int
    samples: int
    touched_ms: int
    groups: dict[str, RolloutRequested] = field(default_factory=dict)  # by group id

    def trials(self, group_id: str) -> list[str]:
        return [ids.trial_id(group_id, member) for member in range(self.samples)]


@dataclass(frozen=True)
class TaskCount:
    """Resolved samples of one task and how many of them passed."""

    samples: int
    passes: int


class Evaluations:
    """Requests and verdicts of the evaluation split in, results out, in whatever order they are read.

    A result is due when every announced task was requested and every trial has a final verdict, or when nothing has
    come in for `deadline_ms`: the missing trials then count as unresolved. No wait is for ever.
    """

    def __init__(self, run_id: str, deadline_ms: int) -> None:
        self._run_id = run_id
        self._deadline_ms = deadline_ms
        self._cohorts: dict[Cell, _Cohort] = {}
        self._cell_of: dict[str, Cell] = {}
        self._verdicts: dict[str, tuple[str, Claim]] = {}
        self._results: dict[Cell, EvaluationResult] = {}

    @property
    def waiting(self) -> Mapping[Cell, int]:
        """Evaluations without a result, with the number of their trials that have no final verdict yet."""
        return {
            cell: sum(trial not in self._verdicts for group in cohort.groups for trial in cohort.trials(group))
            for cell, cohort in self._cohorts.items()
        }

    def requested(self, record: RolloutRequested, now_ms: int) -> None:
        """Note a planned trial. Raises ContractViolation when its cohort is not announced."""
        cell = Cell(record.policy_version, record.task_set)
        if record.split != "eval" or cell in self._results:
            return
        if cell not in self._cohorts:
            self._cohorts[cell] = _Cohort(_announced(record), record.group_size, now_ms)
        cohort = self._cohorts[cell]
        cohort.groups.setdefault(record.group_id, record)
        cohort.touched_ms = now_ms
        self._cell_of[record.group_id] = cell

    def judged(self, record: VerificationVerdict, now_ms: int) -> None:
        """Note a final verdict; the first one of a trial stands."""
        if record.split != "eval" or record.verdict == "pending":
            return
        cell = self._cell_of.get(record.group_id)
        if cell in self._results:
            return
        self._verdicts.setdefault(record.trial_id, (record.verdict, plan.claim(record)))
        if cell is not None:
            self._cohorts[cell].touched_ms = now_ms

    def measured(self, record: EvaluationResult) -> None:
        """A result that stands on the topic: its evaluation is over."""
        self._finish(Cell(record.policy_version, record.task_set), record)

    def _finish(self, cell: Cell, result: EvaluationResult) -> None:
        self._results[cell] = result
        cohort = self._cohorts.pop(cell, None)
        for group_id in cohort.groups if cohort else ():
            for trial in cohort.trials(group_id) if cohort else ():
                self._verdicts.pop(trial, None)

    def due(self, now_ms: int) -> list[EvaluationResult]:
        """Results that can be given now; each is given once."""
        out = []
        for cell in sorted(self._cohorts):
            cohort = self._cohorts[cell]
            if self._complete(cohort) or now_ms - cohort.touched_ms >= self._deadline_ms:
                result = self._result(cell, cohort, now_ms)
                self._finish(cell, result)
                out.append(result)
        return out

    def _complete(self, cohort: _Cohort) -> bool:
        if len(cohort.groups) < cohort.tasks:
            return False
        return all(trial in self._verdicts for group in cohort.groups for trial in cohort.trials(group))

    def _counts(self, cohort: _Cohort) -> dict[str, TaskCount]:
        words: dict[str, list[str]] = defaultdict(list)
        for group_id, asked in cohort.groups.items():
            words[asked.task_id] += [self._word(trial, asked) for trial in cohort.trials(group_id)]
        return {
            task: TaskCount(found.count("pass") + found.count("fail"), found.count("pass"))
            for task, found in sorted(words.items())
        }

    def _word(self, trial: str, asked: RolloutRequested) -> str:
        """The verdict that counts: one that cannot be what became of the request says nothing."""
        word, said = self._verdicts.get(trial, (UNKNOWN, None))
        return word if said is not None and plan.contradiction(asked, said) is None else UNKNOWN

    def _previous(self, cell: Cell) -> EvaluationResult | None:
        """The newest earlier version that was measured on the same task set."""
        earlier = [c for c in self._results if c.task_set == cell.task_set and c.version < cell.version]
        return self._results[max(earlier)] if earlier else None

    def _result(self, cell: Cell, cohort: _Cohort, now_ms: int) -> EvaluationResult:
        counts = self._counts(cohort)
        parent = self._previous(cell)
        rates = {task: count.passes / count.samples for task, count in counts.items() if count.samples}
        pairs = _pairs(parent, rates) if parent is not None else []
        interval = paired_difference(
            [before for before, _ in pairs], [after for _, after in pairs], _seed(self._run_id, cell)
        )
        k = cohort.samples
        whole = [count for count in counts.values() if count.samples >= k]
        return EvaluationResult(
            run_id=self._run_id,
            policy_version=cell.version,
            task_set=cell.task_set,
            task_ids=tuple(counts),
            task_samples=tuple(count.samples for count in counts.values()),
            task_passes=tuple(count.passes for count in counts.values()),
            unresolved=sum(k - count.samples for count in counts.values()),
            k=k,
            pass_at_1=_mean(list(rates.values())),
            pass_at_k=_mean([pass_at_k(count.samples, count.passes, k) for count in whole]),
            pass_hat_k=_mean([pass_hat_k(count.samples, count.passes, k) for count in whole]),
            parent_version=parent.policy_version if parent else None,
            difference=interval.difference if interval else None,
            difference_low=interval.low if interval else None,
            difference_high=interval.high if interval else None,
            finished_ms=now_ms,
        )


def _announced(record: RolloutRequested) -> int:
    """How many tasks of its set the request's evaluation has: `selection_inputs` holds `{"cohort": {SET: COUNT}}`."""
    try:
        return int(json.loads(record.selection_inputs)["cohort"][record.task_set])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as e:
        raise ContractViolation("cohort", f"{record.trial_id}: {record.selection_inputs[:99]!r} names no cohort") from e


def _pairs(parent: EvaluationResult, rates: Mapping[str, float]) -> list[tuple[float, float]]:
    before = zip(parent.task_ids, parent.task_samples, parent.task_passes, strict=True)
    return [(passes / samples, rates[task]) for task, samples, passes in before if samples and task in rates]


def _mean(values: list[float]) -> float:
    """The mean; not a number when nothing was resolved, since a missing verdict is not a zero."""
    return math.fsum(values) / len(values) if values else math.nan


def _seed(run_id: str, cell: Cell) -> int:
    text = f"{run_id} {cell.version} {cell.task_set}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
