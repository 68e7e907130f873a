"""Reads infra/images/Dockerfile: which stages there are, and what ends up in the image of each target."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "infra" / "images"


@dataclass
class Stage:
    """One FROM and what follows it: instructions as (word, rest) pairs."""

    name: str
    parent: str
    steps: list[tuple[str, str]] = field(default_factory=list)


def stages(text: str | None = None) -> dict[str, Stage]:
    """All stages, in order."""
    lines = re.sub(r"\\\n\s*", " ", text or (IMAGES / "Dockerfile").read_text()).splitlines()
    found: dict[str, Stage] = {}
    stage: Stage | None = None
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        word, rest = line.strip().split(maxsplit=1)
        if word == "FROM":
            parent, _, name = rest.partition(" AS ")
            stage = found[name.strip()] = Stage(name.strip(), parent.strip())
        elif stage is not None:
            stage.steps.append((word, rest))
    return found


def chain(name: str) -> list[Stage]:
    """A stage after everything that it was made from."""
    every = stages()
    out = [every[name]]
    while out[0].parent in every:
        out.insert(0, every[out[0].parent])
    return out


def last(name: str, word: str) -> str:
    """The instruction of this kind that holds for the image of a target; empty where there is none."""
    found = [rest for stage in chain(name) for step, rest in stage.steps if step == word]
    return found[-1] if found else ""


def parts(name: str) -> set[str]:
    """What the image of a target holds below /opt/rollstream: names of library folders and of parts of our code."""
    copies = [rest for stage in chain(name) for step, rest in stage.steps if step == "COPY"]
    return {
        m[1] for rest in copies if (m := re.search(r"--from=\S+ /(?:parts|libraries)/(\w+) /opt/rollstream$", rest))
    }


def targets() -> dict[str, list[str]]:
    """The targets for services and preparation, each with its container's command."""
    return {name: json.loads(last(name, "CMD")) for name in stages() if last(name, "CMD")}
