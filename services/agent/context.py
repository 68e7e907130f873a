"""The context of one trial as a pure state machine: what the policy saw is the ids it was given, never text again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from services.agent.grammar import TOOLS, Action, Edit, Malformed, Replace, parse, tool_of
from services.agent.harness import Harness
from services.agent.template import Task, editable_path, indented_like
from services.agent.tokenizer import ACT, CONTROL_TOKENS, END, OBS, Ids

CUT_MARK = "..cut"


class ContextOverflow(RuntimeError):
    """Not even the prompt and the newest exchange fit into the model's context."""


@dataclass(frozen=True)
class Command:
    """A tool call for the sandbox; `arguments` is canonical JSON. An edit states the whole repair: `base` is true."""

    tool: str
    arguments: str


@dataclass(frozen=True)
class Appended:
    """What came behind the parent's prefix and sampled ids; with a `compaction` reason, the whole new prefix."""

    ids: Ids
    compaction: str | None


@dataclass(frozen=True)
class _Exchange:
    sampled: Ids
    appended: Ids


def prefix_digest(ids: Ids) -> str:
    """`sha256:` + hex over the ids as little-endian int32."""
    return "sha256:" + hashlib.sha256(np.ascontiguousarray(ids, dtype="<i4").tobytes()).hexdigest()


class TrialContext:
    """One trial attempt: `prefix` -> sample -> `after_invocation` -> run the command -> `observe` -> `prefix` …

    Deterministic: replaying the recorded sampled ids and observations gives the same prefixes.
    """

    def __init__(self, harness: Harness, task: Task) -> None:
        self._harness = harness
        self._path = editable_path(task)
        self._lines = task.base_tree[self._path].splitlines()
        self._tools = frozenset(task.tools)
        self._prompt = harness.prompt_ids(task)
        self._exchanges: list[_Exchange] = []
        self._sampled: Ids | None = None
        self.prefix: Ids = self._prompt
        if len(self.prefix) + harness.limits.action_tokens > harness.limits.context_tokens:
            raise ContextOverflow(f"a prompt of {len(self.prefix)} ids leaves no room for an action")

    @property
    def prefix_digest(self) -> str:
        """Digest of the prefix that the next call is given."""
        return prefix_digest(self.prefix)

    @property
    def room(self) -> int:
        """How many ids the next call may sample."""
        limits = self._harness.limits
        return min(limits.action_tokens, limits.context_tokens - len(self.prefix))

    def after_invocation(self, sampled: Sequence[int] | Ids) -> Action | Malformed:
        """Take the sampled ids of a call and say which action they are."""
        if self._sampled is not None:
            raise RuntimeError("the previous action has not been observed")
        self._sampled = np.asarray(sampled, dtype=np.int32)
        return self._read(self._sampled)

    def _read(self, ids: Ids) -> Action | Malformed:
        if len(ids) == 0 or ids[-1] != END:
            return Malformed(f"cut after {len(ids)} tokens")
        if (ids[:-1] < len(CONTROL_TOKENS)).any():
            return Malformed("control token in action")
        action = parse(self._harness.tokenizer.decode(ids[:-1]))
        if isinstance(action, Malformed):
            return action
        if tool_of(action) not in self._tools:
            offered = " ".join(tool for tool in TOOLS if tool in self._tools)
            return Malformed(f"{tool_of(action)} is not offered; tools: {offered}")
        if isinstance(action, Edit) and action.line > len(self._lines):
            return Malformed(f"no line {action.line}; the last is {len(self._lines)}")
        return action

    def command(self, action: Action) -> Command:
        """The sandbox operation of an action."""
        arguments: dict[str, Any] = {}
        if isinstance(action, Edit):
            text = indented_like(self._lines[action.line - 1], action.text)
            arguments = {"line": action.line, "text": text, "base": True, "path": self._path}
        elif isinstance(action, Replace):
            arguments = {"old": action.old, "new": action.new, "base": True, "path": self._path}
        return Command(tool_of(action), json.dumps(arguments, sort_keys=True, separators=(",", ":")))

    def observe(self, observation: str) -> Appended:
        """Append what the tool (or the parser) answered. Raises ContextOverflow when nothing more can be dropped."""
        if self._sampled is None:
            raise RuntimeError("there is no action to observe")
        self._exchanges.append(_Exchange(self._sampled, self._observation_ids(observation)))
        parent, self._sampled = self._sampled, None
        limits = self._harness.limits
        grown = len(self.prefix) + len(parent) + len(self._exchanges[-1].appended)
        if grown + limits.action_tokens <= limits.context_tokens:
            self.prefix = np.concatenate([self.prefix, parent, self._exchanges[-1].appended])
            return Appended(self._exchanges[-1].appended, None)
        return self._compact(grown)

    def _compact(self, grown: int) -> Appended:
        limits = self._harness.limits
        dropped = 0
        while self._length() + limits.action_tokens > limits.context_tokens:
            if len(self._exchanges) == 1:
                raise ContextOverflow(f"prompt and newest exchange: {self._length()} of {limits.context_tokens} ids")
            del self._exchanges[0]
            dropped += 1
        parts = [part for exchange in self._exchanges for part in (exchange.sampled, exchange.appended)]
        self.prefix = np.concatenate([self._prompt, *parts])
        reason = f"{grown} ids and {limits.action_tokens} to sample exceed {limits.context_tokens}"
        return Appended(self.prefix, f"dropped the {dropped} oldest exchanges: {reason}")

    def _length(self) -> int:
        return len(self._prompt) + sum(len(e.sampled) + len(e.appended) for e in self._exchanges)

    def _observation_ids(self, observation: str) -> Ids:
        limits = self._harness.limits
        text = observation
        if len(text) > limits.observation_chars:
            text = text[: limits.observation_chars] + CUT_MARK
        ids = self._harness.tokenizer.encode(text)
        if len(ids) > limits.observation_tokens:
            mark = self._harness.tokenizer.encode(CUT_MARK)
            ids = np.concatenate([ids[: limits.observation_tokens - len(mark)], mark])
        # A call that a limit cut has no stop token of its own; it is closed here, outside of what is scored.
        closed = self._sampled is not None and len(self._sampled) > 0 and self._sampled[-1] == END
        head = [OBS] if closed else [END, OBS]
        return np.concatenate([head, ids, [ACT]]).astype(np.int32)
