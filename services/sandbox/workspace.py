"""One trial attempt's workspace: the source as text on this side, and a warm jail that only ever runs checks.

The jail cannot alter the source, so the diff that is submitted is what the edits made and nothing else; a jail that
broke or was given up for another workspace is started again at the next run without the policy noticing.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from services.runtime.jail import program
from services.runtime.jail.backend import Backend
from services.runtime.jail.limits import JailFault, Limits
from services.runtime.jail.session import Server
from services.sandbox import checks, edits
from services.sandbox.checks import Observation
from services.sandbox.diff import render
from services.sandbox.edits import Refusal
from services.tasks.fixture import Fixture

BOOT_S = 15.0
_LAUNCH_TRIES = 2
_STABLE_ENDINGS = frozenset({"complete", "limit"})


@dataclass
class Workspace:
    """State of one attempt. `tree` changes only through `Operator`; `server` is the live jail, if there is one."""

    trial_id: str
    attempt: int
    partition: int
    generation: str
    fixture: Fixture
    tree: dict[str, str] = field(default_factory=dict)
    server: Server | None = None

    def __post_init__(self) -> None:
        self.tree = dict(self.fixture.base_tree)

    def release(self) -> Server | None:
        """Take the live jail away; the caller closes it."""
        server, self.server = self.server, None
        return server


@dataclass(frozen=True)
class Operation:
    """A command's contents, bounded by the service's own settings."""

    tool: str
    arguments: str
    cpu_s: float
    wall_s: float


@dataclass(frozen=True)
class Done:
    """What an operation did. `infra` names a fault that the candidate cannot cause."""

    observation: str = ""
    refused: bool = False
    passed: bool | None = None
    diff: str | None = None
    cpu_s: float | None = None
    infra: str | None = None


class Known:
    """Observations of deterministic fixtures by (fixture, source): the same checks on the same source say the same."""

    def __init__(self, size: int = 20_000) -> None:
        self._size = size
        self._lock = Lock()
        self._found: OrderedDict[tuple[str, str], Observation] = OrderedDict()

    def get(self, fixture: Fixture, tree: Mapping[str, str]) -> Observation | None:
        """The observation made before, if any."""
        if not fixture.deterministic:
            return None
        with self._lock:
            return self._found.get(_key(fixture, tree))

    def put(self, fixture: Fixture, tree: Mapping[str, str], observation: Observation) -> None:
        """Remember one that did not hang on this machine's load."""
        if fixture.deterministic:
            with self._lock:
                self._found[_key(fixture, tree)] = observation
                while len(self._found) > self._size:
                    self._found.popitem(last=False)


def _key(fixture: Fixture, tree: Mapping[str, str]) -> tuple[str, str]:
    return fixture.digest, render(fixture.base_tree, tree)


