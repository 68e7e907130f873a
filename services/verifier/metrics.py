"""Metrics of the verdicts themselves: canaries, alarms, unknown verdicts and the estimated share of false accepts."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from services.verifier.core import VerifierCore

VERSIONS = 3
"""Policy versions are labelled by age (0: the newest with verdicts), so that labels stay bounded."""


def register(core: VerifierCore, registry: CollectorRegistry) -> None:
    """Gauges that read the core when they are scraped."""
    standing = core.standing
    Gauge("rlvr_verifier_pending", "judgements resting after an infrastructure fault", registry=registry).set_function(
        lambda: core.resting
    )
    Gauge("rlvr_verifier_quarantined", "check sets quarantined in this run", registry=registry).set_function(
        lambda: standing.quarantines
    )
    alarms = Gauge("rlvr_verifier_alarms", "alarms raised in this run", ("severity",), registry=registry)
    for severity in ("stop", "warn"):
        alarms.labels(severity).set_function(partial(standing.count, severity))
    canaries = Gauge("rlvr_verifier_canaries", "known answers judged", ("kind", "outcome"), registry=registry)
    for kind in ("reference", "known_bad", "audit"):
        for outcome in ("right", "wrong", "unknown"):
            canaries.labels(kind, outcome).set_function(partial(standing.tallied, kind, outcome))
    unknown = Gauge("rlvr_verifier_unknown_rate", "unknown share of a version's verdicts", ("age",), registry=registry)
    exploits = Gauge(
        "rlvr_verifier_exploit_rate", "share of a version's passes with exploit findings", ("age",), registry=registry
    )
    false = Gauge(
        "rlvr_verifier_false_accept_share", "estimated share of wrong candidates among a version's passes",
        ("age", "by", "value"), registry=registry,
    )  # fmt: skip
    for age in range(VERSIONS):
        unknown.labels(str(age)).set_function(partial(core.unknown_rate, age))
        exploits.labels(str(age)).set_function(partial(core.exploit_rate, age))
        for by in ("canaries", "audits"):
            for value in ("mean", "upper95"):
                false.labels(str(age), by, value).set_function(partial(core.false_share, age, by, value == "upper95"))
