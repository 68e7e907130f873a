"""Deterministic ids: who made a record can be recomputed, so a duplicate is recognised wherever it arrives."""

from __future__ import annotations

import re
from dataclasses import dataclass

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TRIAL = re.compile(r"(?P<run>[A-Za-z0-9][A-Za-z0-9_-]{0,63})/(?P<group>\d{8})/(?P<member>\d{1,4})")


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