class Operator:
    """Carries out operations; thread-safe as long as no workspace has two at once."""

    def __init__(self, host: Backend, limits: Limits, known: Known) -> None:
        self._host = host
        self._limits = limits
        self._known = known
        self._tools: dict[str, Callable[[Workspace, Operation], Done]] = {
            "test": self._test,
            "read": self._read,
            "edit": self._edit,
            "replace": self._replace,
            "reset": self._reset,
            "submit": self._submit,
        }

    def operate(self, workspace: Workspace, operation: Operation) -> Done:
        """Carry out one operation. Never raises for anything that the policy or the candidate does."""
        tool = self._tools.get(operation.tool)
        try:
            if tool is None or (
                operation.tool not in workspace.fixture.tools and operation.tool not in ("reset", "submit")
            ):
                offered = " ".join(workspace.fixture.tools)
                raise Refusal(f"no tool {operation.tool[:24]!r}; tools: {offered}")
            return tool(workspace, operation)
        except Refusal as refusal:
            return Done(str(refusal), refused=True)
        except JailFault as fault:
            return Done(infra=str(fault))

    def _test(self, workspace: Workspace, operation: Operation) -> Done:
        edits.arguments(operation.arguments, {})
        return self._checked(workspace, operation)

    def _read(self, workspace: Workspace, operation: Operation) -> Done:
        found = edits.arguments(operation.arguments, {"path": str, "first": int, "last": int})
        source = workspace.tree[_path(workspace, found)]
        return Done(edits.numbered(source, found.get("first", 1), found.get("last")))

    def _edit(self, workspace: Workspace, operation: Operation) -> Done:
        found = edits.arguments(operation.arguments, {"line": int, "text": str, "base": bool, "path": str})
        edits.required(found, "line", "text")
        return self._changed(workspace, operation, found, lambda s: edits.edit_line(s, found["line"], found["text"]))

    def _replace(self, workspace: Workspace, operation: Operation) -> Done:
        found = edits.arguments(operation.arguments, {"old": str, "new": str, "base": bool, "path": str})
        edits.required(found, "old", "new")
        return self._changed(workspace, operation, found, lambda s: edits.replace_text(s, found["old"], found["new"]))

    def _changed(
        self, workspace: Workspace, operation: Operation, found: dict[str, Any], change: Callable[[str], str]
    ) -> Done:
        """Apply a change to the current source (`base` true: to the fixture's own) and run the checks."""
        path = _path(workspace, found)
        start = dict(workspace.fixture.base_tree) if found.get("base") else dict(workspace.tree)
        if path not in start:
            raise Refusal(f"no file {path}")
        start[path] = change(start[path])
        workspace.tree = start
        return self._checked(workspace, operation)

    def _reset(self, workspace: Workspace, operation: Operation) -> Done:
        edits.arguments(operation.arguments, {})
        workspace.tree = dict(workspace.fixture.base_tree)
        return Done("ok")

    def _submit(self, workspace: Workspace, operation: Operation) -> Done:
        edits.arguments(operation.arguments, {})
        return Done(diff=render(workspace.fixture.base_tree, workspace.tree))

    def _checked(self, workspace: Workspace, operation: Operation) -> Done:
        known = self._known.get(workspace.fixture, workspace.tree)
        if known is not None:
            return Done(known.text, passed=known.passed)
        try:
            asked = checks.program_of(workspace.fixture, workspace.tree)
        except program.NoEntry as error:
            return Done(str(error), passed=False)
        server = workspace.server or self._launch(workspace)
        before = server.jail.cpu_s()
        transcript = server.run(asked, checks.calls(workspace.fixture), operation.cpu_s, operation.wall_s)
        after = server.jail.cpu_s()
        observation = checks.observe(workspace.fixture, transcript)
        if not server.usable:
            workspace.release()
            server.jail.close()
        if transcript.ending in _STABLE_ENDINGS:
            self._known.put(workspace.fixture, workspace.tree, observation)
        used = None if before is None or after is None else max(0.0, after - before)
        return Done(observation.text, passed=observation.passed, cpu_s=used)

    def _launch(self, workspace: Workspace) -> Server:
        """A fresh jail; one more try on another slot before it counts as a fault."""
        processes = 0 if self._host.counts_processes else self._limits.processes
        for tries in range(_LAUNCH_TRIES):
            try:
                jail = self._host.launch(self._limits)
                try:
                    workspace.server = Server(jail, self._limits, BOOT_S, processes)
                except JailFault:
                    jail.close()
                    raise
                return workspace.server
            except JailFault:
                if tries == _LAUNCH_TRIES - 1:
                    raise
        raise AssertionError("unreachable")


def _path(workspace: Workspace, found: Mapping[str, Any]) -> str:
    path = found.get("path")
    if path is None:
        with contextlib.suppress(program.NoEntry):
            path, _, _ = program.locate(workspace.tree, workspace.fixture.entry)
    if path is None or path not in workspace.tree:
        raise Refusal(f"no file {str(path)[:80]}; files: {' '.join(sorted(workspace.tree))[:200]}")
    return str(path)
