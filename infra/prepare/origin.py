"""Which settings decide what a run starts from, so that two preparations of one run are never mixed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.runtime.errors import UserError
from services.runtime.settings import RunSettings

_NO_PART = {("tasks", "certificates"), ("tasks", "allow_uncertified"), ("coldstart", "max_wall_s")}
"""Settings of these sections that change neither the task set nor, but by chance, the base."""


def origin(settings: RunSettings) -> dict[str, Any]:
    """Dotted name -> value of every setting that decides task set and base; files and folders by their content."""
    out: dict[str, Any] = {"seed": settings.seed}
    for name in ("tasks", "model", "coldstart"):
        section = getattr(settings, name)
        out |= {f"{name}.{key}": value for key, value in section if (name, key) not in _NO_PART}
    if settings.tasks.source != "catalogue":
        out["tasks.source"] = _content(Path(settings.tasks.source), "tasks.source")
    if settings.model.base:
        out["model.base"] = _content(Path(settings.model.base), "model.base")
    plain: dict[str, Any] = json.loads(json.dumps(out))
    return plain


def _content(path: Path, setting: str) -> str:
    """`sha256:…` over a file, or over the names and bytes of a folder's files."""
    seen = hashlib.sha256()
    try:
        files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file())
        for file in files:
            with file.open("rb") as f:
                seen.update(
                    f"{file.name if file != path else ''}\0{hashlib.file_digest(f, 'sha256').hexdigest()}\n".encode()
                )
    except OSError as e:
        raise UserError(f"{path} cannot be read: {e}", setting, "mount it, or correct the path") from e
    return f"sha256:{seen.hexdigest()}"


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, for a person. Settings that only one of the two versions of the code knew do not count."""
    return [
        f"{name} was {was[name]!r}, is {now[name]!r}"
        for name in sorted(was.keys() & now.keys())
        if was[name] != now[name]
    ]
