"""Whether each record of a trial has those that it came from: a verdict its completion, a completion its calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from schemas.record import Record
from schemas.rollout import Invocation, RolloutCompleted
from schemas.sandbox import SandboxCommand, SandboxResult
from schemas.verification import VerificationTrial, VerificationVerdict

Attempt = tuple[str, int]
"""Trial id and attempt."""


class Causes:
    """Fed with decoded records in any order. Only kinds of which every record was read are asked about.

    `asked` are record names (`rollout.completed`, …). Nothing is said of a kind that was read in part, since what is
    missing there may only not have been read.
    """

    def __init__(self, asked: Collection[str]) -> None:
        self._asked = frozenset(asked)
        self._completed: dict[Attempt, RolloutCompleted] = {}
        self._judged: dict[Attempt, int] = {}
        """Check runs that a verdict of its own rests on; 0 for a reused one."""
        self._calls: dict[Attempt, set[str]] = defaultdict(set)
        self._runs: dict[Attempt, set[tuple[int, int]]] = defaultdict(set)
        self._commands: dict[Attempt, set[str]] = defaultdict(set)
        self._results: dict[Attempt, set[str]] = defaultdict(set)

    def add(self, record: Record) -> None:
        """Take in one record; kinds that say nothing here are ignored."""
        if isinstance(record, RolloutCompleted):
            self._completed[record.trial_id, record.attempt] = record
        elif isinstance(record, VerificationVerdict):
            runs = 0 if record.reused else record.trials_run
            at = record.trial_id, record.attempt
            self._judged[at] = max(runs, self._judged.get(at, 0))
        elif isinstance(record, Invocation):
            self._calls[record.trial_id, record.attempt].add(record.invocation_id)
        elif isinstance(record, VerificationTrial):
            self._runs[record.trial_id, record.attempt].add((record.number, record.infra_attempt))
        elif isinstance(record, SandboxCommand):
            self._commands[record.trial_id, record.attempt].add(record.operation_id)
        elif isinstance(record, SandboxResult):
            self._results[record.trial_id, record.attempt].add(record.operation_id)

    def missing(self) -> Iterator[tuple[str, set[str]]]:
        """(what is wrong, trials) for every kind of record that is absent although another one rests on it."""
        found: dict[str, set[str]] = defaultdict(set)
        if "rollout.completed" in self._asked:
            found["judged, but never completed"] = {
                trial for trial, n in self._judged if (trial, n) not in self._completed
            }
        if "verification.trial" in self._asked:
            short = (at for at, runs in self._judged.items() if len(self._runs.get(at, ())) < runs)
            found["judged by check runs that are not recorded"] = {trial for trial, _ in short}
        for at, done in self._completed.items():
            for what in self._unmet(at, done):
                found[what].add(done.trial_id)
        if "sandbox.command" in self._asked:
            for (trial, attempt), operations in self._results.items():
                if operations - self._commands.get((trial, attempt), set()):
                    found["a tool's answer to what nobody asked"].add(trial)
        for what, trials in found.items():
            if trials:
                yield what, trials

    def _unmet(self, at: Attempt, done: RolloutCompleted) -> Iterator[str]:
        if "rollout.invocation" in self._asked and len(self._calls.get(at, ())) < done.invocations:
            yield "completed with model calls that are not recorded"
        if "sandbox.result" in self._asked:
            waiting = self._commands.get(at, set()) - self._results.get(at, set()) - set(done.outstanding_operations)
            if waiting:
                yield "completed with tool calls that have no answer"
