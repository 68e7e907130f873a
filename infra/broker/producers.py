"""Idempotent producers on one partition: recognise a retried batch, refuse a gap.

The rules are those of Apache Kafka's ProducerStateManager: the last five batches of each producer are remembered; a
batch equal in epoch and sequence range to one of them is answered with its first offset again, any other must follow.
"""

from __future__ import annotations

from typing import Any

from infra.broker.batch import Header
from infra.broker.errors import Code, Rejected

REMEMBERED = 5
MAX_SEQUENCE = 2**31 - 1


def next_sequence(sequence: int, count: int = 1) -> int:
    """The sequence `count` after `sequence`; wraps to 0 after 2^31 - 1."""
    return (sequence + count) % (MAX_SEQUENCE + 1)


class ProducerState:
    """Epoch and last batches, as (first sequence, last sequence, base offset), of one producer."""

    __slots__ = ("batches", "epoch", "last_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[tuple[int, int, int]] = []
        self.last_ms = 0


class Producers:
    """All idempotent producers that wrote to one partition."""

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def check(self, header: Header) -> int | None:
        """The base offset of the batch this one repeats, or None when it is new and in order.

        Raises Rejected for an old epoch or a sequence that does not follow.
        """
        state = self._states.get(header.producer_id)
        first = header.base_sequence
        if first < 0 or header.producer_epoch < 0:
            raise Rejected(Code.INVALID_RECORD, "producer id without epoch and sequence")
        if state is None:
            return None  # unknown producer, or all its records expired: any sequence starts it, as in Kafka
        if header.producer_epoch < state.epoch:
            raise Rejected(Code.INVALID_PRODUCER_EPOCH, f"epoch {header.producer_epoch} is before {state.epoch}")
        if header.producer_epoch > state.epoch:
            if first != 0:
                raise Rejected(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, f"a new epoch starts at sequence 0, not {first}")
            return None
        last = next_sequence(first, header.last_offset_delta)
        for batch in state.batches:
            if batch[0] == first and batch[1] == last:
                return batch[2]
        if state.batches and first != next_sequence(state.batches[-1][1]):
            expected = next_sequence(state.batches[-1][1])
            raise Rejected(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {first} where {expected} was due")
        return None

    def record(self, header: Header, base_offset: int, now_ms: int) -> None:
        """Remember a batch that is in the log."""
        state = self._states.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch:
            state = self._states[header.producer_id] = ProducerState(header.producer_epoch)
        state.batches.append(
            (header.base_sequence, next_sequence(header.base_sequence, header.last_offset_delta), base_offset)
        )
        if len(state.batches) > REMEMBERED:
            del state.batches[0]
        state.last_ms = now_ms

    def expire(self, before_ms: int) -> None:
        """Forget producers silent since before `before_ms`."""
        for producer_id in [key for key, state in self._states.items() if state.last_ms < before_ms]:
            del self._states[producer_id]

    def snapshot(self) -> list[Any]:
        """State as plain JSON values."""
        return [[pid, s.epoch, s.last_ms, [list(b) for b in s.batches]] for pid, s in self._states.items()]

    @classmethod
    def restore(cls, snapshot: list[Any]) -> Producers:
        """The state that `snapshot` described; raises ValueError or TypeError when it is malformed."""
        out = cls()
        for producer_id, epoch, last_ms, batches in snapshot:
            state = out._states[int(producer_id)] = ProducerState(int(epoch))
            state.last_ms = int(last_ms)
            state.batches = [(int(a), int(b), int(c)) for a, b, c in batches]
        return out
