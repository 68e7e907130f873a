"""Settings of a command line: `--set section.key=value`, checked for existence before anything else happens."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from services.runtime.errors import UserError
from services.runtime.settings import SECTIONS, RunSettings, Section
from services.runtime.toml import value_of


def parse_overrides(pairs: Iterable[str], note: Callable[[str], None]) -> dict[str, Any]:
    """`section.key=value` and `key=value` pairs as nested settings; of one given twice the last counts, and `note` is
    told. UserError names a pair that is none, and a setting that does not exist."""
    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        section, dot, key = name.strip().partition(".")
        if not equals or not section or (dot and not key):
            raise UserError(f"--set {pair!r} is no section.key=value", do="for example --set dispatch.updates=40")
        known = SECTIONS.get(section, frozenset())
        if section not in SECTIONS or (dot and key not in (known or ())) or (not dot and known is not None):
            raise UserError(f"there is no setting {name.strip()!r}", f"--set {pair}", _near(section, key))
        if section == "run_dir":
            raise UserError("the run's folder is no setting of its own", f"--set {pair}", "give --run-dir")
        place = out.setdefault(section, {}) if dot else out
        value = value_of(text.strip(), as_text=_is_text(section, key))
        if (key or section) in place and place[key or section] != value:
            note(f"--set {name.strip()} was given twice: the last one counts, {text.strip()}")
        place[key or section] = value
    return out


def _is_text(section: str, key: str) -> bool:
    kind = RunSettings.model_fields[section].annotation
    if key and isinstance(kind, type) and issubclass(kind, Section):
        kind = kind.model_fields[key].annotation
    return kind is str


def _near(section: str, key: str) -> str:
    known = [f"{name}.{one}" for name, keys in SECTIONS.items() for one in keys or ()]
    known += [name for name, keys in SECTIONS.items() if keys is None]
    near = difflib.get_close_matches(f"{section}.{key}" if key else section, known, n=3, cutoff=0.6)
    return f"near names: {', '.join(near)}" if near else "see the settings in README.md"
