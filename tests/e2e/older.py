"""A service one minor schema version back: writes and reads exactly the columns of the released form before the newest.

`python -m tests.e2e.older up --service NAME …`: the record types are those of `schemas/history.json` without the last
minor version, with its fingerprints; everything else is the service as it is.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pyarrow as pa

import schemas
from schemas import topics
from schemas.record import REGISTRY, fingerprint

HISTORY = Path(schemas.__file__).with_name("history.json")


def step_back() -> dict[str, str]:
    """Give every record that has an earlier minor version that one's form; name -> fingerprint of what was changed."""
    assert topics.ALL, "imported for its records"
    changed = {}
    for name, forms in json.loads(HISTORY.read_text()).items():
        kind = REGISTRY[name]
        if len(forms) < 2:
            continue
        columns = [column[0] for column in forms[-2]["columns"]]
        fields = tuple(field for field in kind.fields if field.name in columns)
        older = dataclasses.replace(
            kind,
            fields=fields,
            schema=pa.schema([pa.field(f.name, f.arrow, nullable=f.nullable) for f in fields]),
            fingerprint=fingerprint(fields),
            aligned=tuple(group for group in kind.aligned if set(group) <= set(columns)),
            headers=tuple(header for header in kind.headers if header in columns),
        )
        assert older.fingerprint == forms[-2]["fingerprint"], f"{name}: not the released form"
        kind.cls.TYPE = REGISTRY[name] = older
        changed[name] = older.fingerprint
    return changed


if __name__ == "__main__":
    step_back()
    from services.cli import main

    sys.exit(main())
