"""The values between a service's pure core and the loop that drives it; no Kafka here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from schemas.codec import ContractViolation
from schemas.record import Record
from schemas.topics import Topic
from services.runtime.errors import UserError
from services.runtime.segments import Raw


class Position(NamedTuple):
    """Where one record stands in the log; `next_offset` is the only place that adds one."""

    topic: str
    partition: int
    offset: int

    @property
    def next_offset(self) -> int:
        return self.offset + 1


@dataclass(frozen=True)
class Message:
    """One decoded record with its place in the log. Times are Unix milliseconds."""

    position: Position
    timestamp_ms: int
    key: str
    headers: Mapping[str, bytes]
    record: Record
    size: int

    @property
    def partition(self) -> int:
        return self.position.partition


@dataclass(frozen=True)
class RawMessage:
    """One record as it lies in the log, undecoded; `fresh` when it is the first of its partition since that was
    assigned, or since the log jumped: what was held of the partition before is about to be handled again."""

    position: Position
    raw: Raw
    fresh: bool


@dataclass(frozen=True)
class Output:
    """A record to produce; its key is the record's own `topic.key` field."""

    topic: Topic
    record: Record


@dataclass(frozen=True)
class Job:
    """Slow work: `run` goes to a bounded worker thread, `then` turns its result into effects under the core's lock.

    An exception from `run` is handed to `then` as its argument, so that every started job ends in effects.
    `partition` names the owned partition it works for: its result is discarded when that was revoked meanwhile.
    """

    run: Callable[[], Any]
    then: Callable[[Any], Effects]
    partition: int | None = None
    cost_bytes: int = 0


@dataclass
class Effects:
    """What handling something caused: records to produce, inputs that are finished with, work to start.

    A position in `done` counts as finished only after every output of the same effects is acknowledged by the broker.
    A position never reported done holds the commit watermark back, so that the record is read again after a crash.
    """

    outputs: list[Output] = field(default_factory=list)
    done: list[Position] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)

    def __iadd__(self, other: Effects) -> Effects:
        self.outputs += other.outputs
        self.done += other.done
        self.jobs += other.jobs
        return self


class Blamed(RuntimeError):
    """An unexpected exception while a core worked on what these records say; its cause is the exception."""

    def __init__(self, positions: Sequence[Position]) -> None:
        super().__init__(f"{len(positions)} records, first {positions[0]}")
        self.positions = tuple(positions)


SURROUNDINGS = (OSError, MemoryError, UserError)
"""What a down dependency or a full machine raises: never a record's fault."""


@contextlib.contextmanager
def on_account_of(positions: Sequence[Position]) -> Iterator[None]:
    """Whatever goes wrong inside is the fault of these records, in any phase of a core.

    The service stops, since its core may be half changed; at the next start these records go to the dead letters, and
    everything else goes on. Around work on one group, where the record in hand (if any) may be another's.
    """
    try:
        yield
    except (ContractViolation, Blamed, *SURROUNDINGS):
        raise
    except Exception as e:
        if not positions:
            raise
        raise Blamed(positions) from e


class Events(Protocol):
    """What every core hears. The runtime calls every method under one lock, never two at once.

    `partitions` are partition numbers of the grouped topics (co-partitioned: number n of every input belongs together).
    Order of events: every record of the broadcast topics up to their end; `assigned`; the inputs' records since the
    committed watermark; `caught_up`; only then `tick`. After a rebalance that adds partitions: `revoked` for what went,
    `assigned` for what came (what stayed appears in neither and loses nothing), their records, `caught_up` again.
    """

    def assigned(self, partitions: frozenset[int]) -> None:
        """These partitions are newly owned; their unfinished history is about to be handled again."""

    def revoked(self, partitions: frozenset[int]) -> None:
        """These partitions are lost: forget what was held for them."""

    def caught_up(self, now_ms: int) -> Effects:
        """Everything that stood in the inputs when they were assigned (or the service started) has been handled."""

    def tick(self, now_ms: int) -> Effects:
        """Called about twice a second (`runtime.tick_s`), for deadlines; never while catching up, since a deadline
        judged on half of the history would be wrong."""

    def lost(self, topic: str, partition: int, first: int, end: int) -> Effects:
        """Retention removed the records first..end-1 of a topic before this group had read them; it goes on after."""

    def drain(self, now_ms: int) -> Effects:
        """The service was asked to end, and nothing more will be handled: jobs returned here still run, within the
        drain budget."""


class Core(Events, Protocol):
    """The core of a service that understands what it reads."""

    def handle(self, message: Message, now_ms: int) -> Effects:
        """Handle one record, quickly. Raise schemas.codec.ContractViolation for a record that breaks the contract."""


class RawCore(Events, Protocol):
    """The core of a service that takes records as they are (`ServiceSpec.raw`): none is decoded or dead-lettered."""

    def handle_raw(self, message: RawMessage, now_ms: int) -> Effects:
        """Handle one record, quickly."""


class BaseCore:
    """Default answers for the events that a service does not need."""

    def assigned(self, partitions: frozenset[int]) -> None:
        del partitions

    def revoked(self, partitions: frozenset[int]) -> None:
        del partitions

    def caught_up(self, now_ms: int) -> Effects:
        del now_ms
        return Effects()

    def tick(self, now_ms: int) -> Effects:
        del now_ms
        return Effects()

    def lost(self, topic: str, partition: int, first: int, end: int) -> Effects:
        del topic, partition, first, end
        return Effects()

    def drain(self, now_ms: int) -> Effects:
        del now_ms
        return Effects()


def finished(message: Message, outputs: Iterable[Output] = ()) -> Effects:
    """The common case: these outputs, and the message is done with."""
    return Effects(outputs=list(outputs), done=[message.position])
