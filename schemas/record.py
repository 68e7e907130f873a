"""Turns a frozen dataclass into a versioned Arrow record type with a fingerprint."""

from __future__ import annotations

import dataclasses
import hashlib
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.bounds import INT32, AtMost, Between, Unbounded

Ids = Annotated[npt.NDArray[np.int32], "ids"]
"""Token ids or counts, shape (n,), int32, never negative; decoded without a copy from the message's own bytes."""
Floats = Annotated[npt.NDArray[np.float32], "floats"]
"""Per-token log-probabilities (nats), shape (n,), float32, finite; decoded without a copy (read-only)."""
_ARRAYS = {"ids": Between(0, INT32), "floats": Between(-1e6, 1.0)}  # rounding can leave a little above 0

_SCALARS: dict[Any, pa.DataType] = {
    str: pa.utf8(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}


class SchemaError(TypeError):
    """A record class declares a field that has no place on the wire."""


@dataclass(frozen=True)
class FieldSpec:
    """One column: its Arrow type, whether null is allowed, and which values are legal (bounds are not on the wire)."""

    name: str
    kind: str  # scalar | ids | floats | list
    arrow: pa.DataType
    nullable: bool
    item_nullable: bool = False
    choices: frozenset[str] | None = None
    between: Between | None = None  # of a number, or of each number in a list
    at_most: int | None = None  # characters, bytes or items
    item_at_most: int | None = None  # characters of each text in a list
    unbounded: bool = False  # a number of which nothing is promised, on purpose


@dataclass(frozen=True)
class RecordType:
    """The wire form of one record class: name, major version, columns and contract."""

    name: str
    version: int
    cls: type[Any]
    fields: tuple[FieldSpec, ...]
    schema: pa.Schema
    fingerprint: str
    aligned: tuple[tuple[str, ...], ...]
    headers: tuple[str, ...]

    @property
    def dataschema(self) -> str:
        """The header value that names the schema: `name/version#fingerprint16`."""
        return f"{self.name}/{self.version}#{self.fingerprint[:16]}"


class Record:
    """Base of all records; `TYPE` is filled in by the `record` decorator."""

    TYPE: ClassVar[RecordType]
    __slots__ = ()


R = TypeVar("R", bound=type[Record])


def _field_spec(name: str, hint: Any) -> FieldSpec:
    nullable = False
    if typing.get_origin(hint) in (Union, types.UnionType):
        members = [m for m in typing.get_args(hint) if m is not type(None)]
        if len(members) != 1:
            raise SchemaError(f"{name}: a union of {members} has no place on the wire")
        nullable, hint = True, members[0]
    if hint in (Ids, Floats):
        kind = typing.get_args(hint)[1]
        item = pa.int32() if kind == "ids" else pa.float32()
        arrow = pa.list_(pa.field("item", item, nullable=False))
        return FieldSpec(name, kind, arrow, nullable, between=_ARRAYS[kind])
    said: list[Any] = []
    if typing.get_origin(hint) is Annotated:
        hint, *said = typing.get_args(hint)
    between = next((one for one in said if isinstance(one, Between)), None)
    at_most = next((one.count for one in said if isinstance(one, AtMost)), None)
    if typing.get_origin(hint) is Literal:
        return FieldSpec(name, "scalar", pa.utf8(), nullable, choices=frozenset(typing.get_args(hint)))
    if typing.get_origin(hint) is tuple:
        (inner, ellipsis) = typing.get_args(hint)
        if ellipsis is not Ellipsis:
            raise SchemaError(f"{name}: only tuple[X, ...] is a list on the wire")
        item = _field_spec(name, inner)
        if item.kind != "scalar":
            raise SchemaError(f"{name}: lists hold scalars")
        arrow = pa.list_(pa.field("item", item.arrow, nullable=item.nullable))
        return FieldSpec(
            name, "list", arrow, nullable, item.nullable, item.choices, item.between, at_most, item.at_most
        )
    if hint not in _SCALARS:
        raise SchemaError(f"{name}: {hint!r} has no place on the wire")
    free = any(isinstance(one, Unbounded) for one in said)
    return FieldSpec(name, "scalar", _SCALARS[hint], nullable, between=between, at_most=at_most, unbounded=free)


def fingerprint(fields: tuple[FieldSpec, ...]) -> str:
    """SHA-256 over the canonical text of (name, type, nullable) in order; metadata never enters."""
    text = "\n".join(f"{f.name}\t{f.arrow}\t{'null' if f.nullable else 'required'}" for f in fields)
    return hashlib.sha256(text.encode()).hexdigest()


REGISTRY: dict[str, RecordType] = {}


def record(
    name: str,
    version: int = 1,
    *,
    aligned: tuple[tuple[str, ...], ...] = (),
    headers: tuple[str, ...] = (),
) -> Callable[[R], R]:
    """Declare a dataclass as the record `name` of major `version`.

    `aligned` names groups of list fields that must have equal length; `headers` names the scalar fields that are
    copied into message headers so that a person can filter without decoding. Raises SchemaError for a field without a
    wire type.
    """

    def apply(cls: R) -> R:
        hints = typing.get_type_hints(cls, include_extras=True)
        names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]  # applied above @dataclass only
        fields = tuple(_field_spec(n, hints[n]) for n in names)
        schema = pa.schema([pa.field(f.name, f.arrow, nullable=f.nullable) for f in fields])
        cls.TYPE = RecordType(name, version, cls, fields, schema, fingerprint(fields), aligned, headers)
        REGISTRY[f"{name}/{version}"] = cls.TYPE
        return cls

    return apply
