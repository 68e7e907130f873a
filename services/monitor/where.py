"""Filters of `--where`: field, comparison, value, judged on a record's own fields or on where its message stands."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.runtime.errors import UserError

if TYPE_CHECKING:
    from services.monitor.source import Seen

_FORM = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*(!=|>=|<=|=)\s*(.*?)\s*", re.DOTALL)
_PLACE = ("topic", "partition", "offset", "timestamp_ms", "key", "size", "problem")


@dataclass(frozen=True)
class Condition:
    """`field op value`; a list field satisfies it when one of its items does (`!=`: when none equals)."""

    field: str
    op: str
    value: str

    def holds(self, seen: Seen) -> bool:
        """Whether the message satisfies it; a record without the field never does."""
        found, value = _look_up(seen, self.field)
        if not found:
            return False
        items: Iterable[Any] = value if _is_list(value) else (value,)
        if self.op == "!=":
            return all(not _equal(item, self.value) for item in items)
        if self.op == "=":
            return any(_equal(item, self.value) for item in items)
        return any(_ordered(item, self.op, self.value) for item in items)


def parse_where(text: str) -> Condition:
    """Parse `field=value` (also `!=`, `>=`, `<=`); raises UserError that states the form."""
    match = _FORM.fullmatch(text)
    if match is None:
        do = "write field=value (or !=, >=, <=), such as verdict=fail or reward>=0.5"
        raise UserError(f"{text!r} is no condition", "--where", do)
    field = match[1] if match[1].startswith("dlq.") else match[1].replace("-", "_")
    return Condition(field, match[2], match[3])


def require_fields(conditions: Sequence[Condition], topics: Sequence[str]) -> None:
    """UserError naming near fields when no record of these topics has a condition's field: it could never hold."""
    from schemas.topics import BY_NAME, DLQ_SUFFIX

    known = set(_PLACE)
    for topic in topics:
        declared = BY_NAME.get(topic.removesuffix(DLQ_SUFFIX))
        if declared is not None:
            known |= {field.name for field in declared.record.TYPE.fields}
    for condition in conditions:
        if condition.field in known or condition.field.startswith("dlq."):
            continue
        near = difflib.get_close_matches(condition.field, sorted(known), n=4, cutoff=0.5)
        hint = f"near fields: {', '.join(near)}" if near else f"fields: {', '.join(sorted(known))}"
        raise UserError(f"no record of {', '.join(topics)} has a field {condition.field!r}", "--where", hint)


def _look_up(seen: Seen, field: str) -> tuple[bool, Any]:
    if seen.record is not None and hasattr(seen.record, field):
        return True, getattr(seen.record, field)
    if field in _PLACE:
        return True, getattr(seen, field)
    if field in seen.headers:
        return True, seen.headers[field].decode(errors="replace")
    return False, None


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or hasattr(value, "dtype")


def _equal(value: Any, text: str) -> bool:
    if value is None:
        return text.lower() in ("none", "null", "")
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if isinstance(value, str):
        return value == text
    number = _as_number(text)
    return number is not None and float(value) == number


def _ordered(value: Any, op: str, text: str) -> bool:
    number = _as_number(text)
    if value is None or isinstance(value, (str, bool)) or number is None:
        return False
    return float(value) >= number if op == ">=" else float(value) <= number


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
