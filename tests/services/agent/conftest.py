"""A small task and a harness trained on it, without the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from services.agent.harness import Harness, Limits
from services.agent.tokenizer import Tokenizer

SOURCE = "def total(xs):\n    out = 1\n    for x in xs:\n        out += x\n    return out\n"


@dataclass(frozen=True)
class SmallTask:
    base_tree: Mapping[str, str] = field(default_factory=lambda: {"solution.py": SOURCE, "notes.md": "none"})
    allowed_globs: tuple[str, ...] = ("*.py",)
    tools: tuple[str, ...] = ("test", "read", "edit", "submit")
    first_failure: str = "FAIL [] want 0 got 1"


@pytest.fixture(scope="session")
def task() -> SmallTask:
    return SmallTask()


@pytest.fixture(scope="session")
def harness(task: SmallTask) -> Harness:
    limits = Limits(action_tokens=32, observation_chars=80, observation_tokens=32, context_tokens=200)
    return Harness.train([task], 300, limits)


@pytest.fixture(scope="session")
def tokenizer(harness: Harness) -> Tokenizer:
    return harness.tokenizer
