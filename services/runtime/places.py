"""Where a setting's value comes from: the command line before the environment before the file; mistakes name it."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.runtime.errors import UserError

PREFIX = "ROLLSTREAM_"
OTHERS = frozenset(
    {"CACHE", "CONFIG", "EXACT", "HEALTH_HOST", "HEALTH_PORT", "LEAK_SECRET", "PREPARE_WAIT", "PRINCIPAL", "REGISTRY"}
    | {"RUN", "SECRET", "SECRETS", "SEEDS", "STAY", "SUPERVISOR_PID", "TAG"}
)
"""Variables with our prefix that are no settings; those that begin with TEST_ are none either."""
Name = tuple[str, ...]
"""(section, key), or (key,) of a setting outside of the sections."""
Sections = Mapping[str, frozenset[str] | None]
"""Section -> its keys; a key outside of the sections -> None."""


@dataclass(frozen=True)
class Given:
    """One value and who gave it: a file's path, a variable's name, or the command line."""

    value: Any
    place: str


Layer = Mapping[Name, Given]


def flat(values: Mapping[str, Any], sections: Sections, place: str) -> dict[Name, Given]:
    """Nested values as a layer; what stands where a section should is kept for the types to refuse."""
    found: dict[Name, Given] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and sections.get(name) is not None:
            found.update({(name, str(key)): Given(inner, place) for key, inner in value.items()})
        else:
            found[(name,)] = Given(value, place)
    return found


def is_setting(variable: str) -> bool:
    """Whether a variable of the environment is (or should be) a setting."""
    rest = variable.upper().removeprefix(PREFIX)
    return rest != variable.upper() and rest not in OTHERS and not rest.startswith("TEST_")


def from_environment(environment: Mapping[str, str], sections: Sections) -> dict[Name, Given]:
    """The settings among the variables. Raises UserError for one that is misspelt: it would be silently ignored."""
    found: dict[Name, Given] = {}
    for variable, text in environment.items():
        if is_setting(variable):
            name = _named(variable, sections)
            if name is not None:
                found[name] = Given(text, variable)
    return found


def _named(variable: str, sections: Sections) -> Name | None:
    rest = variable[len(PREFIX) :].lower()
    section, parts, key = rest.partition("__")
    if parts:
        keys = sections.get(section)
        if keys is None:
            tables = [name for name, inner in sections.items() if inner is not None]
            raise _misspelt(variable, f"there is no section {section!r}", section, tables, f"{PREFIX}{{}}__{key}")
        if key not in keys:
            raise _misspelt(variable, f"[{section}] has no {key!r}", key, sorted(keys), f"{PREFIX}{section}__{{}}")
        return section, key
    if rest in sections:
        if sections[rest] is None:
            return (rest,)
        raise UserError(f"{rest!r} is a section", variable, f"set its keys: {PREFIX}{rest.upper()}__KEY")
    for name, inner in sections.items():  # one underscore instead of two
        if inner and rest.startswith(f"{name}_") and rest[len(name) + 1 :] in inner:
            right = f"{PREFIX}{name}__{rest[len(name) + 1 :]}".upper()
            raise UserError("one underscore between section and key", variable, f"write {right}")
    single = [name for name, inner in sections.items() if inner is None]
    if difflib.get_close_matches(rest, single, n=1, cutoff=0.75):
        raise _misspelt(variable, f"there is no setting {rest!r}", rest, single, f"{PREFIX}{{}}")
    return None  # somebody else's: Kubernetes makes such names from those of its services


def _misspelt(variable: str, what: str, word: str, known: list[str], form: str) -> UserError:
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    do = f"did you mean {form.format(near[0]).upper()}?" if near else f"one of: {', '.join(known)}"
    return UserError(what, variable, f"{do} (or unset it; nothing was started)")


def merged(layers: list[Layer]) -> dict[Name, Given]:
    """What counts, of layers from the weakest to the strongest; a whole section given at once replaces its keys."""
    found: dict[Name, Given] = {}
    for layer in layers:
        found.update(layer)
    return found


def nested(layer: Layer) -> dict[str, Any]:
    """The values as the types read them."""
    values: dict[str, Any] = {name[0]: given.value for name, given in layer.items() if len(name) == 1}
    for name, given in layer.items():
        if len(name) == 2 and isinstance(values.setdefault(name[0], {}), dict):
            values[name[0]][name[1]] = given.value
    return values


def overruled(layers: list[Layer]) -> list[str]:
    """`admission.max_lag is 3, by the command line (not 7, by ROLLSTREAM_…)` of every value that another one beat."""
    said = []
    for name, winner in merged(layers).items():
        given = [layer[name] for layer in layers if name in layer]
        others = [one for one in given if _plain(one.value) != _plain(winner.value)]
        if others:
            lost = ", ".join(f"{_shown(one)} by {one.place}" for one in reversed(others))
            said.append(f"{'.'.join(name)} is {_shown(winner)} by {winner.place} (not {lost})")
    return said


def _plain(value: Any) -> object:
    """For comparing a variable's text with a file's value: 0.50 is 0.5, and True is true."""
    text = str(value).strip()
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text.lower() if text.lower() in ("true", "false") else text


def _shown(given: Given) -> str:
    return str(given.value) or '""'
