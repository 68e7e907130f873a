"""One check run: fresh inputs, a fresh jail, answers over the pipe, each judged as it comes, on this side."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from services.runtime.jail import program, session
from services.runtime.jail.backend import Backend, Options, own_processes
from services.runtime.jail.limits import JailFault, Limits, Usage, host_oom_kills, host_pressure
from services.tasks import answers, values
from services.tasks.fixture import CheckSet, Outcome
from services.tasks.oracle import ReferenceFault
from services.verifier.attribution import Facts

_IMPORT_CPU_S = 0.5
# A call's wall deadline leaves the kernel time to meet the process's CPU limit first, on a machine this much shared:
# who spins is then told apart from who sleeps.
_SHARED = 6.0


@dataclass(frozen=True)
class Bounds:
    """What one check run may use: the check set's own `call_cpu_s` is capped by this one.

    `boot_s`: how long a jail may take to say that it is there (infrastructure). `all_cases`: a wrong answer does not
    end the run, so that right ones can be counted.
    """

    limits: Limits
    call_cpu_s: float
    wall_s: float
    boot_s: float = 15.0
    all_cases: bool = False


class Comparison:
    """Judges answers one by one as they arrive; `rejection` is the stable word of the first that was not right."""

    def __init__(self, check: CheckSet, calls: list[tuple[Any, ...]], all_cases: bool) -> None:
        self._check = check
        self._calls = calls
        self._all_cases = all_cases
        # The text of nodes does not tell them apart; of plain values, all of it but the order of a set's items does.
        self._keys = [values.dumps(args) if check.objects else repr(args) for args in calls]
        self._repeated = {key for key, times in Counter(self._keys).items() if times > 1}
        self._said: dict[str, tuple[str, Outcome]] = {}
        # Before anything runs: a fault of the check itself is never the candidate's.
        self._expected = [check.expected(args) for args in calls]
        for args, expected in zip(calls, self._expected, strict=True):
            if not check.agrees(expected, expected, args):
                raise ReferenceFault(f"{check.task_id}: {check.comparator!r} rejects the reference's own answer")
        self.rejection: str | None = None
        self._right = 0

    @property
    def count(self) -> int | None:
        """How many answers were right, where every case is asked."""
        return self._right if self._all_cases else None

    def accept(self, index: int, answer: session.Answer) -> bool:
        """Whether to go on."""
        found = self._judge(index, answer)
        self._right += found is None
        self.rejection = self.rejection or found
        return self._all_cases or found is None

    def _judge(self, index: int, answer: session.Answer) -> str | None:
        if answer.kind == answers.UNENCODABLE:
            return "unencodable"
        try:
            got = answers.outcome_of(answer.kind, answer.text, self._check.comparator, self._check.objects)
        except values.ValueCodecError:
            return "undecodable"
        expected = self._expected[index]
        try:
            if not self._consistent(self._keys[index], answer.kind + answer.text, got):
                return "inconsistent"
            right = self._check.agrees(expected, got, self._calls[index])
        except Exception:  # the value is the candidate's: one that breaks the comparison is wrong, not a fault of ours
            return "uncomparable"
        if right:
            return None
        return "wrong_value" if got.error is None and expected.error is None else "wrong_exception"

    def _consistent(self, key: str, text: str, got: Outcome) -> bool:
        """The same question gets the same answer within one run, but for what the contract leaves open."""
        if key not in self._repeated:
            return True
        first_text, first = self._said.setdefault(key, (text, got))
        return text == first_text or self._check.consistent(first, got)


def hash_seed(seed: int) -> int:
    """The jail's PYTHONHASHSEED, 0..2**32-1: follows from the trial's seed and tells nothing of it."""
    return int.from_bytes(hashlib.sha256(f"hash seed of {seed}".encode()).digest()[:4], "big")


def run(host: Backend, tree: Mapping[str, str], check: CheckSet, seed: int, bounds: Bounds) -> Facts:
    """One check run of a candidate's tree. Never raises for anything that the candidate does.

    Raises whatever the check set raises while it makes inputs and expected answers.
    """
    if check.hidden_tests is not None:
        from services.verifier.hidden import run as hidden

        facts = hidden.run(host, tree, check, seed, bounds)
    else:
        facts = _run(host, tree, check, seed, bounds)
    return replace(facts, evidence=host.evidence)


def _run(host: Backend, tree: Mapping[str, str], check: CheckSet, seed: int, bounds: Bounds) -> Facts:
    calls = check.inputs(random.Random(seed))
    comparison = Comparison(check, calls, bounds.all_cases)
    try:
        what = answers.program_of(tree, check.entry, check.comparator, check.objects)
    except program.NoEntry:
        return Facts(
            ready=False,
            import_error="ModuleNotFoundError",
            wanted=len(calls),
            right=comparison.count,
            backend=host.name,
        )
    options = Options(hash_seed=hash_seed(seed))
    call_cpu_s = min(bounds.call_cpu_s, check.call_cpu_s)
    host_kills = host_oom_kills()
    try:
        jail = host.launch(bounds.limits, options)
    except JailFault as fault:
        return _fault("no_start", fault, host, options)
    usage = Usage()
    try:
        processes = own_processes(host, bounds.limits)
        transcript = session.run_trial(
            jail, bounds.limits, what, calls, comparison.accept, call_cpu_s, _IMPORT_CPU_S, bounds.wall_s,
            bounds.boot_s, processes, call_wall_s=_SHARED * bounds.limits.cpu_s,
        )  # fmt: skip
    except JailFault as fault:
        return _fault("no_boot", fault, host, options)
    finally:
        usage = jail.close()
    kills = host_oom_kills()
    return Facts(
        booted=transcript.booted,
        ready=transcript.ready,
        import_error=transcript.failure[0] if transcript.failure else None,
        ending=transcript.ending,
        rejection=comparison.rejection,
        wanted=len(calls),
        answered=transcript.answered,
        wall_s=transcript.wall_s,
        usage=usage,
        memory_limit=bounds.limits.memory_bytes,
        cpu_limit=bounds.limits.cpu_s,
        pressure=host_pressure(),
        host_oom=None not in (kills, host_kills) and kills != host_kills,
        hash_seed=options.hash_seed,
        backend=host.name,
        right=comparison.count,
        boot_s=transcript.boot_s,
    )


def _fault(kind: str, fault: JailFault, host: Backend, options: Options) -> Facts:
    return Facts(fault=kind, booted=False, import_error=str(fault), hash_seed=options.hash_seed, backend=host.name)
