"""Domain mutants in certification: asked without sandboxes where plain values are, else by the check itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest
from random import Random

from services.runtime.jail import program
from services.tasks import domain_cuts, survival
from services.tasks.certificates import LIVING_NAMED, DomainMutants
from services.tasks.domain_mutants import DomainMutant, domain_mutants
from services.tasks.fixture import CheckSet
from services.verifier.certify.runs import Finding, Probe, trial_seed

CAP = 24
"""Domain mutants that the check itself is asked about: hidden tests take a second each."""


def probes(check: CheckSet, seed: int) -> list[Probe]:
    """One probe for each domain mutant that only the check itself can tell; none where `survey` asks.

    Fixed cases and hidden tests ask the same in every run, so one run says it all. Fresh linked nodes have no way yet.
    """
    if survival.surveyable(check) or check.evidence == "E3":
        return []
    try:
        path = _path(check)
        made = _made(check, path, Random(seed))
    except (SyntaxError, program.NoEntry):
        return []
    seeds = [(trial_seed(seed, check, f"domain {number}", 0),) for number in range(len(made))]
    trees = [{**check.reference, path: mutant.source} for mutant in made]
    return [
        Probe(check, tree, "domain", mutant.what, asked) for tree, mutant, asked in zip(trees, made, seeds, strict=True)
    ]


def found(check: CheckSet, asked: Sequence[Finding], seed: int) -> DomainMutants:
    """What is written down: `asked` are the findings of `probes`, the rest is asked here."""
    if survival.surveyable(check):
        survey = survival.survey(check, seed)
        named = tuple(living.told for living in survey.living[:LIVING_NAMED])
        return DomainMutants(
            survey.made, survey.killed, survey.equivalent, survey.undecided, len(survey.living), named,
            round(survey.worst, 6), survival.VERDICT_RUNS, survey.method,
        )  # fmt: skip
    killed = sum(finding.outcome != "pass" for finding in asked)
    spared = [finding.probe.name for finding in asked if finding.outcome == "pass"]
    method = "the check itself was asked once each; whether what passed is wrong where it may be asked is not decided"
    if not asked:
        method = "not decided: nothing here can ask the check-set's domain"
    elif spared:
        method += ": " + ", ".join(spared[:LIVING_NAMED])
    return DomainMutants(len(asked), killed, 0, len(spared), trials=1, method=method)


def _path(check: CheckSet) -> str:
    tests = check.hidden_tests
    return program.locate(check.reference, check.entry if tests is None else f"{tests.module}:")[0]


def _made(check: CheckSet, path: str, rng: Random) -> list[DomainMutant]:
    """Up to `CAP` mutants, kinds in turn."""
    source = check.reference[path]
    if check.hidden_tests is None:
        entry = program.locate(check.reference, check.entry)[2]
        cases = [(case.args, case.outcome()) for case in check.fixed_cases]
        made = domain_mutants(source, entry, cases, [(case.args, case.outcome()) for case in check.decoys])
    else:
        functions = check.hidden_tests.api.get("functions", ())
        made = [mutant for name in functions for mutant in domain_mutants(source, name, ())]
        made += (
            []
            if functions
            else [DomainMutant(kind, what, text) for kind, what, text, *_ in domain_cuts.changed(source)]
        )
    kinds: dict[str, list[DomainMutant]] = {}
    for mutant in {mutant.source: mutant for mutant in made}.values():
        kinds.setdefault(mutant.kind, []).append(mutant)
    for several in kinds.values():
        rng.shuffle(several)
    return [mutant for mutant in chain.from_iterable(zip_longest(*kinds.values())) if mutant is not None][:CAP]
