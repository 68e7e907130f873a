"""What a record claims stays within its declared bounds, whoever wrote it; nothing is opened that could be large."""

import dataclasses
import math
import time
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from schemas.bounds import YEAR_2200_MS
from schemas.codec import ContractViolation, decode, encode
from schemas.evolution import all_types, example
from schemas.rollout import Invocation, RolloutCompleted

KINDS = list(all_types().values())
FIELDS = [(kind, spec) for kind in KINDS for spec in kind.fields]


def wild(kind, **changes) -> bytes:
    """The record as a producer sends it that checks nothing."""
    record = dataclasses.replace(example(kind), **changes)
    row = {f.name: [v.tolist() if isinstance(v := getattr(record, f.name), np.ndarray) else v] for f in kind.fields}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, kind.schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pydict(row, kind.schema))
    return sink.getvalue().to_pybytes()


def outside(spec):
    """Values of the right type that the field does not allow."""
    arrow = spec.arrow.value_type if spec.kind != "scalar" else spec.arrow
    if spec.kind == "ids":
        return [np.array([1, -1, 2], np.int32)]
    if spec.kind == "floats":
        return [np.array([-1, bad, -1], np.float32) for bad in (math.nan, math.inf, -math.inf)]
    found = []
    if spec.between is not None and arrow == pa.int64():
        near = (-(2**63), spec.between.low - 1, spec.between.high + 1, 2**63 - 1)
        found = [bad for bad in near if -(2**63) <= bad < 2**63 and not spec.between.low <= bad <= spec.between.high]
    elif spec.between is not None:
        found = [math.nan, math.inf, -math.inf, math.nextafter(spec.between.high, math.inf)]
    if spec.kind == "list":
        return [(bad,) * 3 for bad in found]
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_every_field_is_bounded(kind):
    for spec in kind.fields:
        arrow = spec.arrow.value_type if spec.kind == "list" else spec.arrow
        text = spec.item_at_most if spec.kind == "list" else spec.at_most
        assert spec.kind != "list" or spec.at_most, f"{kind.name}.{spec.name} may hold any number of items"
        if arrow == pa.utf8():
            assert spec.choices or text, f"{kind.name}.{spec.name} may be of any length"
        elif arrow == pa.int64():
            assert spec.between, f"{kind.name}.{spec.name} may be any number"
        elif arrow == pa.float64():
            assert spec.between or spec.unbounded, f"{kind.name}.{spec.name} says nothing of its numbers"


@pytest.mark.parametrize(("kind", "spec"), FIELDS, ids=lambda x: x.name)
def test_a_value_outside_is_neither_written_nor_read(kind, spec):
    for bad in outside(spec):
        with pytest.raises(ContractViolation, match="range"):
            encode(dataclasses.replace(example(kind), **{spec.name: bad}))
        with pytest.raises(ContractViolation, match=r"range|undecodable"):
            decode(kind.cls, wild(kind, **{spec.name: bad}))


SIZED = [(kind, spec) for kind, spec in FIELDS if spec.at_most is not None]


@pytest.mark.parametrize(("kind", "spec"), SIZED, ids=lambda x: x.name)
def test_a_longer_text_or_list_is_neither_written_nor_read(kind, spec):
    one = "x" * (spec.at_most + 1) if spec.kind == "scalar" else ((example_item(kind, spec),) * (spec.at_most + 1))
    for work in (lambda: encode(dataclasses.replace(example(kind), **{spec.name: one})),
                 lambda: decode(kind.cls, wild(kind, **{spec.name: one}))):  # fmt: skip
        with pytest.raises(ContractViolation, match="long"):
            work()


def example_item(kind, spec):
    return getattr(example(kind), spec.name)[0]


def test_the_reported_claims_are_refused():
    for change in (
        {"started_ms": -(2**63)}, {"started_ms": YEAR_2200_MS + 1}, {"policy_version": 2**62}, {"invocations": 2**62},
        {"invocations": 5_000_000}, {"malformed_actions": -50_000}, {"policy_tokens": -1},
    ):  # fmt: skip
        with pytest.raises(ContractViolation, match="range"):
            decode(RolloutCompleted, wild(RolloutCompleted.TYPE, **change))


def test_token_ids_beyond_int32_do_not_wrap_around():
    record = dataclasses.replace(example(Invocation.TYPE), sampled_ids=np.array([1, 2**32 + 5, 3], np.int64))
    with pytest.raises(ContractViolation, match="range"):
        encode(record)


def bomb(megabytes: int, codec: str = "zstd") -> bytes:
    """A legal invocation but for its compressed body."""
    kind = Invocation.TYPE
    row = {f.name: [v.tolist() if isinstance(v := getattr(example(kind), f.name), np.ndarray) else v]
           for f in kind.fields}  # fmt: skip
    row["appended_ids"] = [np.zeros(megabytes * 2**18, np.int32)]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, kind.schema, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_pydict(row, kind.schema))
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_body_is_refused_before_it_is_opened(codec):
    raw = bomb(64, codec)
    before = pa.default_memory_pool()
    allocated = before.total_bytes_allocated()
    with pytest.raises(ContractViolation, match="compressed"):
        decode(Invocation, raw)
    assert pa.default_memory_pool().total_bytes_allocated() - allocated < 2**20


def test_a_long_list_is_refused_before_its_items_are_made():
    kind = {k.name: k for k in KINDS}["group.closed"]
    raw = wild(kind, member_attempts=(1,) * 500_000)
    tracemalloc.start()
    try:
        with pytest.raises(ContractViolation, match="long"):
            decode(kind.cls, raw)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_columns_that_nobody_asked_for_cost_nothing():
    """A null column may be as long as it says: it has no bytes."""
    kind = Invocation.TYPE
    schema = kind.schema.append(pa.field("later", pa.list_(pa.null())))
    row = pa.ipc.open_stream(encode(example(kind))).read_next_batch()
    rows = [*row.columns, pa.ListArray.from_arrays(pa.array([0, 2**31 - 1], pa.int32()), pa.nulls(2**31 - 1))]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(rows, schema=schema))
    started = time.process_time()
    assert decode(Invocation, sink.getvalue().to_pybytes()).turn == example(kind).turn
    assert time.process_time() - started < 1
