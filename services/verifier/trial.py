"""One check run: fresh inputs, a fresh jail, answers over the pipe, comparison on this side."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.runtime.jail import program, session
from services.runtime.jail.backend import Backend
from services.runtime.jail.limits import JailFault, Limits, Usage, host_oom_kills, host_pressure
from services.tasks import comparators, values
from services.tasks.answers import UNENCODABLE, outcome_of
from services.tasks.fixture import CheckSet
from services.verifier.attribution import Facts

_IMPORT_CPU_S = 0.5


@dataclass(frozen=True)
class Bounds:
    """What one check run may use: the check set's own `call_cpu_s` is capped by this one.

    `boot_s`: how long a jail may take to say that it is there (infrastructure).
    """

    limits: Limits
    call_cpu_s: float
    wall_s: float
    boot_s: float = 15.0


class Comparison:
    """Judges answers one by one as they arrive. The first rejection ends the run; `rejection` is its stable word."""

    def __init__(self, check: CheckSet, calls: list[tuple[Any, ...]]) -> None:
        self._check = check
        self._calls = calls
        self._said: dict[str, str] = {}
        self._keys = [values.dumps(args) for args in calls]
        # Before anything runs: a fault of the check itself is never the candidate's.
        self._expected = [check.expected(args) for args in calls]
        self.rejection: str | None = None

    def accept(self, index: int, answer: session.Answer) -> bool:
        """Whether to go on."""
        self.rejection = self._judge(index, answer)
        return self.rejection is None

    def _judge(self, index: int, answer: session.Answer) -> str | None:
        if answer.kind == UNENCODABLE:
            return "unencodable"
        # The same question must get the same answer, letter for letter, within one run.
        if self._said.setdefault(self._keys[index], answer.kind + answer.text) != answer.kind + answer.text:
            return "inconsistent"
        try:
            got = outcome_of(answer.kind, answer.text, self._check.comparator)
        except values.ValueCodecError:
            return "undecodable"
        expected = self._expected[index]
        if self._check.agrees(expected, got):
            return None
        return "wrong_value" if got.error is None and expected.error is None else "wrong_exception"


def run(host: Backend, tree: Mapping[str, str], check: CheckSet, seed: int, bounds: Bounds) -> Facts:
    """One check run of a candidate's tree. Never raises for anything that the candidate does.

    Raises whatever the check set raises while it makes inputs and expected answers.
    """
    calls = check.inputs(random.Random(seed))
    comparison = Comparison(check, calls)
    try:
        _, module, function = program.locate(tree, check.entry)
    except program.NoEntry:
        return Facts(ready=False, import_error="ModuleNotFoundError", wanted=len(calls))
    what = session.Program(
        tree, module, function, comparators.drains(check.comparator), comparators.wants_arguments(check.comparator),
        values.EXCEPTION_NAMES,
    )  # fmt: skip
    host_kills = host_oom_kills()
    try:
        jail = host.launch(bounds.limits)
    except JailFault as fault:
        return Facts(fault="no_start", booted=False, import_error=str(fault))
    usage = Usage()
    try:
        transcript = session.run_trial(
            jail, bounds.limits, what, calls, comparison.accept, min(bounds.call_cpu_s, check.call_cpu_s),
            _IMPORT_CPU_S, bounds.wall_s, bounds.boot_s, 0 if host.counts_processes else bounds.limits.processes,
        )  # fmt: skip
    except JailFault as fault:
        return Facts(fault="no_boot", booted=False, import_error=str(fault))
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
        answered=len(transcript.answers),
        wall_s=transcript.wall_s,
        usage=usage,
        memory_limit=bounds.limits.memory_bytes,
        cpu_limit=bounds.limits.cpu_s,
        pressure=host_pressure(),
        host_oom=None not in (kills, host_kills) and kills != host_kills,
    )
