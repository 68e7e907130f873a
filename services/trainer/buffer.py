"""What the trainer holds between reading and training: calls of undecided groups, admissions, and where to read on."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.group import GroupAdmission
from schemas.ids import TrialRef, parse_trial
from schemas.rollout import Invocation
from services.runtime.core import Position
from services.trainer.assembly import missing
from services.trainer.intervals import Intervals


@dataclass
class Held:
    """One undecided group. The first record of an invocation id counts, later ones are repeats.

    `arrived_s`: monotonic seconds at which its admission was read. `excluding`: its exclusion is on its way to the log.
    """

    number: int
    records: dict[str, Invocation] = field(default_factory=dict)
    lowest: dict[tuple[str, int], int] = field(default_factory=dict)
    admission: GroupAdmission | None = None
    arrived_s: float = 0.0
    excluding: bool = False

    @property
    def complete(self) -> bool:
        return (
            self.admission is not None
            and not self.excluding
            and next(missing(self.admission, self.records), None) is None
        )


def group_number(group_id: str) -> int:
    """Number of a group within its run. Raises schemas.ids.BadId."""
    ref: TrialRef = parse_trial(f"{group_id}/0")
    return ref.group


class Buffer:
    """Everything read and not yet decided.

    Memory is bounded by the groups in flight: every group of the training split ends in a decision on
    `group.admission` (closure gives each a deadline), evaluation trials are not held at all, and what comes late for a
    decided group is dropped by the group's number.
    """

    def __init__(self, decided: Intervals | None = None, offsets: dict[tuple[str, int], int] | None = None) -> None:
        self.decided = decided or Intervals()
        self.groups: dict[str, Held] = {}
        self._next = dict(offsets or {})

    def note(self, position: Position) -> None:
        """A record was read, whatever it was."""
        self._next[position[:2]] = position.next_offset

    def invocation(self, record: Invocation, position: Position) -> None:
        """Keep a call until its group is decided."""
        held = self._held(record.group_id, position) if record.split == "train" else None
        if held is not None:
            held.records.setdefault(record.invocation_id, record)

    def admission(self, record: GroupAdmission, position: Position, now_s: float) -> Held | None:
        """Take a decision; returns the group when it is to be trained on and was not known to be."""
        number = group_number(record.group_id)
        if record.decision == "excluded":
            known = self.groups.get(record.group_id)
            if record.stage == "admission" and known is not None and known.admission is not None:
                return None  # a second instance decided too: the first decision counts for everybody
            self.decided.add(number)
            self.groups.pop(record.group_id, None)
            return None
        held = self._held(record.group_id, position)
        if held is None or held.admission is not None:
            return None
        held.admission, held.arrived_s = record, now_s
        return held

    def _held(self, group_id: str, position: Position) -> Held | None:
        held = self.groups.get(group_id)
        if held is None:
            number = group_number(group_id)
            if number in self.decided:
                return None
            held = self.groups[group_id] = Held(number)
        held.lowest.setdefault(position[:2], position.offset)
        return held

    def trained(self, group_ids: tuple[str, ...]) -> None:
        """These groups are in the weights."""
        for group_id in group_ids:
            self.decided.add(group_number(group_id))
            self.groups.pop(group_id, None)

    def admitted(self) -> list[Held]:
        """Admitted groups in the order in which they were decided (time of the decision, then number)."""
        found = [held for held in self.groups.values() if held.admission is not None and not held.excluding]
        return sorted(found, key=lambda held: (held.admission.decided_ms if held.admission else 0, held.number))

    def read_on(self, without: tuple[str, ...] = ()) -> dict[str, dict[str, int]]:
        """Topic -> partition -> offset from which everything undecided would be read again, leaving out some groups."""
        marks = dict(self._next)
        for group_id, held in self.groups.items():
            if group_id not in without:
                for key, offset in held.lowest.items():
                    marks[key] = min(offset, marks[key])
        out: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(marks.items()):
            out.setdefault(topic, {})[str(partition)] = offset
        return out
