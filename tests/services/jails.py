"""Shared by the tests of sandbox and verifier: one jail owner, tiny hand-made tasks, records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.record import Record
from schemas.rollout import RolloutCompleted
from schemas.sandbox import SandboxCommand
from services.runtime.core import Effects, Job, Message, Position
from services.runtime.jail.launcher import JailHost
from services.tasks.fixture import Budgets, CheckSet, Example, Fixture

ADD_BUG = "def add(a, b):\n    return a - b\n"
ADD_FIX = "def add(a, b):\n    return a + b\n"
ADD_DIFF = (
    "--- a/solution.py\n+++ b/solution.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
)


def jail_host(slots: int) -> Iterator[JailHost]:
    """A jail owner, closed at the end; skips with the reason where bubblewrap is absent."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap (bwrap) is not installed: apt-get install bubblewrap")
    with JailHost(slots) as host:
        yield host


def add_check(**changes: Any) -> CheckSet:
    """Fixed cases (E2) of `add`."""
    cases = tuple(Example((a, b), a + b) for a, b in [(2, 3), (-17, 400), (0, 0), (10**30, 1), (5, 5)])
    fields: dict[str, Any] = {
        "task_id": "tiny/add",
        "problem": "tiny/add",
        "entry": "add",
        "comparator": "exact",
        "evidence": "E2",
        "cases_per_trial": 5,
        "fixed_cases": cases,
        "call_cpu_s": 0.1,
        "known_bad": (),
    }
    return CheckSet(**{**fields, **changes})


def add_fixture(check: CheckSet | None = None, **changes: Any) -> Fixture:
    """The public half of `add`, its base subtracts."""
    fields: dict[str, Any] = {
        "task_id": "tiny/add",
        "family": "tiny",
        "problem": "tiny/add",
        "bug_kind": "operator",
        "entry": "add",
        "base_tree": {"solution.py": ADD_BUG},
        "allowed_globs": ("solution.py",),
        "tools": ("test", "read", "edit", "replace", "submit"),
        "budgets": Budgets(4, 100, 60.0),
        "public_checks": (Example((1, 2), 3), Example((4, 4), 8)),
        "first_failure": "FAIL 1,2 want 3 got -1",
        "comparator": "exact",
        "deterministic": True,
        "check_digest": (check or add_check()).digest,
    }
    return Fixture(**{**fields, **changes})


class OneTask:
    """A task source of one hand-made task."""

    def __init__(self, fixture: Fixture, check: CheckSet) -> None:
        self._fixture, self._check = fixture, check

    def fixture(self, task_id: str) -> Fixture:
        if task_id != self._fixture.task_id:
            raise KeyError(task_id)
        return self._fixture

    def check(self, task_id: str) -> CheckSet:
        self.fixture(task_id)
        return self._check


def completed(fixture: Fixture, member: int = 0, **changes: Any) -> RolloutCompleted:
    """A submitted attempt with the right repair."""
    fields: dict[str, Any] = {
        "run_id": "run",
        "group_id": "run/00000000",
        "trial_id": f"run/00000000/{member}",
        "attempt": 0,
        "task_id": fixture.task_id,
        "fixture_digest": fixture.digest,
        "split": "train",
        "policy_version": 3,
        "newest_version": 4,
        "stop_reason": "submitted",
        "infra_error": None,
        "final_attempt": True,
        "diff": ADD_DIFF,
        "diff_uri": None,
        "diff_digest": None,
        "invocations": 2,
        "policy_tokens": 30,
        "malformed_actions": 1,
        "outstanding_operations": (),
        "outstanding_owner": None,
        "requested_ms": 10,
        "started_ms": 20,
        "ended_ms": 30,
        "generation_ms": 7,
        "tool_wait_ms": 2,
    }
    return RolloutCompleted(**{**fields, **changes})


def command(fixture: Fixture, tool: str, sequence: int, arguments: str = "{}", **changes: Any) -> SandboxCommand:
    """One operation of the first attempt of a trial."""
    fields: dict[str, Any] = {
        "run_id": "run",
        "group_id": "run/00000000",
        "trial_id": "run/00000000/0",
        "attempt": 0,
        "operation_id": f"run/00000000/0.0.{sequence}.0",
        "sequence": sequence,
        "task_id": fixture.task_id,
        "fixture_digest": fixture.digest,
        "taskset_digest": "t",
        "tool": tool,
        "arguments": arguments,
        "cpu_s": 0.1,
        "wall_s": 5.0,
        "output_bytes": 4096,
        "issued_ms": 1,
    }
    return SandboxCommand(**{**fields, **changes})


class Deliver:
    """Feeds a core as the loop would, with jobs run at once (or held), and collects outputs and finished positions."""

    def __init__(self, core: Any, topic: str, now_ms: int = 1_000) -> None:
        self.core = core
        self.topic = topic
        self.now_ms = now_ms
        self.offset = 0
        self.outputs: list[Record] = []
        self.done: list[Position] = []
        self.held: list[Job] = []

    def message(
        self, record: Record, partition: int = 0, offset: int | None = None, topic: str | None = None
    ) -> Message:
        position = Position(topic or self.topic, partition, self.offset if offset is None else offset)
        self.offset += 1
        return Message(position, self.now_ms, record.group_id, {}, record, 100)  # type: ignore[attr-defined]  # all have it

    def give(self, record: Record, partition: int = 0, run: bool = True, topic: str | None = None) -> Message:
        message = self.message(record, partition, topic=topic)
        self.apply(self.core.handle(message, self.now_ms), run)
        return message

    def apply(self, effects: Effects, run: bool = True) -> None:
        self.outputs += [output.record for output in effects.outputs]
        self.done += effects.done
        self.held += effects.jobs
        if run:
            self.run_jobs()

    def run_jobs(self) -> None:
        while self.held:
            self.step()

    def step(self) -> None:
        """Run the jobs that are held now, and hold those that they cause."""
        jobs, self.held = self.held, []
        for job in jobs:
            try:
                result = job.run()
            except Exception as error:
                result = error
            self.apply(job.then(result), run=False)
