"""The gate's core: one decision per published version, one result per evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from schemas.codec import ContractViolation
from schemas.policy import EvaluationResult, PolicyGate, PolicyPublished
from schemas.rollout import RolloutRequested
from schemas.topics import EVALUATION_RESULT, POLICY_GATE
from schemas.verification import VerificationAlarm, VerificationVerdict
from services.gate.evaluation import Cell, Evaluations
from services.gate.findings import Finding, decision, stopped, to_json, unusable
from services.runtime.core import BaseCore, Effects, Job, Message, Output
from services.runtime.errors import UserError

ATTEMPTS = 8
"""Tries at a checkpoint that fails for no known reason, before the version is held."""
BACKOFF_MS = 500
STORE_AGAIN_MS = 2_000
"""Between tries while the store does not answer or refuses us, which says nothing of the version."""


class UnusableCheckpoint(Exception):
    """The checkpoint is there and cannot be used; trying again would not help."""


Check = Callable[[PolicyPublished], list[Finding]]
"""Loads and probes a version, on a worker. Raises UnusableCheckpoint; any other exception is tried again."""


class GateCore(BaseCore):
    """Published versions in, decisions out, in order of version and one at a time; verdicts of evaluations in, results
    out. All inputs are replayed from their beginning, so what was decided or measured before is known.

    An alarm of severity `stop` halts every promoted version, the latest first, and each one published after it: what
    was learnt from verdicts that cannot be believed collects no data. A version that a person released stays released.
    """

    def __init__(
        self,
        run_id: str,
        check: Check,
        evaluations: Evaluations,
        clock: Callable[[], int],
        on_trouble: Callable[[int, str], None] = lambda version, why: None,
    ) -> None:
        self._run_id = run_id
        self._check = check
        self._evaluations = evaluations
        self._clock = clock
        self._on_trouble = on_trouble
        self._caught_up = False
        self._pending: dict[int, PolicyPublished] = {}
        self._decided: dict[int, PolicyGate] = {}
        self._alarm: VerificationAlarm | None = None
        self._halted: set[int] = set()
        self._running: int | None = None
        self._failures = 0
        self._not_before_ms = 0
        self._held = 0

    @property
    def pending_versions(self) -> int:
        """Published versions without a decision."""
        return len(self._pending)

    @property
    def held_versions(self) -> int:
        """Versions that this process held back."""
        return self._held

    @property
    def waiting(self) -> Mapping[Cell, int]:
        """See `Evaluations.waiting`."""
        return self._evaluations.waiting

    def handle(self, message: Message, now_ms: int) -> Effects:
        record = message.record
        if getattr(record, "run_id", None) != self._run_id:
            return Effects()
        if isinstance(record, PolicyPublished):
            if record.policy_version not in self._decided:
                self._pending.setdefault(record.policy_version, record)
        elif isinstance(record, PolicyGate):
            self._decided[record.policy_version] = record
            self._pending.pop(record.policy_version, None)
        elif isinstance(record, VerificationAlarm):
            if record.severity == "stop":
                self._alarm = self._alarm or record
        elif isinstance(record, RolloutRequested):
            self._evaluations.requested(record, now_ms)
        elif isinstance(record, VerificationVerdict):
            self._evaluations.judged(record, now_ms)
        elif isinstance(record, EvaluationResult):
            self._evaluations.measured(record)
        else:
            raise ContractViolation("topic", f"the gate does not read {type(record).__name__}")
        # Every update waits for its decision; a result can wait for the next tick.
        ready = self._caught_up and isinstance(record, PolicyPublished | PolicyGate | VerificationAlarm)
        return self._next(now_ms) if ready else Effects()

    def caught_up(self, now_ms: int) -> Effects:
        self._caught_up = True
        return self.tick(now_ms)

    def tick(self, now_ms: int) -> Effects:
        if not self._caught_up:
            return Effects()
        effects = self._next(now_ms)
        effects.outputs += [Output(EVALUATION_RESULT, result) for result in self._evaluations.due(now_ms)]
        return effects

    def _next(self, now_ms: int) -> Effects:
        """Halt what an alarm halts; then start on the lowest undecided version, unless one is under way or storage is
        being waited for."""
        effects = self._halt(now_ms)
        effects += self._start(now_ms)
        return effects

    def _halt(self, now_ms: int) -> Effects:
        if self._alarm is None:
            return Effects()
        promoted = {version for version, gate in self._decided.items() if gate.decision == "promoted"}
        effects = Effects()
        for version in sorted(promoted - self._halted, reverse=True):
            self._halted.add(version)
            gate = replace(
                self._decided[version],
                decision="halted",
                findings=to_json([stopped(self._alarm.kind, self._alarm.detail)]),
                decided_ms=now_ms,
            )
            self._decided[version] = gate
            effects.outputs.append(Output(POLICY_GATE, gate))
        return effects

    def _start(self, now_ms: int) -> Effects:
        if self._running is not None or not self._pending or now_ms < self._not_before_ms:
            return Effects()
        published = self._pending[min(self._pending)]
        self._running = published.policy_version
        return Effects(jobs=[Job(lambda: self._check(published), lambda result: self._checked(published, result))])

    def _checked(self, published: PolicyPublished, result: list[Finding] | Exception) -> Effects:
        self._running = None
        now_ms = self._clock()
        if isinstance(result, UnusableCheckpoint):
            result = unusable(str(result))
        if isinstance(result, Exception):
            why = f"{type(result).__name__}: {result}"
            self._on_trouble(published.policy_version, why)
            if isinstance(result, UserError):
                self._not_before_ms = now_ms + STORE_AGAIN_MS
                return Effects()
            self._failures += 1
            if self._failures < ATTEMPTS:
                self._not_before_ms = now_ms + BACKOFF_MS * 2 ** (self._failures - 1)
                return Effects()
            result = unusable(f"given up after {ATTEMPTS} tries: {why}")
        self._failures = 0
        effects = self._decide(published, result, now_ms)
        effects += self._next(now_ms)
        return effects

    def _decide(self, published: PolicyPublished, findings: list[Finding], now_ms: int) -> Effects:
        version = published.policy_version
        if self._pending.pop(version, None) is None:
            return Effects()  # a person decided on it meanwhile
        verdict: Literal["promoted", "held", "halted"] = decision(findings)
        if verdict == "promoted" and self._alarm is not None:
            verdict, findings = "halted", [*findings, stopped(self._alarm.kind, self._alarm.detail)]
        self._held += verdict == "held"
        gate = PolicyGate(
            run_id=self._run_id,
            policy_version=version,
            manifest_uri=published.manifest_uri,
            manifest_digest=published.manifest_digest,
            decision=verdict,
            findings=to_json(findings),
            decided_ms=now_ms,
        )
        self._decided[version] = gate
        return Effects(outputs=[Output(POLICY_GATE, gate)])
