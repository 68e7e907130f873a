"""Certifies check-sets through the verifier's own path: known answers, many times, must get their known verdicts.

Check-sets of one judging key are certified together: they share the reference's runs, which bound the flake rate, and
the mutants and forgeries, which show what the rules let through. The unrepaired code and the known-bad trees are each
one's own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from services.runtime.jail import program
from services.tasks.certificates import Certificate, Mutants, Pool, Tally, decide, judging_key
from services.tasks.fixture import CheckSet
from services.tasks.forgeries import forgeries
from services.tasks.mutants import CAP, Mutant, equivalent, mutants
from services.tasks.repair import reference_fault
from services.verifier.certify import domain
from services.verifier.certify.load import busy, oversubscribed
from services.verifier.certify.runs import CheckRun, Finding, Probe, Role, run_probes, trial_seed

RUNS = 300
"""Clean runs of the reference per judging key: they bound its flake rate at 1 % with 95 % confidence."""
REJECTIONS = 5
"""Runs of the unrepaired code and of every known-bad tree, all of which must be rejected."""
VERDICT_RUNS = 3
"""A mutant or a forgery is killed when a verdict of so many runs rejects it."""
IDLE, LOADED = "idle", "2x"
_LOADED_SHARE = 0.2
_SPARED_SHOWN = 8

Progress = Callable[[str, int], None]
"""Told the problem and how many more of the planned probes are done with."""


@dataclass(frozen=True)
class Setting:
    """How to certify, and what is written down about it: `runs` per key, `seed` of all trial seeds, who judges."""

    verifier_digest: str
    backend: str
    cpu_limit_s: float
    workers: int = 2
    runs: int = RUNS
    seed: int = 0


def by_key(checks: Iterable[CheckSet]) -> list[list[CheckSet]]:
    """Check-sets that judge alike, in the order of their first."""
    found: dict[str, list[CheckSet]] = defaultdict(list)
    for check in checks:
        found[judging_key(check)].append(check)
    return list(found.values())


@dataclass
class _Key:
    """What was found so far about the check-sets of one key. `deviation`: the reference's, which ends everything."""

    own: dict[str, dict[str, Tally]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(Tally)))
    reference: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    faults: dict[str, str] = field(default_factory=dict)
    deviation: str = ""
    cpu_s: list[float] = field(default_factory=list)
    killed_after: list[int] = field(default_factory=list)
    survivors: list[Mapping[str, str]] = field(default_factory=list)
    forgeries: Tally = field(default_factory=Tally)
    forged: list[str] = field(default_factory=list)
    domain: list[Finding] = field(default_factory=list)

    def note(self, finding: Finding, load: str) -> None:
        role, task_id = finding.probe.role, finding.probe.check.task_id
        if role == "mutant" and finding.outcome != "broken":
            if finding.outcome == "pass":
                self.survivors.append(finding.probe.tree)
            else:
                self.killed_after.append(finding.runs)
            return
        if role == "domain" and finding.outcome != "broken":
            self.domain.append(finding)
            return
        one = Tally(1, int(finding.right))
        if role == "forgery" and finding.outcome != "broken":
            self.forgeries += one
            if not finding.right:
                self.forged.append(finding.deviation(load))
            return
        self.own[task_id][role] += one
        if role == "reference":
            self.reference[load] += one
            if finding.cpu_s is not None:
                self.cpu_s.append(finding.cpu_s)
        if finding.right:
            return
        self.faults.setdefault(task_id, finding.deviation(load))
        if role == "reference" or finding.outcome == "broken":
            self.deviation = self.deviation or f"{finding.deviation(load)} ({task_id})"

    def goes_on(self, probes: Iterable[Probe]) -> Iterator[Probe]:
        """Probes that can still tell something new."""
        for probe in probes:
            pooled = probe.role in ("reference", "mutant", "domain", "forgery")
            if not self.deviation and (pooled or probe.check.task_id not in self.faults):
                yield probe


