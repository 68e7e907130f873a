"""Encodes a record as one self-describing Arrow IPC stream and decodes it with every contract check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import pyarrow as pa

from schemas.form import FieldError, Form
from schemas.record import FieldSpec, Record, RecordType

CONTENT_TYPE = "application/vnd.apache.arrow.stream"
MAX_BYTES = 8 * 1024 * 1024
"""Largest value that is decoded or encoded (bytes); larger facts go to the object store as a claim check."""

T = TypeVar("T", bound=Record)
Headers = Sequence[tuple[str, bytes]]


class ContractViolation(ValueError):
    """A message that is not a legal record; `reason` is a short stable word for metrics and dead letters."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def _check_value(spec: FieldSpec, value: Any) -> None:
    if spec.choices is None or value is None:
        return
    values: Iterable[Any] = value if spec.kind == "list" else (value,)
    for one in values:
        if one not in spec.choices and not (one is None and spec.item_nullable):
            raise ContractViolation("value", f"{spec.name}={one!r} is none of {sorted(spec.choices)}")


def _check_row(kind: RecordType, row: list[Any]) -> None:
    """Required values are there, words are among the declared ones: before writing, and after either way of reading."""
    for spec, value in zip(kind.fields, row, strict=True):
        if value is None and not spec.nullable:
            raise ContractViolation("null", f"{kind.name}.{spec.name} is required and null")
        if spec.choices is not None:
            _check_value(spec, value)


def _check_aligned(kind: RecordType, lengths: Mapping[str, int | None]) -> None:
    for group in kind.aligned:
        present = {name: lengths[name] for name in group if lengths[name] is not None}
        if len(set(present.values())) > 1:
            raise ContractViolation("length", f"{kind.name}: lists differ in length: {present}")


def _length(value: Any) -> int | None:
    return None if value is None else len(value)


_FORMS: dict[type[Any], Form] = {}


def _form(kind: RecordType) -> Form:
    found = _FORMS.get(kind.cls)
    if found is None:
        found = _FORMS[kind.cls] = Form(kind, cast(bytes, kind.schema.serialize().to_pybytes()))
    return found


def encode(record: Record, max_bytes: int = MAX_BYTES) -> bytes:
    """Encode one record as a complete Arrow IPC stream: schema, exactly one batch, end marker.

    Raises ContractViolation when a value breaks the declared contract or the result exceeds `max_bytes`.
    """
    kind = record.TYPE
    values = [getattr(record, spec.name) for spec in kind.fields]
    _check_row(kind, values)
    try:
        raw = _form(kind).message(values)
    except FieldError as e:
        raise ContractViolation("type", f"{kind.name}.{e}") from e
    if kind.aligned:
        names = {n for group in kind.aligned for n in group}
        _check_aligned(kind, {n: _length(getattr(record, n)) for n in names})
    if len(raw) > max_bytes:
        raise ContractViolation("size", f"{kind.name} takes {len(raw)} bytes, over {max_bytes}")
    return raw


def headers(record: Record, extra: Mapping[str, str] | None = None) -> list[tuple[str, bytes]]:
    """The facts a person filters by, as message headers (UTF-8 text); null fields are left out."""
    kind = record.TYPE
    out = [("content-type", CONTENT_TYPE.encode()), ("ce_dataschema", kind.dataschema.encode())]
    for name in kind.headers:
        value = getattr(record, name)
        if value is not None:
            out.append((f"rlvr-{name.replace('_', '-')}", str(value).encode()))
    out.extend((name, value.encode()) for name, value in (extra or {}).items())
    return out


def _general_form(raw: bytes) -> pa.RecordBatch:
    reader = pa.ipc.open_stream(pa.py_buffer(raw))
    try:
        batch = reader.read_next_batch()
    except StopIteration:
        raise ContractViolation("batches", "no record batch in the message") from None
    try:
        reader.read_next_batch()
    except StopIteration:
        return batch
    raise ContractViolation("batches", "more than one record batch in the message")


def _read_batch(raw: bytes) -> pa.RecordBatch:
    try:
        batch = _general_form(raw)
        batch.validate(full=True)
    except ContractViolation:
        raise
    except (pa.ArrowException, OSError, ValueError) as e:
        raise ContractViolation("undecodable", str(e)[:300]) from e
    if batch.num_rows != 1:
        raise ContractViolation("rows", f"{batch.num_rows} rows; a message is exactly one record")
    return batch


_WIDENINGS = {("int32", "int64"), ("float", "double")}


def _columns(batch: pa.RecordBatch, kind: RecordType) -> list[pa.Array | None]:
    """The reader's columns in its own order, found by name, checked by type; None for an absent nullable one."""
    found: list[pa.Array | None] = []
    for spec in kind.fields:
        index = batch.schema.get_field_index(spec.name)
        if index < 0:
            if not spec.nullable:
                raise ContractViolation("missing", f"{kind.name}.{spec.name} is required and not in the message")
            found.append(None)
            continue
        column = batch.column(index)
        if column.type != spec.arrow and (str(column.type), str(spec.arrow)) not in _WIDENINGS:
            raise ContractViolation("type", f"{kind.name}.{spec.name} is {column.type}, not {spec.arrow}")
        found.append(column)
    return found


def _project(spec: FieldSpec, column: pa.Array | None, kind: RecordType) -> Any:
    """The one value of a column that Arrow read; what the contract says of it is checked with the whole row."""
    if column is None or column.null_count:
        return None
    if spec.kind == "scalar":
        return column[0].as_py()
    items = column[0].values
    if items.null_count and not spec.item_nullable:
        raise ContractViolation("null", f"{kind.name}.{spec.name} holds a null item")
    return tuple(items.to_pylist()) if spec.kind == "list" else items.to_numpy(zero_copy_only=True)


def decode(cls: type[T], raw: bytes, headers: Headers | None = None, max_bytes: int = MAX_BYTES) -> T:
    """Decode one message into `cls`, projecting the writer's columns by name onto the reader's.

    Token lists alias `raw` (no copy, read-only). Unknown extra columns are ignored, missing nullable ones are None.
    Raises ContractViolation with a stable `reason` for every breach; never anything else for bad bytes.
    """
    kind = cls.TYPE
    if raw is None or len(raw) == 0:
        raise ContractViolation("empty", "the message has no value")
    if len(raw) > max_bytes:
        raise ContractViolation("size", f"{len(raw)} bytes, over {max_bytes}")
    if headers is not None:
        found = dict(headers)
        content = found.get("content-type", b"").decode(errors="replace")
        if content != CONTENT_TYPE:
            raise ContractViolation("content-type", f"{content or 'none'!r} is not {CONTENT_TYPE!r}")
        named = found.get("ce_dataschema", b"").decode(errors="replace").split("#")[0]
        if named and named != f"{kind.name}/{kind.version}":
            raise ContractViolation("schema", f"the message says {named}, the topic holds {kind.name}/{kind.version}")
    row = _form(kind).values(raw)
    if row is None:
        columns = _columns(_read_batch(raw), kind)
        row = [_project(spec, column, kind) for spec, column in zip(kind.fields, columns, strict=True)]
    _check_row(kind, row)
    values = dict(zip((spec.name for spec in kind.fields), row, strict=True))
    if kind.aligned:
        _check_aligned(kind, {n: _length(values[n]) for group in kind.aligned for n in group})
    return cast(T, kind.cls(**values))
