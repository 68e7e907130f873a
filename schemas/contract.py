"""What a record's values must be beyond their types, compiled once per record type: it runs for every message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
        fields = list(enumerate(kind.fields))
        self._required = [i for i, f in fields if not f.nullable]
        self._words = [(i, f.choices, f) for i, f in fields if f.choices is not None]
        self._sized = [(i, f.at_most) for i, f in fields if f.at_most is not None]
        bounded = [(i, f.between, f) for i, f in fields if f.between is not None]
        self._numbers = [(i, b.low, b.high) for i, b, f in bounded if f.kind == "scalar"]
        self._lists = [(i, b, f) for i, b, f in bounded if f.kind == "list"]
        self._texts = [(i, f.item_at_most) for i, f in fields if f.item_at_most is not None]
        self._ids = [(i, b.low, b.high) for i, b, f in bounded if f.kind in ("ids", "floats")]

    def present(self, row: Sequence[Any]) -> None:
        """Raises ContractViolation when a required value is null."""
        for i in self._required:
            if row[i] is None:
                raise ContractViolation("null", f"{self._name(i)} is required and null")

    def check(self, row: Sequence[Any]) -> None:
        """Raises ContractViolation for values of the right types that break what is declared of them."""
        for i, choices, spec in self._words:
            if row[i] is not None:
                _check_words(spec, choices, row[i])
        for i, most in self._sized:
            if row[i] is not None and len(row[i]) > most:
                raise ContractViolation("long", f"{self._name(i)} has {len(row[i])}, over {most}")
        for i, low, high in self._numbers:
            value = row[i]
            if value is not None and not low <= value <= high:
                raise ContractViolation("range", f"{self._name(i)}={value!r} is outside {low}..{high}")
        for i, low, high in self._ids:
            values = row[i]
            if values is not None and len(values) and not (low <= _least(values) and _most(values) <= high):
                raise ContractViolation("range", f"{self._name(i)} holds a value outside {low}..{high}")
        for i, bounds, spec in self._lists:
            if row[i] is not None:
                _check_items(spec, bounds, row[i])
        for i, most in self._texts:
            if row[i] is not None and any(one is not None and len(one) > most for one in row[i]):
                raise ContractViolation("long", f"{self._name(i)} holds a text of over {most} characters")

    def _name(self, index: int) -> str:
        return f"{self._kind.name}.{self._kind.fields[index].name}"


def _check_words(spec: FieldSpec, choices: frozenset[str], value: Any) -> None:
    for one in value if spec.kind == "list" else (value,):
        if one not in choices and not (one is None and spec.item_nullable):
            raise ContractViolation("value", f"{spec.name}={str(one)[:80]!r} is none of {sorted(choices)}")


def _check_items(spec: FieldSpec, bounds: Between, values: Sequence[Any]) -> None:
    for one in values:
        if one is not None and not bounds.low <= one <= bounds.high:
            raise ContractViolation("range", f"{spec.name} holds {one!r}, outside {bounds.low}..{bounds.high}")
