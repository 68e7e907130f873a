"""Many check runs of known answers over a few threads; infrastructure faults are repeated and never counted."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from services.runtime.errors import UserError
from services.tasks.fixture import CheckSet
from services.verifier.attribution import Facts, attribute
from services.verifier.judge import pause_s

Role = Literal["reference", "no_op", "known_bad", "mutant", "domain", "forgery"]
CheckRun = Callable[[Mapping[str, str], CheckSet, int], Facts]
"""One check run of a tree against a check set with a trial seed: the verifier's own."""

_FAULTS = 8
_BACKOFF_S = 0.1


def trial_seed(base: int, check: CheckSet, role: str, number: int) -> int:
    """63 bits that depend on everything they are for: the same certification asks the same questions again."""
    named = f"{base}/{check.digest}/{role}/{number}"
    return int.from_bytes(hashlib.sha256(named.encode()).digest()[:8], "big") >> 1


@dataclass(frozen=True)
class Probe:
    """A tree whose verdict is known beforehand; it is run once for each of `seeds`, up to its first rejection."""

    check: CheckSet
    tree: Mapping[str, str]
    role: Role
    name: str
    seeds: tuple[int, ...]

    @property
    def wanted(self) -> str:
        """How a sound check-set ends it."""
        return "pass" if self.role == "reference" else "fail"


@dataclass(frozen=True)
class Finding:
    """How a probe ended: after how many runs, for what cause, at which seed. `broken`: the check-set itself failed."""

    probe: Probe
    outcome: Literal["pass", "fail", "broken"]
    cause: str
    runs: int
    seed: int
    cpu_s: float | None

    @property
    def right(self) -> bool:
        """Whether a sound check-set ends the probe like this."""
        return self.outcome == self.probe.wanted

    def deviation(self, load: str) -> str:
        """What went wrong, in words, with the seed that shows it again."""
        if self.outcome == "broken":
            return f"the check-set itself fails at trial seed {self.seed}: {self.cause}"
        how = "passed" if self.outcome == "pass" else f"failed ({self.cause})"
        return f"{self.probe.name} {how} at trial seed {self.seed}, load {load}"


def run_probes(check_run: CheckRun, probes: Iterable[Probe], workers: int) -> Iterator[Finding]:
    """Findings in the order in which they come. `probes` is read only a little ahead, so it may stop at any time.

    Raises UserError when a run meets nothing but infrastructure faults. Interrupted, it waits for running probes only.
    """
    coming = iter(probes)
    with ThreadPoolExecutor(workers, thread_name_prefix="certify") as pool:
        waiting: set[Future[Finding]] = set()
        try:
            while True:
                waiting |= {pool.submit(_run, check_run, one) for one in islice(coming, 2 * workers - len(waiting))}
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _run(check_run: CheckRun, probe: Probe) -> Finding:
    outcome, cause, cpu_s = "pass", "ok", None
    for number, seed in enumerate(probe.seeds, 1):
        try:
            outcome, cause, cpu_s = _without_faults(check_run, probe, seed)
        except UserError:
            raise
        except Exception as error:  # making inputs or expected answers failed: nothing of a candidate runs there
            return Finding(probe, "broken", f"{type(error).__name__}: {error}"[:200], number, seed, None)
        if outcome == "fail":
            return Finding(probe, "fail", cause, number, seed, cpu_s)
    return Finding(probe, "pass", cause, number, seed, cpu_s)


def _without_faults(check_run: CheckRun, probe: Probe, seed: int) -> tuple[str, str, float | None]:
    cause = ""
    for faults in range(_FAULTS):
        facts = check_run(probe.tree, probe.check, seed)
        outcome, cause = attribute(facts)
        if outcome != "infra":
            return outcome, cause, facts.usage.cpu_s
        time.sleep(pause_s(_BACKOFF_S, faults + 1))
    raise UserError(
        f"{_FAULTS} sandboxes in turn failed for infrastructure reasons ({cause})",
        f"certifying {probe.check.task_id}",
        "it is the sandbox's fault, not the task's: mend it and give the same command; what is certified is kept",
    )
