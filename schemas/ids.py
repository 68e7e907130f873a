"""Deterministic ids: who made a record can be recomputed, so a duplicate is recognised wherever it arrives."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas.record import Record, RecordType

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}/[0-9]{8}")
_TRIAL = re.compile(r"(?P<run>[A-Za-z0-9][A-Za-z0-9_-]{0,63})/(?P<group>[0-9]{8})/(?P<member>0|[1-9][0-9]{0,3})")


class BadId(ValueError):
    """An id that does not follow the grammar of this module."""


def group_id(run_id: str, number: int) -> str:
    """`run/NNNNNNNN`: the number of the planned group within its run, from 0."""
    if not _RUN.fullmatch(run_id):
        raise BadId(f"run id {run_id!r}: letters, digits, - and _ only, at most 64")
    if not 0 <= number < 10**8:
        raise BadId(f"group number {number} is outside 0..99999999")
    return f"{run_id}/{number:08d}"


def trial_id(group: str, member: int) -> str:
    """`group/M`: member M of the planned cohort, from 0."""
    return f"{group}/{member}"


def invocation_id(trial: str, attempt: int, turn: int) -> str:
    """`trial.attempt.turn`: one model call; an infrastructure retry is a new attempt of the same trial."""
    return f"{trial}.{attempt}.{turn}"


def operation_id(invocation: str, index: int) -> str:
    """`invocation.k`: one tool operation that the invocation asked for."""
    return f"{invocation}.{index}"


def contradiction(record: Record) -> str | None:
    """What the ids of a record say against each other, None when nothing; records without a group have none to."""
    said = {name: getattr(record, name) for name in _ids_of(record.TYPE)}
    group = said.get("group_id")
    if group is None:
        return None
    if not _GROUP.fullmatch(group) or group[:-9] != said["run_id"]:
        return f"{group!r} is no group of run {said['run_id']!r}"
    trial = said.get("trial_id")
    if trial is not None and (group != trial.rpartition("/")[0] or not _TRIAL.fullmatch(trial)):
        return f"{trial!r} is no member of {group}"
    if "member" in said and trial != trial_id(group, said["member"]):
        return f"{trial} is not member {said['member']} of {group}"
    if any(one.rpartition("/")[0] != group for one in said.get("member_trials", ())):
        return f"a listed member belongs to another group than {group}"
    attempt = f"{trial}.{said.get('attempt')}."
    call = said.get("invocation_id")
    if call is not None and call != f"{attempt}{said['turn']}":
        return f"{call!r} is not turn {said['turn']} of attempt {said['attempt']} of {trial}"
    for name in ("operation_id", "parent_id"):
        if said.get(name) is not None and not said[name].startswith(attempt):
            return f"{said[name]!r} belongs to another attempt than {attempt[:-1]}"
    return None


_WANTED = (
    "run_id", "group_id", "trial_id", "member", "member_trials", "attempt", "turn", "invocation_id", "operation_id",
    "parent_id",
)  # fmt: skip
_NAMES: dict[str, tuple[str, ...]] = {}


def _ids_of(kind: RecordType) -> tuple[str, ...]:
    found = _NAMES.get(kind.fingerprint)
    if found is None:
        found = _NAMES[kind.fingerprint] = tuple(spec.name for spec in kind.fields if spec.name in _WANTED)
    return found


@dataclass(frozen=True, order=True)
class TrialRef:
    """A parsed trial id."""

    run_id: str
    group: int
    member: int

    @property
    def group_id(self) -> str:
        return group_id(self.run_id, self.group)


def parse_trial(text: str) -> TrialRef:
    """Parse `run/NNNNNNNN/M`; raises BadId."""
    match = _TRIAL.fullmatch(text)
    if match is None:
        raise BadId(f"{text!r} is no trial id: run/NNNNNNNN/M, such as demo/00000012/3")
    return TrialRef(match["run"], int(match["group"]), int(match["member"]))
