"""Encodes a record as one self-describing Arrow IPC stream and decodes it with every contract check."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import pyarrow as pa

from schemas.contract import Contract, ContractViolation
from schemas.form import FieldError, Form
from schemas.metadata import is_compressed
from schemas.record import FieldSpec, Record, RecordType

__all__ = ["CONTENT_TYPE", "MAX_BYTES", "ContractViolation", "decode", "encode", "headers"]

CONTENT_TYPE = "application/vnd.apache.arrow.stream"
MAX_BYTES = 8 * 1024 * 1024
"""Largest value that is decoded or encoded (bytes); larger facts go to the object store as a claim check."""

T = TypeVar("T", bound=Record)
Headers = Sequence[tuple[str, bytes | None]]


def _check_aligned(kind: RecordType, lengths: Mapping[str, int | None]) -> None:
    for group in kind.aligned:
        present = {name: lengths[name] for name in group if lengths[name] is not None}
        if len(set(present.values())) > 1:
            raise ContractViolation("length", f"{kind.name}: lists differ in length: {present}")


def _length(value: Any) -> int | None:
    return None if value is None else len(value)


_FORMS: dict[type[Any], tuple[Form, Contract]] = {}


def _of(kind: RecordType) -> tuple[Form, Contract]:
    found = _FORMS.get(kind.cls)
    if found is None:
        form = Form(kind, cast(bytes, kind.schema.serialize().to_pybytes()))
        found = _FORMS[kind.cls] = (form, Contract(kind))
    return found


def encode(record: Record, max_bytes: int = MAX_BYTES) -> bytes:
    """Encode one record as a complete Arrow IPC stream: schema, exactly one batch, end marker.

    Raises ContractViolation when a value breaks the declared contract or the result exceeds `max_bytes`.
    """
    kind = record.TYPE
    values = [getattr(record, spec.name) for spec in kind.fields]
    form, contract = _of(kind)
    try:
        raw = form.message(values)
    except FieldError as e:
        raise ContractViolation("type", f"{kind.name}.{e}") from e
    contract.check(values)
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
    """The one batch of a message, as Arrow reads it; its columns alias the message and are not validated yet.

    Messages are looked at before they are opened: Arrow would first make room for whatever a compressed body claims.
    """
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(raw))
    schema = pa.ipc.read_schema(messages.read_next_message())
    batch: pa.RecordBatch | None = None
    for message in messages:
        if batch is not None or message.type != "record batch":
            raise ContractViolation("batches", f"more than one record batch in the message: a {message.type} follows")
        if is_compressed(message.metadata.to_pybytes()):
            raise ContractViolation("compressed", "the body is compressed; records are sent as they are")
        batch = pa.ipc.read_record_batch(message, schema)
    if batch is None:
        raise ContractViolation("batches", "no record batch in the message")
    return batch


def _read_batch(raw: bytes) -> pa.RecordBatch:
    try:
        batch = _general_form(raw)
    except ContractViolation:
        raise
    except (pa.ArrowException, OSError, ValueError, StopIteration, struct.error) as e:
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
        try:
            column.validate(full=True)
        except (pa.ArrowException, ValueError) as e:
            raise ContractViolation("undecodable", f"{kind.name}.{spec.name}: {str(e)[:300]}") from e
        found.append(column)
    return found


def _project(spec: FieldSpec, column: pa.Array | None, kind: RecordType) -> Any:
    """The one value of a column that Arrow read; what the contract says of it is checked with the whole row."""
    if column is None or column.null_count:
        return None
    if spec.kind == "scalar":
        return column[0].as_py()
    items = column[0].values
    if spec.at_most is not None and len(items) > spec.at_most:
        raise ContractViolation("long", f"{kind.name}.{spec.name} has {len(items)} items, over {spec.at_most}")
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
        content = (found.get("content-type") or b"").decode(errors="replace")
        if content != CONTENT_TYPE:
            raise ContractViolation("content-type", f"{content or 'none'!r} is not {CONTENT_TYPE!r}")
        named = (found.get("ce_dataschema") or b"").decode(errors="replace").split("#")[0]
        if named and named != f"{kind.name}/{kind.version}":
            raise ContractViolation("schema", f"the message says {named}, the topic holds {kind.name}/{kind.version}")
    form, contract = _of(kind)
    row = form.values(raw)
    if row is None:
        columns = _columns(_read_batch(raw), kind)
        row = [_project(spec, column, kind) for spec, column in zip(kind.fields, columns, strict=True)]
    contract.check(row)
    values = dict(zip((spec.name for spec in kind.fields), row, strict=True))
    if kind.aligned:
        _check_aligned(kind, {n: _length(values[n]) for group in kind.aligned for n in group})
    return cast(T, kind.cls(**values))
