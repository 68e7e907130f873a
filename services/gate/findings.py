"""What the gate looks at in a candidate version: measured values, their bounds, and the decision that follows."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class Limits:
    """What a version must show before it may collect data."""

    min_entropy: float
    min_valid_actions: float
    max_memory_mb: float


@dataclass(frozen=True)
class Finding:
    """One check: what was measured, what it was held against, and whether it passed."""

    check: str
    value: float | str | bool
    bound: float | str | bool | None
    ok: bool


@dataclass(frozen=True)
class Measured:
    """What a probe of a candidate saw.

    `entropy` is the mean of -log p over the sampled tokens (nats per token), an unbiased estimate of the entropy of the
    sampling distribution along its own trajectories. `valid_actions` is the share of probe calls that parse as an
    action. `memory_mb` is the resident memory of the process that held the model.
    """

    finite_weights: bool
    round_trip: bool
    tokenizer: str
    template: str
    valid_actions: float
    entropy: float
    memory_mb: float
    probes: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Origin:
    """Tokenizer and harness of version 0: a later version that speaks otherwise is another agent."""

    tokenizer: str
    template: str


def judge(measured: Measured, origin: Origin, limits: Limits) -> list[Finding]:
    """Every check with its bound. A value that is not a number never passes."""
    return [
        Finding("finite_weights", measured.finite_weights, True, measured.finite_weights),
        Finding("round_trip", measured.round_trip, True, measured.round_trip),
        Finding("tokenizer", measured.tokenizer, origin.tokenizer, measured.tokenizer == origin.tokenizer),
        Finding("template", measured.template, origin.template, measured.template == origin.template),
        _at_least("valid_actions", measured.valid_actions, limits.min_valid_actions),
        _at_least("entropy", measured.entropy, limits.min_entropy),
        Finding("memory_mb", measured.memory_mb, limits.max_memory_mb, measured.memory_mb <= limits.max_memory_mb),
        Finding("probes", measured.probes, None, measured.probes > 0),
        Finding("tokens", measured.tokens, None, True),
        Finding("seconds", measured.seconds, None, True),
    ]


def _at_least(check: str, value: float, bound: float) -> Finding:
    return Finding(check, value if math.isfinite(value) else str(value), bound, value >= bound)


def unusable(why: str) -> list[Finding]:
    """The finding on a checkpoint that cannot be loaded at all."""
    return [Finding("loads", why, True, False)]


def stopped(kind: str, detail: str) -> Finding:
    """The finding that verdicts cannot be believed, whatever the version shows."""
    return Finding("verdicts", f"{kind}: {detail}", "no alarm", False)


def decision(findings: list[Finding]) -> Literal["promoted", "held"]:
    """Promoted when nothing failed."""
    return "promoted" if all(finding.ok for finding in findings) else "held"


def to_json(findings: list[Finding]) -> str:
    """Canonical JSON: a list of checks in the order in which they were made."""
    return json.dumps([asdict(finding) for finding in findings], sort_keys=True, separators=(",", ":"))
