"""The evolution rule: within a major version a schema only grows nullable fields at its end, and history says so.

`python -m schemas.evolution` appends the present form of every schema that changed legally to `history.json` and writes
its golden example; an illegal change is refused with the field that breaks the rule.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.codec import encode
from schemas.record import REGISTRY, FieldSpec, Record, RecordType

FOLDER = Path(__file__).parent
HISTORY = FOLDER / "history.json"
GOLDEN = FOLDER / "golden"
MODULES = ("schemas.rollout", "schemas.sandbox", "schemas.verification", "schemas.group", "schemas.policy")

Columns = list[list[str]]


class EvolutionError(ValueError):
    """A schema changed in a way that old or new readers cannot follow; it needs a new major version (topic `.vN`)."""


def all_types() -> dict[str, RecordType]:
    """Every declared record type, by `name/version`."""
    for module in MODULES:
        importlib.import_module(module)
    return dict(sorted(REGISTRY.items()))


def columns(kind: RecordType) -> Columns:
    """(name, type, `null` or `required`) of each column in order: what the fingerprint is taken over."""
    return [[f.name, str(f.arrow), "null" if f.nullable else "required"] for f in kind.fields]


def check_step(key: str, old: Columns, new: Columns) -> None:
    """Raise EvolutionError unless `new` is `old` plus nullable columns at the end."""
    for index, before in enumerate(old):
        if index >= len(new):
            raise EvolutionError(f"{key}: column {before[0]!r} was removed")
        if new[index] != before:
            raise EvolutionError(f"{key}: column {index} was {before} and is {new[index]}")
    for added in new[len(old) :]:
        if added[2] != "null":
            raise EvolutionError(f"{key}: new column {added[0]!r} must allow null, since older messages lack it")


def load_history() -> dict[str, list[dict[str, Any]]]:
    """`name/version` -> its released minor forms, oldest first: {fingerprint, columns}."""
    if not HISTORY.exists():
        return {}
    loaded: dict[str, list[dict[str, Any]]] = json.loads(HISTORY.read_text())
    return loaded


def _value(spec: FieldSpec, index: int) -> Any:
    if spec.kind == "ids":
        return np.arange(3, dtype=np.int32) + index
    if spec.kind == "floats":
        return -np.linspace(0.25, 0.75, 3, dtype=np.float32)
    if spec.choices:
        choice = sorted(spec.choices)[0]
        return (choice,) * 3 if spec.kind == "list" else choice
    arrow = spec.arrow.value_type if spec.kind == "list" else spec.arrow
    by_type: dict[Any, Any] = {
        pa.utf8(): f"{spec.name}-{index}",
        pa.int64(): index + 1,
        pa.float64(): index / 4 + 0.5,
        pa.bool_(): True,
        pa.binary(): bytes([index % 256]),
    }
    one = by_type[arrow]
    return (one,) * 3 if spec.kind == "list" else one


def example(kind: RecordType) -> Record:
    """A record with a telling value in every column, the same at every call."""
    made: Record = kind.cls(**{f.name: _value(f, i) for i, f in enumerate(kind.fields)})
    return made


def same(left: Record, right: Record) -> bool:
    """Field-wise equality that compares arrays by content."""
    if type(left) is not type(right):
        return False
    for field in dataclasses.fields(left):  # type: ignore[arg-type]  # every Record is a dataclass
        a, b = getattr(left, field.name), getattr(right, field.name)
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            if not np.array_equal(a, b):
                return False
        elif a != b:
            return False
    return True


def golden_path(key: str, minor: int) -> Path:
    """File of the golden example of minor form `minor` (from 0) of `name/version`."""
    return GOLDEN / f"{key.replace('/', '-v')}.{minor}.arrows"


def main() -> int:
    """Append legal changes to the history; returns the exit code."""
    history = load_history()
    GOLDEN.mkdir(exist_ok=True)
    for key, kind in all_types().items():
        forms = history.setdefault(key, [])
        if forms and forms[-1]["fingerprint"] == kind.fingerprint:
            continue
        try:
            if forms:
                check_step(key, forms[-1]["columns"], columns(kind))
        except EvolutionError as e:
            print(
                f"{e}\nA breaking change is a new major version and a new topic; nothing was written.", file=sys.stderr
            )
            return 1
        forms.append({"fingerprint": kind.fingerprint, "columns": columns(kind)})
        golden_path(key, len(forms) - 1).write_bytes(encode(example(kind)))
        print(f"{key}: form {len(forms) - 1} recorded")
    HISTORY.write_text(json.dumps(history, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
