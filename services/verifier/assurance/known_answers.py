"""Canaries and audits: judgements with a known answer that run beside the candidates', on exactly their path."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from schemas.rollout import RolloutCompleted
from schemas.verification import VerificationCanary
from services.patch.admission import Admitted
from services.runtime.settings import Verifier
from services.tasks.fixture import CheckSet
from services.verifier.assurance.alarms import ALWAYS_WRONG, UNSTEADY
from services.verifier.judge import Course, Judgement
from services.verifier.reward import ANSWERED_WRONGLY

REMEMBERED = 512
AUDIT_FACTOR = 4
"""An audit has this many times the check runs of a verdict."""


class Chance(Protocol):
    """Where randomness comes from; not to be foreseen by a policy (the operating system's, but in tests)."""

    def random(self) -> float: ...

    def choice(self, seq: list[tuple[CheckSet, str, Mapping[str, str]]]) -> tuple[CheckSet, str, Mapping[str, str]]: ...


@dataclass(frozen=True)
class KnownAnswer:
    """What is judged and what must come out. `trial_id`, `policy_version`: of the pass that an audit judges again."""

    canary_id: str
    kind: Literal["reference", "known_bad", "audit"]
    run_id: str
    check: CheckSet
    admitted: Admitted
    course: Course
    trial_id: str | None = None
    policy_version: int | None = None

    @property
    def expected(self) -> Literal["pass", "fail"]:
        """The right verdict."""
        return "fail" if self.kind == "known_bad" else "pass"

    def record(self, judgement: Judgement, verifier_digest: str, started_ms: int, ended_ms: int) -> VerificationCanary:
        """The record of a final judgement; the state of the sequential test is not known here."""
        return VerificationCanary(
            run_id=self.run_id,
            canary_id=self.canary_id,
            kind=self.kind,
            task_id=self.check.task_id,
            check_digest=self.check.digest,
            verifier_digest=verifier_digest,
            candidate_digest=self.admitted.digest,
            trial_id=self.trial_id,
            policy_version=self.policy_version,
            expected=self.expected,
            verdict=judgement.verdict,
            cause=self._cause(judgement),
            runs=sum(run.outcome != "infra" for run in judgement.runs),
            log_ratio=None,
            started_ms=started_ms,
            ended_ms=ended_ms,
        )

    def _cause(self, judgement: Judgement) -> str:
        """An audit says whether the candidate differs from run to run, or was wrong in every one at E3 or more: the
        second cannot be luck, the first is a false accept that only a person can weigh."""
        if self.kind != "audit" or judgement.verdict != "fail":
            return judgement.cause
        ended = [run for run in judgement.runs if run.outcome != "infra"]
        if any(run.outcome == "pass" for run in ended):
            return UNSTEADY + judgement.cause
        wrong = all(run.cause in ANSWERED_WRONGLY for run in ended)
        return ALWAYS_WRONG if wrong and self.check.evidence == "E3" else judgement.cause


class KnownAnswers:
    """Chooses what is interleaved: one known answer for about `canary_share` of the judgements, among the check sets
    seen lately, and an audit of about `audit_share` of the passes."""

    def __init__(self, settings: Verifier, chance: Chance | None = None) -> None:
        self._settings = settings
        self._chance: Chance = chance or random.SystemRandom()
        self._recent: OrderedDict[str, CheckSet] = OrderedDict()

    def beside(
        self, record: RolloutCompleted, check: CheckSet, quarantined: Callable[[str], bool]
    ) -> KnownAnswer | None:
        """The canary to judge beside this attempt, mostly none. Its id follows from the attempt: a repeat after a crash
        counts once."""
        self._recent[check.digest] = check
        self._recent.move_to_end(check.digest)
        while len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)
        if not self._strikes(self._settings.canary_share):
            return None
        kind: Literal["reference", "known_bad"] = "reference" if self._chance.random() < 0.5 else "known_bad"
        found = [item for one in self._recent.values() if not quarantined(one.digest) for item in _trees(one, kind)]
        if not found:
            return None
        chosen, name, tree = self._chance.choice(found)
        canary_id = f"{kind}:{record.trial_id}.{record.attempt}"
        return KnownAnswer(
            canary_id, kind, record.run_id, chosen, Admitted(dict(tree), ()), self._course(canary_id + name)
        )

    def again(self, record: RolloutCompleted, check: CheckSet, admitted: Admitted) -> KnownAnswer | None:
        """The audit of a pass, mostly none."""
        if not self._strikes(self._settings.audit_share):
            return None
        audit_id = f"audit:{record.trial_id}.{record.attempt}"
        return KnownAnswer(
            audit_id, "audit", record.run_id, check, admitted, self._course(audit_id, AUDIT_FACTOR, thorough=True),
            record.trial_id, record.policy_version,
        )  # fmt: skip

    def _strikes(self, share: float) -> bool:
        return share > 0 and self._chance.random() < share

    def _course(self, name: str, factor: int = 1, thorough: bool = False) -> Course:
        return Course(name, factor * self._settings.trials, self._settings.infra_retries, thorough)


def _trees(check: CheckSet, kind: str) -> list[tuple[CheckSet, str, Mapping[str, str]]]:
    if kind == "reference":
        return [(check, "", check.reference)] if check.reference else []
    return [(check, f".{number}", tree) for number, tree in enumerate(check.known_bad)]
