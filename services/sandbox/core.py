"""The sandbox's core: commands in, one result per command out; keeps workspaces over a trial attempt's operations."""

from __future__ import annotations

import functools
import json
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from schemas.codec import ContractViolation
from schemas.sandbox import SandboxCommand, SandboxResult
from schemas.topics import SANDBOX_RESULT
from services.runtime.core import BaseCore, Effects, Job, Message, Output, Position, finished
from services.runtime.settings import Sandbox
from services.sandbox.reset import Warm
from services.sandbox.workspace import Done, Edit, Operation, Workspace
from services.tasks.fixture import Fixture

MAX_WORKSPACES = 4_096
"""Workspaces held as text; far fewer have a live jail (settings.sandbox.workspaces)."""

Status = Literal["ok", "refused", "workspace_lost", "infra"]
Find = Callable[[str, str], Fixture]
"""(task-set digest, task id) -> fixture. Raises KeyError for an unknown one."""


class Operates(Protocol):
    """What carries out operations, on worker threads."""

    def operate(self, workspace: Workspace, operation: Operation, history: Sequence[Edit] = ()) -> Done: ...

    def let_go(self, warm: Warm) -> None: ...

    @property
    def short(self) -> bool: ...

    def fill(self) -> bool: ...


@dataclass(eq=False)
class _Held:
    """A workspace with what is going on in it."""

    workspace: Workspace
    used_ms: int
    running: str | None = None
    positions: list[Position] = field(default_factory=list)
    queue: deque[Message] = field(default_factory=deque)
    last: SandboxResult | None = None
    dropped: bool = False
    revoked: bool = False


