"""A quick look at check sets, without sandboxes: the reference passes every trial, known-bad and narrow programs fail.

For whoever writes or imports tasks. It proves nothing about the verifier: certificates come from `tasks certify`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from services.tasks.bench import Bench
from services.tasks.fixture import CheckSet
from services.tasks.repair import reference_fault
from services.tasks.survival import Survey

TRIALS = 3


@dataclass(frozen=True)
class QuickLook:
    """What was found about one check set; `kills` counts killed trials per known-bad tree, in their order.

    `refused`: why the reference cannot be handed in as a candidate's diff ("": it can). `domain` is about programs that
    are right for a part of the domain only.
    """

    task_id: str
    trials: int
    reference_passes: int
    kills: tuple[int, ...]
    refused: str = ""
    domain: Survey = field(default_factory=Survey)

    @property
    def sound(self) -> bool:
        """Whether nothing deviated from what a sound check set must show."""
        clean = self.reference_passes == self.trials and all(kills == self.trials for kills in self.kills)
        return clean and not self.refused and not self.domain.living

    def deviation(self) -> str:
        """What is wrong, in words; empty where nothing is."""
        found = [f"the reference's own diff would be refused ({self.refused})"] if self.refused else []
        if self.reference_passes < self.trials:
            found.append(f"the reference passed {self.reference_passes} of {self.trials} trials")
        for number, kills in enumerate(self.kills):
            if kills < self.trials:
                name = "the unrepaired base" if number == 0 else f"known-bad tree {number}"
                found.append(f"{name} passed {self.trials - kills} of {self.trials} trials")
        if self.domain.living:
            found.append(f"{len(self.domain.living)} of {self.domain.made} domain mutants live")
        return "; ".join(found)


def passes(bench: Bench, check: CheckSet, tree: Mapping[str, str], seed: str) -> bool:
    """Whether a one-file tree answers every input of one trial as expected; stops at the first that it does not."""
    (source,) = tree.values()
    if bench.load(source, check.entry) is not None:
        return False
    for args in check.inputs(Random(seed)):
        got = bench.ask(args, check.comparator, check.call_cpu_s)
        if got is None or not check.agrees(check.expected(args), got, args):
            return False
    return True


def look(bench: Bench, check: CheckSet, trials: int = TRIALS) -> QuickLook:
    """Run reference and known-bad trees over `trials` seeded trials each. Raises ValueError without a reference."""
    if not check.reference:
        raise ValueError(f"{check.task_id}: the check set holds no reference tree")
    seeds = [f"look/{check.task_id}/{trial}" for trial in range(trials)]
    kept = sum(passes(bench, check, check.reference, seed) for seed in seeds)
    kills = tuple(sum(not passes(bench, check, tree, seed) for seed in seeds) for tree in check.known_bad)
    return QuickLook(check.task_id, trials, kept, kills, reference_fault(check) or "")
