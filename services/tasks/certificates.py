"""What is known about how well a check-set judges: certificates by the check-set's digest, kept in one document.

A certificate's own part is about one check-set (its known-bad trees, its decoys). Its `Pool` is about the rules that
many check-sets share; the runs of all of them count together there, because nothing else can tell them apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from services.tasks.fixture import CheckSet, Fixture, content_digest
from services.tasks.taskset import BadDocument, opened, sealed

FORMAT = "rollstream.tasks.certificates/1"
CONFIDENCE = 0.95
MIN_KILL_RATE = 0.9
RUNTIME_MARGIN = 3.0
"""The 99th percentile of a reference run's CPU time times this must stay below the limit of a run."""
LIVING_NAMED = 8
_DERIVED = ("flake_bound", "confidence", "kill_rate")

State = Literal["certified", "quarantined"]


def flake_bound(clean_runs: int, confidence: float = CONFIDENCE) -> float:
    """Upper bound on the chance that one run of a right answer fails, after so many runs without a failure.

    1 - (1 - confidence)^(1/n): the largest p for which n clean runs still have probability 1 - confidence.
    60 runs give 4.9 %, 300 give 1.0 % (95 %). 1.0 without any run.
    """
    return 1.0 if clean_runs < 1 else float(1.0 - (1.0 - confidence) ** (1.0 / clean_runs))


def judging_key(check: CheckSet) -> str:
    """Digest of everything that decides how `check` judges, but for its name, its known-bad trees and its decoys.

    Check-sets with one key ask inputs from one generator (or the same fixed cases), hold one reference, and compare by
    one rule under one limit: a run of the reference under one of them is evidence for all of them.
    """
    rules = check.to_json()
    for own in ("task_id", "known_bad", "decoys"):
        del rules[own]
    return content_digest(rules)


@dataclass(frozen=True)
class Tally:
    """How many runs there were, and how many of them ended as a sound check-set ends them."""

    runs: int = 0
    right: int = 0

    @property
    def clean(self) -> bool:
        """Whether there were runs and all ended as they should."""
        return 0 < self.runs == self.right

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.runs + other.runs, self.right + other.right)


@dataclass(frozen=True)
class Mutants:
    """Changed references under trial: `killed` were rejected by a verdict of up to `trials` runs, `at_first` of them by
    the first run already.

    `equivalent` passed and no input of a large sample told them from the reference; `method` says how that was decided.
    `spared` describes the others that passed.
    """

    total: int = 0
    killed: int = 0
    at_first: int = 0
    equivalent: int = 0
    trials: int = 0
    method: str = ""
    spared: tuple[str, ...] = ()

    @property
    def kill_rate(self) -> float:
        """Killed share of the mutants that are not equivalent; 1.0 where there is none."""
        different = self.total - self.equivalent
        return self.killed / different if different else 1.0


@dataclass(frozen=True)
class DomainMutants:
    """Programs that are right for a part of the domain only (services/tasks/domain_mutants.py), of `made` in all.

    `killed`: no `trials` check runs let one through but with a probability of `survival` at most (at `CONFIDENCE`).
    `equivalent`: no input of the domain that was found tells them from the reference; `undecided`: nobody could ask.
    `living` names those that live, up to `LIVING_NAMED` of `alive`, each with an input that would kill it.
    """

    made: int = 0
    killed: int = 0
    equivalent: int = 0
    undecided: int = 0
    alive: int = 0
    living: tuple[str, ...] = ()
    survival: float = 0.0
    trials: int = 0
    method: str = ""


