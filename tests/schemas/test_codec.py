"""The wire: what is encoded comes back, and nothing but a legal record is ever decoded."""

import contextlib
import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import ContractViolation, decode, encode, headers
from schemas.evolution import all_types, example, same
from schemas.record import FieldSpec, RecordType
from schemas.rollout import Invocation

KINDS = list(all_types().values())
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


def values(spec: FieldSpec) -> st.SearchStrategy:
    """Every legal value, its bounds among the likely ones."""
    arrow = spec.arrow.value_type if spec.kind in ("list",) else spec.arrow
    low, high = (spec.between.low, spec.between.high) if spec.between else (None, None)
    if spec.kind in ("ids", "floats"):
        one = st.integers(low, high) if spec.kind == "ids" else st.floats(low, high, width=32)
        dtype = np.int32 if spec.kind == "ids" else np.float32
        base = st.lists(one, min_size=2, max_size=2).map(lambda v: np.array(v, dtype))
    else:
        scalar = {
            pa.utf8(): st.sampled_from(sorted(spec.choices)) if spec.choices else TEXT,
            pa.int64(): st.integers(low, high) if spec.between else INT64,
            pa.float64(): st.floats(low, high, allow_nan=False),
            pa.bool_(): st.booleans(),
            pa.binary(): st.binary(max_size=50),
        }[arrow]
        if spec.kind == "list":
            item = st.one_of(st.none(), scalar) if spec.item_nullable else scalar
            base = st.lists(item, min_size=2, max_size=2).map(tuple)
        else:
            base = scalar
    return st.one_of(st.none(), base) if spec.nullable else base


def records(kind: RecordType) -> st.SearchStrategy:
    return st.fixed_dictionaries({f.name: values(f) for f in kind.fields}).map(lambda v: kind.cls(**v))


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_every_record_round_trips(kind):
    @settings(max_examples=25, deadline=None)
    @given(records(kind))
    def check(record):
        assert same(decode(kind.cls, encode(record), headers(record)), record)

    check()


def test_token_lists_are_read_without_a_copy():
    raw = encode(example(Invocation.TYPE))
    back = decode(Invocation, raw)
    start = np.frombuffer(raw, np.uint8).__array_interface__["data"][0]
    for array in (back.appended_ids, back.sampled_ids, back.logprobs):
        address = array.__array_interface__["data"][0]
        assert start <= address < start + len(raw)
        assert not array.flags.writeable


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_raise_only_contract_violations(raw):
    with pytest.raises(ContractViolation):
        decode(Invocation, raw)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_messages_raise_only_contract_violations(position, byte):
    raw = bytearray(encode(example(Invocation.TYPE)))
    raw[position % len(raw)] = byte
    with contextlib.suppress(ContractViolation):
        decode(Invocation, bytes(raw))


def outcome(raw):
    try:
        return repr(decode(Invocation, raw))
    except ContractViolation as e:
        return e.reason


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 255))
def test_the_quick_reader_sees_what_arrow_sees_in_damaged_messages(position, byte):
    raw = bytearray(encode(example(Invocation.TYPE)))
    raw[position % len(raw)] = byte
    quick = outcome(bytes(raw))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("schemas.form.Form.values", lambda self, raw: None)
        assert quick == outcome(bytes(raw))


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_arrow_reads_what_the_quick_writer_wrote(kind):
    @settings(max_examples=25, deadline=None)
    @given(records(kind))
    def check(record):
        reader = pa.ipc.open_stream(encode(record))
        batch = reader.read_next_batch()
        batch.validate(full=True)
        assert batch.schema.equals(kind.schema)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("schemas.form.Form.values", lambda self, raw: None)
            assert same(decode(kind.cls, encode(record)), record)

    check()


def _batch(change):
    columns = pa.ipc.open_stream(encode(example(Invocation.TYPE))).read_next_batch().to_pydict()
    schema = Invocation.TYPE.schema
    columns, schema = change(columns, schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pydict(columns, schema))
    return sink.getvalue().to_pybytes()


def reason(raw, head=None):
    with pytest.raises(ContractViolation) as caught:
        decode(Invocation, raw, head)
    return caught.value.reason


def test_each_breach_of_the_contract_has_its_reason():
    good = example(Invocation.TYPE)
    assert reason(b"") == "empty"
    assert reason(encode(good), [("content-type", b"application/json")]) == "content-type"
    wrong = [("content-type", b"application/vnd.apache.arrow.stream"), ("ce_dataschema", b"group.closed/1#00")]
    assert reason(encode(good), wrong) == "schema"

    def null(c, s):
        return {**c, "trial_id": [None]}, s

    def two_rows(c, s):
        return {k: v * 2 for k, v in c.items()}, s

    def unequal(c, s):
        return {**c, "logprobs": [[0.5]]}, s

    def missing(c, s):
        return {k: v for k, v in c.items() if k != "trial_id"}, s.remove(s.get_field_index("trial_id"))

    def retyped(c, s):
        index = s.get_field_index("turn")
        return {**c, "turn": ["x"]}, s.set(index, pa.field("turn", pa.utf8()))

    def bad_choice(c, s):
        return {**c, "stop": ["because"]}, s

    assert reason(_batch(null)) == "null"
    assert reason(_batch(two_rows)) == "rows"
    assert reason(_batch(unequal)) == "length"
    assert reason(_batch(missing)) == "missing"
    assert reason(_batch(retyped)) == "type"
    assert reason(_batch(bad_choice)) == "value"


def test_two_batches_in_one_message_are_refused():
    batch = pa.ipc.open_stream(encode(example(Invocation.TYPE))).read_next_batch()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    assert reason(sink.getvalue().to_pybytes()) == "batches"


def test_encode_refuses_what_decode_would_refuse():
    good = example(Invocation.TYPE)
    for change in ({"trial_id": None}, {"stop": "because"}, {"logprobs": np.zeros(1, np.float32)}, {"turn": "x"}):
        with pytest.raises(ContractViolation):
            encode(dataclasses.replace(good, **change))
    with pytest.raises(ContractViolation, match="size"):
        encode(good, max_bytes=100)


def test_a_newer_writer_s_extra_nullable_column_is_ignored():
    def extra(c, s):
        return {**c, "later": [7]}, s.append(pa.field("later", pa.int64()))

    assert same(decode(Invocation, _batch(extra)), example(Invocation.TYPE))


def test_headers_carry_the_facts_a_person_filters_by():
    found = dict(headers(example(Invocation.TYPE), {"traceparent": "00-x"}))
    assert found["content-type"] == b"application/vnd.apache.arrow.stream"
    assert {"rlvr-run-id", "rlvr-group-id", "rlvr-trial-id", "rlvr-policy-version", "traceparent"} <= set(found)
    assert found["ce_dataschema"].startswith(b"rollout.invocation/1#")
