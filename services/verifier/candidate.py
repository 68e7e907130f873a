"""From a completed attempt to what is judged: fixture, check set and certificate by digest, and the admitted tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from schemas.rollout import RolloutCompleted
from services.patch.admission import Admitted
from services.tasks.certificates import Certificate
from services.tasks.fixture import CheckSet, Fixture
from services.watch import candidate as watch

LEAKS = "leaks"
"""Family of the tasks that nobody can solve who looks only where an agent may look."""
CertificateOf = Callable[[str], Certificate | None]
"""The certificate of a check set by its digest; None where it has none."""


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
class Task:
    """What an attempt is judged against."""

    fixture: Fixture
    check: CheckSet
    certificate: Certificate | None = None

    @property
    def evidence(self) -> str:
        """Level of a verdict: E4 is E3 with a valid certificate."""
        certified = self.certificate is not None and self.certificate.state == "certified"
        return "E4" if certified and self.check.evidence == "E3" else self.check.evidence

    @property
    def withdrawn(self) -> bool:
        """Whether certification found the check set unfit."""
        return self.certificate is not None and self.certificate.state == "quarantined"


@dataclass(frozen=True)
class Identity:
    """What the records say of a candidate: the digest of its tree, and what in its change looks like gaming."""

    digest: str
    findings: tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """What is judged. `key` is equal for identical candidates at identical digests."""

    task: Task
    admitted: Admitted
    key: tuple[str, ...]

    @cached_property
    def identity(self) -> Identity:
        """Worked out once, on the thread that judges. A person reads the findings; no verdict depends on them, so no
        error in finding them may decide one either."""
        fixture = self.task.fixture
        try:
            found = watch.findings(fixture.base_tree, self.admitted.tree, fixture.public_checks)
        except Exception as error:  # the text is the candidate's: whatever it provokes here must not stop its verdict
            found = (f"watch_fault_{type(error).__name__}",)
        return Identity(self.admitted.digest, found)


def task_of(record: RolloutCompleted, tasks: Tasks, certificate_of: CertificateOf = lambda digest: None) -> Task:
    """The task, pinned by the digests that the record and the fixture name. Raises Unjudgeable."""
    try:
        fixture, check = tasks.fixture(record.task_id), tasks.check(record.task_id)
    except KeyError:
        raise Unjudgeable("unknown_task") from None
    if fixture.digest != record.fixture_digest:
        raise Unjudgeable("fixture_mismatch")
    if check.digest != fixture.check_digest:
        raise Unjudgeable("check_mismatch")
    return Task(fixture, check, certificate_of(check.digest))