@dataclass(frozen=True)
class Pool:
    """Evidence about one judging key, by one verifier on one backend.

    `reference` are runs of the reference by load ("idle", "2x": twice as many busy processes as CPUs). `forgeries` are
    the verdicts on programs that try to be judged right without an answer (services/tasks/forgeries.py): right is
    rejected. `cpu_p99_s` and `cpu_limit_s` are CPU seconds of a whole run; None where nothing measured them. `seed` is
    what all trial seeds were derived from. `made_at` is an ISO date and time in UTC. `domain` is None in certificates
    from before domain mutants were tried.
    """

    key: str
    problem: str
    reference: Mapping[str, Tally]
    mutants: Mutants
    forgeries: Tally
    cpu_p99_s: float | None
    cpu_limit_s: float
    seed: int
    verifier_digest: str
    backend: str
    made_at: str
    domain: DomainMutants | None = None

    @property
    def runs(self) -> Tally:
        """Reference runs at every load together."""
        return sum(self.reference.values(), Tally())

    @property
    def flake_bound(self) -> float:
        """Upper bound at `CONFIDENCE` on the flake rate; 1.0 when a reference failed."""
        return flake_bound(self.runs.runs) if self.runs.clean else 1.0

    def faults(self) -> list[str]:
        """What keeps check-sets of this key from being certified, in words."""
        found = []
        if not self.runs.clean:
            found.append(f"the reference passed {self.runs.right} of {self.runs.runs} runs")
        if self.forgeries.right < self.forgeries.runs:
            found.append(f"{self.forgeries.runs - self.forgeries.right} of {self.forgeries.runs} forgeries passed")
        if not self.mutants.total:
            found.append("no mutant of the reference was tried")
        if self.mutants.kill_rate < MIN_KILL_RATE:
            found.append(f"{self.mutants.kill_rate:.0%} of the mutants are killed, {MIN_KILL_RATE:.0%} are needed")
        if self.domain is not None and self.domain.alive:
            found.append(f"{self.domain.alive} of {self.domain.made} domain mutants live: {self.domain.living[0]}")
        if self.cpu_p99_s is not None and self.cpu_p99_s * RUNTIME_MARGIN >= self.cpu_limit_s:
            found.append(f"a run needs {self.cpu_p99_s:.2f} s of CPU, too near to its limit of {self.cpu_limit_s:g} s")
        return found

    @cached_property
    def digest(self) -> str:
        """Content digest; what certificates name it by."""
        return content_digest(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Canonical-JSON-able data; what follows from the rest is there for its readers only."""
        out = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        out["reference"] = {load: [tally.runs, tally.right] for load, tally in self.reference.items()}
        out["forgeries"] = [self.forgeries.runs, self.forgeries.right]
        out["mutants"] = {**dataclasses.asdict(self.mutants), "spared": list(self.mutants.spared)}
        del out["domain"]
        if self.domain is not None:
            out["domain"] = {**dataclasses.asdict(self.domain), "living": list(self.domain.living)}
        derived = (self.flake_bound, CONFIDENCE, self.mutants.kill_rate)
        return {**out, **dict(zip(_DERIVED, derived, strict=True))}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Pool:
        """Inverse of `to_json`. Raises KeyError or TypeError."""
        fields = {name: value for name, value in document.items() if name not in _DERIVED}
        fields["reference"] = {load: Tally(*counts) for load, counts in fields["reference"].items()}
        fields["forgeries"] = Tally(*fields["forgeries"])
        fields["mutants"] = Mutants(**{**fields["mutants"], "spared": tuple(fields["mutants"]["spared"])})
        if "domain" in fields:
            fields["domain"] = DomainMutants(**{**fields["domain"], "living": tuple(fields["domain"]["living"])})
        return cls(**fields)


@dataclass(frozen=True)
class Certificate:
    """What was found about one check-set. `reference`, `no_op` and `known_bad` count its own runs.

    `version` counts the certificates of this task; `previous` is the digest of the one before ("": none).
    """

    task_id: str
    check_digest: str
    state: State
    reason: str
    reference: Tally
    no_op: Tally
    known_bad: Tally
    pool: Pool
    version: int = 1
    previous: str = ""

    @cached_property
    def digest(self) -> str:
        """Content digest, the pool's included."""
        return content_digest(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Canonical-JSON-able data; the pool by its digest."""
        out = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        for name in ("reference", "no_op", "known_bad"):
            out[name] = [out[name].runs, out[name].right]
        out["pool"] = self.pool.digest
        return {name: value for name, value in out.items() if value != ""}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], pools: Mapping[str, Pool]) -> Certificate:
        """Inverse of `to_json`. Raises KeyError or TypeError."""
        fields = {"reason": "", **document}
        for name in ("reference", "no_op", "known_bad"):
            fields[name] = Tally(*fields[name])
        if fields["state"] not in ("certified", "quarantined"):
            raise KeyError(fields["state"])
        fields["pool"] = pools[fields["pool"]]
        return cls(**fields)


@dataclass(frozen=True)
class Change:
    """A certificate that was replaced: what it said, and why another took its place."""

    task_id: str
    version: int
    digest: str
    check_digest: str
    state: str
    reason: str
    why: str


@dataclass(frozen=True)
class Certificates:
    """The newest certificate of every task, and what came before. Immutable: `updated` gives another."""

    by_task: Mapping[str, Certificate] = field(default_factory=dict)
    history: tuple[Change, ...] = ()

    @cached_property
    def _by_check(self) -> dict[str, Certificate]:
        return {certificate.check_digest: certificate for certificate in self.by_task.values()}

    def get(self, check_digest: str) -> Certificate | None:
        """The certificate of exactly this check-set; None: there is none."""
        return self._by_check.get(check_digest)

    def refusal(self, check_digest: str) -> str | None:
        """Why nothing may be learnt from this check-set, in words; None: it is certified."""
        found = self.get(check_digest)
        if found is None:
            return "no certificate"
        return None if found.state == "certified" else f"quarantined: {found.reason}"

    def refusals(self, fixtures: Iterable[Fixture]) -> dict[str, str]:
        """The tasks of `fixtures` whose check-sets are not certified, with the reason, in order."""
        found = ((fixture.task_id, self.refusal(fixture.check_digest)) for fixture in fixtures)
        return {task_id: why for task_id, why in found if why is not None}

    def quarantined(self, fixtures: Iterable[Fixture]) -> dict[str, str]:
        """The tasks of `fixtures` that must not be trained on even by special leave, with the reason."""
        found = ((fixture.task_id, self.get(fixture.check_digest)) for fixture in fixtures)
        return {task_id: kept.reason for task_id, kept in found if kept is not None and kept.state == "quarantined"}

    def updated(self, found: Iterable[Certificate], why: str) -> Certificates:
        """With `found` in place of what is held for their tasks; each counts its task's version up by one."""
        by_task, history = dict(self.by_task), list(self.history)
        for new in found:
            old = by_task.get(new.task_id)
            if old is not None:
                history.append(
                    Change(old.task_id, old.version, old.digest, old.check_digest, old.state, old.reason, why)
                )
                new = dataclasses.replace(new, version=old.version + 1, previous=old.digest)
            by_task[new.task_id] = new
        return Certificates(by_task, tuple(history))

    def document(self) -> bytes:
        """Canonical JSON with its content digest; a pool is written once however many certificates name it."""
        ordered = [self.by_task[task_id] for task_id in sorted(self.by_task)]
        pools = {certificate.pool.digest: certificate.pool for certificate in ordered}
        return sealed(
            {
                "format": FORMAT,
                "pools": [pools[digest].to_json() for digest in sorted(pools)],
                "certificates": [certificate.to_json() for certificate in ordered],
                "history": [dataclasses.asdict(change) for change in self.history],
            }
        )


def load(document: bytes) -> Certificates:
    """The certificates of a document. Raises BadDocument."""
    body = opened(document, FORMAT)
    try:
        pools = {pool.digest: pool for pool in map(Pool.from_json, body["pools"])}
        found = [Certificate.from_json(item, pools) for item in body["certificates"]]
        history = tuple(Change(**item) for item in body["history"])
        return Certificates({certificate.task_id: certificate for certificate in found}, history)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadDocument(f"certificates: malformed content ({error!r})") from error


def shipped() -> bytes:
    """The document that comes with the catalogue (built with seed 0)."""
    from importlib import resources

    return resources.files("services.tasks.catalogue").joinpath("certificates.json").read_bytes()


def decide(own: Sequence[str], pool: Pool) -> tuple[State, str]:
    """State and reason of a check-set: faults of its own runs first, then those of its key."""
    faults = [*own, *pool.faults()]
    return ("quarantined", "; ".join(faults)) if faults else ("certified", "")