class SandboxCore(BaseCore):
    """Pure but for `operator`. A command that was answered before is answered again from memory, not run again.

    A command that says what was done before (`history`) makes its workspace anew, whatever there is: on a deterministic
    fixture the same operations make the same source.
    """

    def __init__(
        self, settings: Sandbox, find: Find, operator: Operates, generation: str, now_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._find = find
        self._operator = operator
        self._generation = generation
        self._now_ms = now_ms
        self._made = 0
        self._held: OrderedDict[str, _Held] = OrderedDict()  # by trial id, least recently used first
        self._released: list[Warm] = []
        self._filling = False

    def revoked(self, partitions: frozenset[int]) -> None:
        for held in [one for one in self._held.values() if one.workspace.partition in partitions]:
            held.revoked = True
            self._drop(held)

    def tick(self, now_ms: int) -> Effects:
        oldest = now_ms - int(self._settings.idle_s * 1000)
        for held in list(self._held.values()):
            if held.used_ms > oldest:
                break
            if held.running is None:
                self._drop(held)
        effects = self._closing()
        if self._operator.short and not self._filling:
            self._filling = True
            effects.jobs.append(Job(self._operator.fill, self._filled))
        return effects

    def _filled(self, more: bool | Exception) -> Effects:
        self._filling = False
        if more is not True:
            return Effects()
        self._filling = True
        return Effects(jobs=[Job(self._operator.fill, self._filled)])

    def handle(self, message: Message, now_ms: int) -> Effects:
        command = message.record
        if not isinstance(command, SandboxCommand):
            return finished(message)
        held = self._held.get(command.trial_id)
        if held is not None and held.workspace.attempt == command.attempt:
            last = -1 if held.last is None else held.last.sequence
            if held.last is not None and held.last.operation_id == command.operation_id:
                return finished(message, [Output(SANDBOX_RESULT, held.last)])
            if command.sequence < last or (command.sequence == last and command.history is None):
                return finished(message)  # a repeat of what was answered before: the workspace has gone on since
            if held.running == command.operation_id:
                held.positions.append(message.position)
                return Effects()
            if held.running is not None:
                held.queue.append(message)
                return Effects()
            if command.history is None and command.sequence == last + 1:
                return self._start(held, message, now_ms)
        elif held is not None and held.workspace.attempt > command.attempt:
            return finished(message, [self._output(command, "workspace_lost", now_ms)])
        if command.sequence > 0 and command.history is None:
            return finished(message, [self._output(command, "workspace_lost", now_ms)])
        return self._fresh(held, message, now_ms)

    def _fresh(self, old: _Held | None, message: Message, now_ms: int) -> Effects:
        command = message.record
        assert isinstance(command, SandboxCommand)
        history = _operations(command.history or ())
        if old is not None:
            self._drop(old)
        try:
            fixture = self._find(command.taskset_digest, command.task_id)
        except KeyError:
            return finished(message, [self._output(command, "infra", now_ms, infra="unknown_task")])
        if fixture.digest != command.fixture_digest:
            return finished(message, [self._output(command, "infra", now_ms, infra="fixture_mismatch")])
        if command.sequence > 0 and not fixture.deterministic:
            return finished(message, [self._output(command, "workspace_lost", now_ms)])
        self._made += 1
        generation = f"{self._generation}.{self._made}"
        workspace = Workspace(command.trial_id, command.attempt, message.partition, generation, fixture)
        held = _Held(workspace, now_ms)
        self._held[command.trial_id] = held
        self._make_room()
        return self._start(held, message, now_ms, history)

    def _start(self, held: _Held, message: Message, now_ms: int, history: Sequence[Edit] = ()) -> Effects:
        command = message.record
        assert isinstance(command, SandboxCommand)
        held.used_ms = now_ms
        held.running = command.operation_id
        held.positions = [message.position]
        self._held.move_to_end(command.trial_id)
        operation = Operation(
            command.tool,
            command.arguments,
            min(command.cpu_s, self._settings.cpu_s),
            min(command.wall_s, self._settings.wall_s),
        )
        if held.workspace.warm is None:
            self._make_jail_room()
        run = functools.partial(self._operator.operate, held.workspace, operation, history)
        # No partition: a result that came too late still has to close the workspace's jail.
        effects = self._closing()
        effects.jobs.append(Job(run, functools.partial(self._finished, held, command, now_ms)))
        return effects

    def _finished(self, held: _Held, command: SandboxCommand, started_ms: int, done: Done | Exception) -> Effects:
        if isinstance(done, Exception):
            done = Done(infra=f"{type(done).__name__}: {done}")
        if held.revoked:
            self._retire(held)
            return self._closing()
        status: Status = "infra" if done.infra is not None else "refused" if done.refused else "ok"
        output = self._output(command, status, started_ms, done, held.workspace.generation)
        held.last = output.record if isinstance(output.record, SandboxResult) else None
        held.used_ms = self._now_ms()
        effects = Effects(outputs=[output], done=held.positions)
        held.running, held.positions = None, []
        if command.tool == "submit" and status == "ok":
            self._retire(held)  # the text stays a while, so that a repeated command finds its answer
        if held.dropped:  # a later attempt took its place; nobody waits for this one, but its commands must end
            self._retire(held)
        waiting, held.queue = held.queue, deque()
        for message in waiting:
            effects += self.handle(message, held.used_ms)
        effects += self._closing()
        return effects

    def _output(
        self,
        command: SandboxCommand,
        status: Status,
        started_ms: int,
        done: Done | None = None,
        generation: str = "",
        infra: str | None = None,
    ) -> Output:
        done = done or Done(infra=infra)
        limit = min(command.output_bytes, self._settings.output_bytes)
        raw = done.observation.encode()
        result = SandboxResult(
            run_id=command.run_id,
            group_id=command.group_id,
            trial_id=command.trial_id,
            attempt=command.attempt,
            operation_id=command.operation_id,
            sequence=command.sequence,
            tool=command.tool,
            status=status,
            observation=raw[:limit].decode("utf-8", "ignore"),
            truncated=len(raw) > limit,
            checks_passed=done.passed,
            diff=done.diff,
            cpu_s=done.cpu_s,
            memory_bytes=None,
            workspace_generation=generation,
            infra_error=None if done.infra is None else done.infra[:500],
            started_ms=started_ms,
            ended_ms=self._now_ms(),
            findings=done.findings,
        )
        return Output(SANDBOX_RESULT, result)

    # -- letting go --------------------------------------------------------------------------------------------------

    def _drop(self, held: _Held) -> None:
        """Forget a workspace. One that is running is retired when its operation ends."""
        self._held.pop(held.workspace.trial_id, None)
        held.dropped = True
        if held.running is None:
            self._retire(held)

    def _retire(self, held: _Held) -> None:
        warm = held.workspace.release()
        if warm is not None:
            self._released.append(warm)

    def _make_room(self) -> None:
        idle = [held for held in self._held.values() if held.running is None]
        for held in idle[: max(0, len(self._held) - MAX_WORKSPACES)]:
            self._drop(held)

    def _make_jail_room(self) -> None:
        """At most `settings.workspaces` live jails: the least recently used idle one gives its place."""
        live = [held for held in self._held.values() if held.workspace.warm is not None or held.running is not None]
        idle = [held for held in live if held.running is None]
        for held in idle[: max(0, len(live) - self._settings.workspaces)]:
            self._retire(held)

    def _closing(self) -> Effects:
        """Jobs that give jails back: resetting or ending one takes milliseconds, so not under the core's lock."""
        released, self._released = self._released, []
        return Effects(jobs=[Job(functools.partial(self._operator.let_go, warm), _nothing) for warm in released])


def _operations(history: Sequence[str]) -> list[Edit]:
    """Tools and arguments of a history. Raises ContractViolation."""
    found = []
    for entry in history:
        try:
            tool, arguments = json.loads(entry)
        except (ValueError, TypeError, RecursionError):
            tool = arguments = None
        if not isinstance(tool, str) or not isinstance(arguments, str):
            raise ContractViolation("history", f"{entry[:80]!r} is no [tool, arguments]")
        found.append((tool, arguments))
    return found


def _nothing(result: object) -> Effects:
    del result
    return Effects()
