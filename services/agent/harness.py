"""The harness as versioned data: tokenizer, template, grammar and limits that rollouts, gate and deployment share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from services.agent.grammar import GRAMMAR_VERSION
from services.agent.template import TEMPLATE_VERSION, Task, prompt_text
from services.agent.tokenizer import ACT, BEGIN, END, Ids, Tokenizer

HARNESS_FILE = "harness.json"
TOKENIZER_FILE = "tokenizer.json"
CONTEXT_VERSION = "context/1"


@dataclass(frozen=True)
class Limits:
    """At most `action_tokens` are sampled in a call; an observation is cut to `observation_chars`, then to
    `observation_tokens`; `context_tokens` is what the model can attend to."""

    action_tokens: int = 48
    observation_chars: int = 200
    observation_tokens: int = 72
    context_tokens: int = 512


@dataclass(frozen=True)
class Harness:
    """Everything between a fixture and ids, and between ids and an action. Edits apply to the fixture's own source."""

    tokenizer: Tokenizer
    limits: Limits = Limits()

    @classmethod
    def train(cls, tasks: Iterable[Task], vocabulary: int, limits: Limits | None = None) -> Harness:
        """A harness with a tokenizer trained on the prompts of `tasks`."""
        corpus = [text for task in tasks for text in (prompt_text(task), "edit 1: submit test read replace => ok")]
        return cls(Tokenizer.train(corpus, vocabulary), limits or Limits())

    @classmethod
    def load(cls, folder: Path) -> Harness:
        """From a checkpoint folder. Raises OSError, or ValueError for a harness that this code does not speak."""
        document = json.loads((folder / HARNESS_FILE).read_text(encoding="utf-8"))
        limits = Limits(**document.pop("limits"))
        harness = cls(Tokenizer.load(folder / TOKENIZER_FILE), limits)
        wanted = harness._versions()
        if document != wanted:
            raise ValueError(f"{folder / HARNESS_FILE}: made for {document}, this code speaks {wanted}")
        return harness

    def save(self, folder: Path) -> None:
        """Write `harness.json` and `tokenizer.json`."""
        (folder / HARNESS_FILE).write_text(self._document(), encoding="utf-8")
        self.tokenizer.save(folder / TOKENIZER_FILE)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a call when they are sampled."""
        return frozenset({END})

    @cached_property
    def template_digest(self) -> str:
        """`sha256:` + hex over template, grammar and context versions and the limits."""
        return "sha256:" + hashlib.sha256(self._document().encode()).hexdigest()

    def prompt_ids(self, task: Task) -> Ids:
        """The first prefix of a trial, ending where the policy acts."""
        return np.concatenate([[BEGIN], self.tokenizer.encode(prompt_text(task)), [ACT]]).astype(np.int32)

    def action_ids(self, text: str) -> Ids:
        """Ids of an action as the policy would sample it, stop token included (for supervised traces)."""
        return np.append(self.tokenizer.encode(text), END).astype(np.int32)

    def _versions(self) -> dict[str, str]:
        return {"template": TEMPLATE_VERSION, "grammar": GRAMMAR_VERSION, "context": CONTEXT_VERSION}

    def _document(self) -> str:
        return json.dumps({**self._versions(), "limits": asdict(self.limits)}, sort_keys=True, indent=1)