class Certifier:
    """Certifies the check-sets of one key at a time; `check_run` is the verifier's."""

    def __init__(self, check_run: CheckRun, setting: Setting, progress: Progress = lambda problem, runs: None) -> None:
        self._check_run = check_run
        self._setting = setting
        self._progress = progress

    def planned(self, checks: Sequence[CheckSet]) -> int:
        """Probes of `key(checks)` when nothing ends it early."""
        return sum(len(probes) for _, probes in self._plan(checks, self._mutants(checks[0])))

    def key(self, checks: Sequence[CheckSet]) -> list[Certificate]:
        """Certificates of check-sets that judge alike. Raises UserError when no sandbox can be had."""
        found = _Key()
        changed = self._mutants(checks[0])
        for load, probes in self._plan(checks, changed):
            with busy(oversubscribed()) if load == LOADED and probes else nullcontext():
                for finding in run_probes(self._check_run, found.goes_on(probes), self._setting.workers):
                    found.note(finding, load)
                    self._progress(checks[0].problem, 1)
        pool = self._pool(checks[0], changed, found)
        return [self._certificate(check, found, pool) for check in checks]

    def _mutants(self, check: CheckSet) -> tuple[tuple[Mapping[str, str], Mutant], ...]:
        """(tree, mutant) for every mutant of the reference; none of one that is no Python (no run of it passes)."""
        files = {path: text for path, text in check.reference.items() if path.endswith(".py")}
        rng = Random(f"{self._setting.seed}/{judging_key(check)}")
        with suppress(SyntaxError):
            return tuple(
                ({**check.reference, path: mutant.source}, mutant)
                for path, text in files.items()
                for mutant in mutants(text, rng, CAP // len(files))
            )
        return ()

    def _plan(
        self, checks: Sequence[CheckSet], changed: Sequence[tuple[Mapping[str, str], Mutant]]
    ) -> list[tuple[str, list[Probe]]]:
        """Probes by load. The cheapest disagreements come first; mutants go round over the check-sets."""
        count = math.ceil(self._setting.runs / len(checks))
        loaded = math.ceil(count * _LOADED_SHARE)
        idle: list[Probe] = []
        for check in checks:
            idle += self._own(check)
            idle += self._references(check, range(count - loaded))
        wrong: list[tuple[Role, str, Mapping[str, str]]] = [("mutant", mutant.what, tree) for tree, mutant in changed]
        wrong += [("forgery", f"a forgery ({what})", tree) for what, tree in _forged(checks[0])]
        for number, (role, name, tree) in enumerate(wrong):
            check = checks[number % len(checks)]
            seeds = tuple(trial_seed(self._setting.seed, check, f"{role} {number}", at) for at in range(VERDICT_RUNS))
            idle.append(Probe(check, tree, role, name, seeds))
        idle += domain.probes(checks[0], self._setting.seed)
        under_load = [probe for check in checks for probe in self._references(check, range(count - loaded, count))]
        return [(IDLE, idle), (LOADED, under_load)]

    def _own(self, check: CheckSet) -> list[Probe]:
        probes = []
        for number, tree in enumerate(check.known_bad):
            name = f"known-bad tree {number}" if number else "the unrepaired code"
            seeds = (trial_seed(self._setting.seed, check, name, at) for at in range(REJECTIONS))
            role: Role = "known_bad" if number else "no_op"
            probes += [Probe(check, tree, role, name, (seed,)) for seed in seeds]
        return probes

    def _references(self, check: CheckSet, numbers: Iterable[int]) -> list[Probe]:
        if not check.reference:
            return []
        seeds = (trial_seed(self._setting.seed, check, "reference", number) for number in numbers)
        return [Probe(check, check.reference, "reference", "the reference", (seed,)) for seed in seeds]

    def _pool(self, check: CheckSet, changed: Sequence[tuple[Mapping[str, str], Mutant]], found: _Key) -> Pool:
        setting = self._setting
        left = [mutant for tree, mutant in changed if tree in found.survivors]
        alike: tuple[Mutant, ...] = ()
        method = "every one was killed"
        if left and not found.deviation:
            alike, method = equivalent(check, left, Random(setting.seed))
        spared = [mutant.what for mutant in left if mutant not in alike]
        tried = Mutants(
            total=len(found.killed_after) + len(left),
            killed=len(found.killed_after),
            at_first=found.killed_after.count(1),
            equivalent=len(alike),
            trials=VERDICT_RUNS,
            method=method,
            spared=tuple(spared[:_SPARED_SHOWN]),
        )
        return Pool(
            key=judging_key(check),
            problem=check.problem,
            reference=dict(found.reference),
            mutants=tried,
            forgeries=found.forgeries,
            cpu_p99_s=_p99(found.cpu_s),
            cpu_limit_s=setting.cpu_limit_s,
            seed=setting.seed,
            verifier_digest=setting.verifier_digest,
            backend=setting.backend,
            made_at=datetime.now(UTC).isoformat(timespec="seconds"),
            domain=None if found.deviation else domain.found(check, found.domain, setting.seed),
        )

    def _certificate(self, check: CheckSet, found: _Key, pool: Pool) -> Certificate:
        own = found.own[check.task_id]
        faults = [found.faults[check.task_id]] if check.task_id in found.faults else []
        if found.deviation and not faults:
            faults.append(f"another check-set that judges alike: {found.deviation}")
        faults += found.forged
        if not check.reference:
            faults.append("it holds no reference")
        if not check.known_bad:
            faults.append("it holds no tree that must fail")
        if (refused := reference_fault(check)) is not None:
            faults.append(f"no candidate can hand in the reference: its diff is refused ({refused})")
        state, reason = decide(faults, pool)
        return Certificate(
            check.task_id, check.digest, state, reason, own["reference"], own["no_op"], own["known_bad"], pool
        )


def _forged(check: CheckSet) -> list[tuple[str, dict[str, str]]]:
    """(what is tried, tree) for every forgery in the place of the reference's entry."""
    try:
        path, _, function = program.locate(check.reference, check.entry)
    except program.NoEntry:
        return []
    return [(what, {**check.reference, path: source}) for what, source in forgeries(function).items()]


def _p99(cpu_s: Sequence[float]) -> float | None:
    return round(sorted(cpu_s)[math.ceil(0.99 * len(cpu_s)) - 1], 4) if cpu_s else None
