"""From a completed attempt to what is judged: fixture and check set by digest, and the admitted tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from schemas.rollout import RolloutCompleted
from services.tasks.fixture import CheckSet, Fixture
from services.verifier.admission import Admitted


class Tasks(Protocol):
    """Where fixtures and check sets come from. Both methods raise KeyError for an unknown task."""

    def fixture(self, task_id: str) -> Fixture: ...

    def check(self, task_id: str) -> CheckSet: ...


class Unjudgeable(Exception):
    """No verdict can be given for a reason that is not the candidate's; the argument is its stable word."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


@dataclass(frozen=True)
class Candidate:
    """What is judged. `key` is equal for identical candidates at identical digests."""

    fixture: Fixture
    check: CheckSet
    admitted: Admitted
    key: tuple[str, ...]


def task_of(record: RolloutCompleted, tasks: Tasks) -> tuple[Fixture, CheckSet]:
    """Fixture and check set, pinned by the digests that the record and the fixture name. Raises Unjudgeable."""
    try:
        fixture, check = tasks.fixture(record.task_id), tasks.check(record.task_id)
    except KeyError:
        raise Unjudgeable("unknown_task") from None
    if fixture.digest != record.fixture_digest:
        raise Unjudgeable("fixture_mismatch")
    if check.digest != fixture.check_digest:
        raise Unjudgeable("check_mismatch")
    return fixture, check
