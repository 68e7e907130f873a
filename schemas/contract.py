"""What a record's values must be beyond their types, compiled once per record type: it runs for every message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from schemas.bounds import Between
from schemas.record import FieldSpec, RecordType

_least, _most = np.minimum.reduce, np.maximum.reduce


class ContractViolation(ValueError):
    """A message that is not a legal record; `reason` is a short stable word for metrics and dead letters."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Contract:
    """Required values are there, words are declared ones, numbers and lengths within their bounds."""

    def __init__(self, kind: RecordType) -> None:
        self._kind = kind
        self._legal = _compiled(kind)

    def check(self, row: Sequence[Any]) -> None:
        """Raises ContractViolation for a row whose values have the right types and break what is declared of them."""
        if not self._legal(row):
            for index, value in enumerate(row):
                self._check_one(index, value)

    def _check_one(self, index: int, value: Any) -> None:
        spec = self._kind.fields[index]
        if value is None:
            if not spec.nullable:
                raise ContractViolation("null", f"{self._name(index)} is required and null")
            return
        if spec.at_most is not None and len(value) > spec.at_most:
            raise ContractViolation("long", f"{self._name(index)} has {len(value)}, over {spec.at_most}")
        bounds = spec.between
        if spec.kind in ("ids", "floats") and bounds is not None and not _array(value, bounds):
            raise ContractViolation("range", f"{self._name(index)} holds a value outside {bounds.low}..{bounds.high}")
        for one in value if spec.kind == "list" else (value,) if spec.kind == "scalar" else ():
            if not _item(one, spec):
                self._refuse(index, one)

    def _refuse(self, index: int, one: Any) -> None:
        spec = self._kind.fields[index]
        if spec.choices is not None:
            raise ContractViolation("value", f"{spec.name}={str(one)[:80]!r} is none of {sorted(spec.choices)}")
        if spec.between is not None:
            said = f"{one!r}, outside {spec.between.low}..{spec.between.high}"
            raise ContractViolation("range", f"{self._name(index)} is {said}")
        raise ContractViolation("long", f"{self._name(index)} holds a text of over {spec.item_at_most} characters")

    def _name(self, index: int) -> str:
        return f"{self._kind.name}.{self._kind.fields[index].name}"


def _item(one: Any, spec: FieldSpec) -> bool:
    """Whether one scalar, of a column or of a list, is legal."""
    if one is None:
        return spec.item_nullable
    if spec.choices is not None:
        return one in spec.choices
    if spec.between is not None:
        return bool(spec.between.low <= one <= spec.between.high)
    return spec.item_at_most is None or len(one) <= spec.item_at_most


def _items(values: Sequence[Any], spec: FieldSpec) -> bool:
    return len(values) <= (spec.at_most or len(values)) and all(_item(one, spec) for one in values)


def _array(values: Any, bounds: Between) -> bool:
    """Whether every number of an array is legal; of int32, no number is above the bounds."""
    if not len(values) or not bounds.low <= _least(values):
        return not len(values)
    return getattr(values, "dtype", None) == np.int32 or bool(_most(values) <= bounds.high)


def _compiled(kind: RecordType) -> Callable[[Sequence[Any]], bool]:
    """One expression over the row for all fields: a loop over them would take longer than reading the record."""
    known: dict[str, Any] = {"array": _array, "items": _items}
    terms = []
    for i, spec in enumerate(kind.fields):
        known |= {f"s{i}": spec, f"w{i}": spec.choices, f"b{i}": spec.between}
        tests = []
        if spec.kind in ("ids", "floats"):
            tests.append(f"array(r[{i}], b{i})")
        elif spec.kind == "list":
            tests.append(f"items(r[{i}], s{i})")
        elif spec.choices is not None:
            tests.append(f"r[{i}] in w{i}")
        elif spec.between is not None:
            tests.append(f"{spec.between.low!r} <= r[{i}] <= {spec.between.high!r}")
        elif spec.at_most is not None:
            tests.append(f"len(r[{i}]) <= {spec.at_most}")
        test = tests[0] if tests else "True"
        terms.append(f"(r[{i}] is None or {test})" if spec.nullable else f"r[{i}] is not None and {test}")
    # The text is made of our own declarations alone.
    return cast("Callable[[Sequence[Any]], bool]", eval(f"lambda r: {' and '.join(terms)}", known))
