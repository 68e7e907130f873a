"""How recorded objects are called: their names alone say what is there and what is missing.

    recorded/<run>/<topic>/<partition>/<first>-<last>.<records>.<bytes>.<sha256>     a segment
    recorded/<run>/<topic>/<partition>/<first>-<last>.lost                           why there is none: JSON

`first` and `last` are offsets, twenty digits each; `bytes` is the size of the object and `sha256` its digest, so that
two objects of one name are the same and a damaged one is known by reading it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NamedTuple

from services.runtime.store import digest_of

_NAME = re.compile(
    r"recorded/(?P<run>[^/]+)/(?P<topic>[^/]+)/(?P<partition>\d+)/(?P<first>\d{20})-(?P<last>\d{20})"
    r"\.(?:lost|(?P<records>\d+)\.(?P<bytes>\d+)\.(?P<sha256>[0-9a-f]{64}))"
)


class Place(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, order=True)
class Segment:
    """One stored segment; `last` is the offset of its last record, `size` the bytes of the object."""

    place: Place
    first: int
    last: int
    records: int
    size: int
    sha256: str

    def key(self, run_id: str) -> str:
        numbers = f"{self.first:020}-{self.last:020}.{self.records}.{self.size}.{self.sha256}"
        return f"{prefix(run_id, self.place)}{numbers}"


@dataclass(frozen=True, order=True)
class Lost:
    """Offsets first..last that the log dropped before they were read."""

    place: Place
    first: int
    last: int

    def key(self, run_id: str) -> str:
        return f"{prefix(run_id, self.place)}{self.first:020}-{self.last:020}.lost"

    @property
    def document(self) -> bytes:
        """What the object says, for whoever finds it without us."""
        said = {
            "topic": self.place.topic, "partition": self.place.partition, "first": self.first, "last": self.last,
            "why": "the log dropped these records before the recorder read them",
        }  # fmt: skip
        return json.dumps(said).encode()


def prefix(run_id: str, place: Place | None = None) -> str:
    """What the keys of a run, or of one of its partitions, begin with."""
    below = f"{place.topic}/{place.partition}/" if place else ""
    return f"recorded/{run_id}/{below}"


def segment_of(place: Place, first: int, last: int, records: int, data: bytes) -> Segment:
    """The segment that these bytes are."""
    return Segment(place, first, last, records, len(data), digest_of(data))


def parse(key: str) -> Segment | Lost | None:
    """What a key names; None for one that the recorder did not make."""
    found = _NAME.fullmatch(key)
    if found is None:
        return None
    place, first, last = Place(found["topic"], int(found["partition"])), int(found["first"]), int(found["last"])
    if found["sha256"] is None:
        return Lost(place, first, last)
    return Segment(place, first, last, int(found["records"]), int(found["bytes"]), found["sha256"])
