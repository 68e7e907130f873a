"""How far a run's verdicts can be trusted: unknown rates, exploit findings, canaries, false accepts, by version."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from schemas import topics
from schemas.verification import VerificationAlarm, VerificationCanary, VerificationVerdict
from services.runtime.screen import cell, print_table, say, styled
from services.watch import soundness

if TYPE_CHECKING:
    from schemas.record import Record

SHOWN = 200
"""Versions that the table shows, the newest ones."""
FULL_ATTRIBUTION = "cgroup"
TOPICS = (topics.VERIFICATION_VERDICT, topics.VERIFICATION_CANARY, topics.VERIFICATION_ALARM)


@dataclass
class Version:
    """Final verdicts of one policy version. `findings` counts verdicts in which a detector fired, by its word."""

    version: int
    verdicts: Counter[str] = field(default_factory=Counter)
    evidence: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    passes_with_findings: int = 0
    attribution: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.verdicts.total()


@dataclass(frozen=True)
class Account:
    """Everything that the topics say about the verdicts."""

    versions: tuple[Version, ...]
    estimates: tuple[soundness.Estimate, ...]
    canaries: Counter[tuple[str, str]]  # (kind, verdict)
    alarms: tuple[VerificationAlarm, ...]

    @property
    def stopped(self) -> bool:
        """Whether an alarm stopped the line."""
        return any(alarm.severity == "stop" for alarm in self.alarms)


def account(records: Iterable[Record]) -> Account:
    """The account of a run's records, in any order; repeated records count once."""
    versions: dict[int, Version] = {}
    canaries: dict[str, VerificationCanary] = {}
    alarms: dict[str, VerificationAlarm] = {}
    seen: set[tuple[str, int]] = set()
    tally = soundness.Tally()
    for record in records:
        tally.add(record)
        if isinstance(record, VerificationCanary):
            canaries[record.canary_id] = record
        elif isinstance(record, VerificationAlarm):
            alarms[record.alarm_id] = record
        elif isinstance(record, VerificationVerdict) and record.verdict != "pending":
            known = (record.trial_id, record.attempt) in seen
            seen.add((record.trial_id, record.attempt))
            if not known:
                _count(versions.setdefault(record.policy_version, Version(record.policy_version)), record)
    return Account(
        tuple(versions[number] for number in sorted(versions)),
        (*(tally.estimate(number) for number in tally.versions), tally.estimate()),
        Counter((canary.kind, canary.verdict) for canary in canaries.values()),
        tuple(sorted(alarms.values(), key=lambda alarm: alarm.raised_ms)),
    )


def _count(version: Version, verdict: VerificationVerdict) -> None:
    version.verdicts[verdict.verdict] += 1
    version.findings.update(verdict.findings or ())
    if verdict.attribution_evidence is not None:
        version.attribution[verdict.attribution_evidence] += 1
    if verdict.verdict == "pass":
        version.evidence[verdict.evidence] += 1
        version.passes_with_findings += bool(verdict.findings)
    else:
        version.causes[verdict.cause] += 1


def as_json(found: Account) -> dict[str, Any]:
    """The account as one JSON value."""
    shares = {estimate.policy_version: estimate for estimate in found.estimates}
    return {
        "versions": [
            {
                "version": one.version,
                "verdicts": dict(one.verdicts),
                "evidence_of_passes": dict(one.evidence),
                "attribution_evidence": dict(one.attribution),
                "causes": dict(one.causes.most_common()),
                "findings": dict(one.findings.most_common()),
                "passes_with_findings": one.passes_with_findings,
                "false_accepts": _share_json(shares.get(one.version)),
            }
            for one in found.versions
        ],
        "false_accepts": _share_json(shares[None]),
        "canaries": [
            {"kind": kind, "verdict": verdict, "count": count}
            for (kind, verdict), count in sorted(found.canaries.items())
        ],
        "alarms": [
            {"kind": a.kind, "severity": a.severity, "detail": a.detail, "raised_ms": a.raised_ms} for a in found.alarms
        ],
    }


def _share_json(estimate: soundness.Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {
        "accept_rate": estimate.accept_rate,
        "by_canaries": {"share": estimate.share(), "upper_95": estimate.share(upper=True)},
        "by_audits": {"share": estimate.audited_share(), "upper_95": estimate.audited_share(upper=True)},
        "known_bad": {"passed": estimate.known_bad.hits, "judged": estimate.known_bad.count},
        "audits": {"failed": estimate.audits.hits, "judged": estimate.audits.count},
    }


def show(found: Account) -> None:
    """Print tables for people."""
    print_table(
        ("version", "judged", "passed", "failed", "unknown", "evidence of passes", "findings", "main causes"),
        map(_row, found.versions[-SHOWN:]),
    )
    if len(found.versions) > SHOWN:
        say(f"{len(found.versions) - SHOWN} older versions are left out (--json has them)")
    whole = found.estimates[-1]
    say(
        f"false share of the accepts: {whole.share():.2%} (95 % bound {whole.share(upper=True):.2%}) by "
        f"{whole.known_bad.count} known-bad canaries, of which {whole.known_bad.hits} passed; "
        f"{whole.audited_share():.2%} (bound {whole.audited_share(upper=True):.2%}) by {whole.audits.count} audits, of "
        f"which {whole.audits.hits} failed"
    )
    weaker = attribution_note(found)
    if weaker:
        say(weaker)
    say("canaries: " + (_counts(Counter({" ".join(k): n for k, n in found.canaries.items()}), 9) or "none"))
    alarms = [(f"ALARM ({a.severity}) {a.kind}: {a.detail}", "bold red") for a in found.alarms]
    styled(alarms or [("alarms: none", "")], sys.stdout)


def _row(one: Version) -> tuple[object, ...]:
    judged = one.total or 1
    return (
        one.version,
        one.total,
        f"{one.verdicts['pass']} ({one.verdicts['pass'] / judged:.0%})",
        one.verdicts["fail"],
        f"{one.verdicts['unknown']} ({one.verdicts['unknown'] / judged:.1%})",
        _counts(one.evidence),
        _counts(one.findings),
        _counts(one.causes, 3),
    )


def attribution_note(found: Account) -> str:
    """What is to be said of verdicts that were not attributed by the kernel's counters of each sandbox; "" if none."""
    weaker = sum((one.attribution for one in found.versions), Counter[str]())
    full = weaker.pop(FULL_ATTRIBUTION, 0)
    if not weaker:
        return ""
    return (
        f"attribution: {weaker.total()} of {weaker.total() + full} judged without kernel counters of their sandbox "
        f"({_counts(weaker)}): what failed is certain; of memory and processes, why is known less well"
    )


def _counts(counts: Counter[str], most: int = 4) -> str:
    return ", ".join(f"{cell(name, 60)} {count}" for name, count in counts.most_common(most))
