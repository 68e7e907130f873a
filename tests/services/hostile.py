"""Legal records with hostile values: extremes of every field, mixed-up ids, repeats, gaps, no order; one seed each."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas import ids
from schemas.codec import ContractViolation, decode, encode
from schemas.record import FieldSpec, Record
from schemas.topics import ALL
from services.runtime.core import Effects, Message, Position

TOPIC_OF = {topic.record: topic for topic in ALL}
LONG = 3_000
JSONS = ("[" * 2_000, '{"cohort": {"train": 1e999}}', '{"cohort": {"train": -5}}', "{}", "null", "\x1b[31m\u202e[bold]")
IDENTITY = {"run_id", "group_id", "trial_id", "member", "invocation_id", "operation_id", "parent_id", "member_trials"}


def wire(record: Record) -> Record | None:
    """The record as a consumer gets it; None for one that is dead-lettered before a core sees it."""
    try:
        found: Record = decode(type(record), encode(record))
    except ContractViolation:
        return None
    return found if ids.contradiction(found) is None else None


def extreme(spec: FieldSpec, rng: random.Random) -> Any:
    """A value at the edge of what the field allows."""
    if spec.nullable and rng.random() < 0.3:
        return None
    low, high = (spec.between.low, spec.between.high) if spec.between else (-math.inf, math.inf)
    if spec.kind in ("ids", "floats"):
        size = rng.choice((0, 1, 3, 1000))
        edges = [low, high, 0] if spec.kind == "ids" else [low, high, -0.5]
        return np.array([rng.choice(edges) for _ in range(size)], np.int32 if spec.kind == "ids" else np.float32)
    if spec.kind == "list":
        one = dataclasses.replace(spec, kind="scalar", arrow=spec.arrow.value_type, nullable=spec.item_nullable)
        return tuple(extreme(one, rng) for _ in range(rng.choice((0, 1, 2, 5))))
    if spec.choices:
        return rng.choice(sorted(spec.choices))
    if spec.arrow == pa.bool_():
        return rng.random() < 0.5
    if spec.arrow == pa.utf8():
        return rng.choice(("", "x" * min(LONG, spec.at_most or LONG), "\u0000", "../..", *JSONS))
    if spec.arrow == pa.int64():
        return rng.choice((int(max(low, -(2**63))), int(min(high, 2**63 - 1)), 0, 1, -1))
    return rng.choice((low, high, 0.0, -0.0, math.nan) if spec.unbounded else (low, high, 0.0, 0.5))


def hostile(record: Record, rng: random.Random) -> Record | None:
    """The record with one to four of its claims at their extremes; None when that is refused on the wire."""
    fields = [spec for spec in record.TYPE.fields if spec.name not in IDENTITY]
    chosen = rng.sample(fields, min(len(fields), rng.choice((1, 1, 2, 4))))
    return wire(dataclasses.replace(record, **{spec.name: extreme(spec, rng) for spec in chosen}))


def stream(make: Sequence[Callable[[int, int], Record]], rng: random.Random, count: int) -> Iterator[Record]:
    """So many records: hostile ones of a few groups and members, repeated and in no order."""
    made: list[Record] = []
    while len(made) < count:
        base = rng.choice(make)(rng.randrange(6), rng.randrange(3))
        found = hostile(base, rng) if rng.random() < 0.8 else wire(base)
        if found is not None:
            made += [found] * rng.choice((1, 1, 1, 2))
    rng.shuffle(made)
    yield from made


class Fed:
    """Feeds a core as the loop would. Every output goes through the codec; jobs run, so many and no more."""

    def __init__(self, core: Any, start_ms: int = 1_000_000) -> None:
        self.core = core
        self.now_ms = start_ms
        self.outputs: list[Record] = []
        self.letters = 0
        self.jobs_left = 20_000
        self._offsets: dict[str, int] = {}

    def give(self, records: Sequence[Record], partition: int = 0) -> None:
        for record in records:
            topic = TOPIC_OF[type(record)]
            offset = self._offsets[topic.name] = self._offsets.get(topic.name, -1) + 1
            position = Position(topic.name, partition, offset)
            message = Message(position, self.now_ms, getattr(record, topic.key), {}, record, 100)
            try:
                self.apply(self.core.handle(message, self.now_ms))
            except ContractViolation:
                self.letters += 1

    def apply(self, effects: Effects) -> None:
        for output in effects.outputs:
            encode(output.record)
            self.outputs.append(output.record)
        for job in effects.jobs:
            self.jobs_left -= 1
            assert self.jobs_left > 0, "jobs without end"
            try:
                result = job.run()
            except Exception as e:
                result = e
            self.apply(job.then(result))

    def live(self) -> None:
        self.apply(self.core.caught_up(self.now_ms))

    def pass_time(self, seconds: int, ticks: int = 3) -> None:
        for _ in range(ticks):
            self.now_ms += 1000 * seconds // ticks
            self.apply(self.core.tick(self.now_ms))

    def of(self, kind: type[Record]) -> list[Any]:
        return [record for record in self.outputs if isinstance(record, kind)]
