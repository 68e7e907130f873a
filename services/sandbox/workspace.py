"""One trial attempt's workspace: the source as text on this side, and a warm jail that only ever runs checks.

The jail cannot alter the source, so the diff that is submitted is what the edits made and nothing else; a jail that
broke or was given up for another workspace is replaced at the next run without the policy noticing. Every run starts
from a jail that is fresh or was reset and proved clean (pool.py), so that no run leaves anything to the next one.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from services.patch.render import render
from services.runtime.jail import program
from services.runtime.jail.limits import JailFault
from services.runtime.jail.session import Program, Transcript
from services.sandbox import checks, edits
from services.sandbox.checks import Observation
from services.sandbox.edits import Refusal
from services.sandbox.pool import Pool
from services.sandbox.reset import Warm
from services.tasks.fixture import Fixture, content_digest
from services.watch import probes

Edit = tuple[str, str]
"""Tool and arguments of an operation."""
_STABLE_ENDINGS = frozenset({"complete", "limit"})


@dataclass
class Workspace:
    """State of one attempt. `tree` changes only through `Operator`; `warm` is the live jail, if there is one."""

    trial_id: str
    attempt: int
    partition: int
    generation: str
    fixture: Fixture
    tree: dict[str, str] = field(default_factory=dict)
    warm: Warm | None = None

    def __post_init__(self) -> None:
        self.tree = dict(self.fixture.base_tree)

    def release(self) -> Warm | None:
        """Take the live jail away; the caller gives it back or closes it."""
        warm, self.warm = self.warm, None
        return warm


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
    findings: tuple[str, ...] = ()


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
    return fixture.digest, content_digest([[path, tree[path]] for path in sorted(tree)])


class Operator:
    """Carries out operations; thread-safe as long as no workspace has two at once."""

    def __init__(self, pool: Pool, known: Known) -> None:
        self._pool = pool
        self._known = known
        self._tools: dict[str, Callable[[Workspace, Operation], Done]] = {
            "test": self._test,
            "read": self._read,
            "edit": self._changed,
            "replace": self._changed,
            "reset": self._reset,
            "submit": self._submit,
        }

    def operate(self, workspace: Workspace, operation: Operation, history: Sequence[Edit] = ()) -> Done:
        """Carry out one operation, in a workspace that is new and had `history` done to it before it was lost.

        Never raises for anything that the policy or the candidate does.
        """
        for tool, arguments in history:
            self._redo(workspace, tool, arguments)
        found = probes.in_tool_call(operation.tool, operation.arguments, workspace.tree)
        return replace(self._operate(workspace, operation), findings=found)

    def _operate(self, workspace: Workspace, operation: Operation) -> Done:
        tool = self._tools.get(operation.tool)
        try:
            if tool is None or not _offered(workspace, operation.tool):
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

    def _changed(self, workspace: Workspace, operation: Operation) -> Done:
        """Change the source and run the checks on it."""
        workspace.tree = _CHANGES[operation.tool](workspace, operation.arguments)
        return self._checked(workspace, operation)

    def _reset(self, workspace: Workspace, operation: Operation) -> Done:
        workspace.tree = _CHANGES["reset"](workspace, operation.arguments)
        return Done("ok")

    def _redo(self, workspace: Workspace, tool: str, arguments: str) -> None:
        """What an earlier operation did to the source. Its checks need not run: they change nothing."""
        change = _CHANGES.get(tool)
        if change is not None and _offered(workspace, tool):
            with contextlib.suppress(Refusal):  # as it was refused then
                workspace.tree = change(workspace, arguments)

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
        warm = self._warm(workspace)
        before = warm.server.jail.cpu_s()
        transcript = self._run(warm, workspace.fixture, asked, operation)
        after = warm.server.jail.cpu_s()
        observation = checks.observe(workspace.fixture, transcript)
        if not warm.server.usable:
            workspace.release()
            warm.close()
        if transcript.ending in _STABLE_ENDINGS:
            self._known.put(workspace.fixture, workspace.tree, observation)
        used = None if before is None or after is None else max(0.0, after - before)
        return Done(observation.text, passed=observation.passed, cpu_s=used)

    def _run(self, warm: Warm, fixture: Fixture, asked: Program, operation: Operation) -> Transcript:
        """Run the checks; files that the jail shows already are not sent again."""
        sent = {path: text for path, text in asked.files.items() if warm.files.get(path) != text}
        warm.runs += 1
        program_sent = replace(asked, files=sent)
        return warm.server.run(program_sent, checks.calls(fixture), operation.cpu_s, operation.wall_s)

    def _warm(self, workspace: Workspace) -> Warm:
        """The workspace's jail if it can be made clean, else another. Raises JailFault."""
        warm = workspace.warm
        if warm is not None and not self._pool.clean(warm):
            workspace.release()
            warm.close()
            warm = None
        if warm is None:
            fixture = workspace.fixture
            warm = workspace.warm = self._pool.take(fixture.base_tree, fixture.digest, fixture.hosts)
        return warm

    def let_go(self, warm: Warm) -> None:
        """A workspace that is gone, or has waited longest, gives its jail back."""
        self._pool.give(warm)

    @property
    def short(self) -> bool:
        """Whether the pool wants more jails."""
        return self._pool.short

    def fill(self) -> bool:
        """Start one more jail for the pool, if one is wanted; whether to ask again."""
        return self._pool.fill()


def _offered(workspace: Workspace, tool: str) -> bool:
    return tool in workspace.fixture.tools or tool in ("reset", "submit")


def _line_edited(workspace: Workspace, arguments: str) -> dict[str, str]:
    found = edits.arguments(arguments, {"line": int, "text": str, "base": bool, "path": str})
    edits.required(found, "line", "text")
    return _with(workspace, found, lambda source: edits.edit_line(source, found["line"], found["text"]))


def _text_replaced(workspace: Workspace, arguments: str) -> dict[str, str]:
    found = edits.arguments(arguments, {"old": str, "new": str, "base": bool, "path": str})
    edits.required(found, "old", "new")
    return _with(workspace, found, lambda source: edits.replace_text(source, found["old"], found["new"]))


def _base(workspace: Workspace, arguments: str) -> dict[str, str]:
    edits.arguments(arguments, {})
    return dict(workspace.fixture.base_tree)


_CHANGES: dict[str, Callable[[Workspace, str], dict[str, str]]] = {
    "edit": _line_edited,
    "replace": _text_replaced,
    "reset": _base,
}
"""What the tools that change the source make of it: a function of the source and the arguments. Each raises Refusal."""


def _with(workspace: Workspace, found: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, str]:
    """The source (`base` true: the fixture's own) with one file changed."""
    path = _path(workspace, found)
    tree = dict(workspace.fixture.base_tree) if found.get("base") else dict(workspace.tree)
    if path not in tree:
        raise Refusal(f"no file {path}")
    tree[path] = change(tree[path])
    return tree


def _path(workspace: Workspace, found: Mapping[str, Any]) -> str:
    path = found.get("path")
    if path is None:
        with contextlib.suppress(program.NoEntry):
            path, _, _ = program.locate(workspace.tree, workspace.fixture.entry)
    if path is None or path not in workspace.tree:
        raise Refusal(f"no file {str(path)[:80]}; files: {' '.join(sorted(workspace.tree))[:200]}")
    return str(path)
