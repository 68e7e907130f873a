"""What is known about the verdicts themselves: canaries judged, check sets quarantined, alarms raised."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from schemas.record import Record
from schemas.topics import VERIFICATION_ALARM, VERIFICATION_CANARY
from schemas.verification import VerificationAlarm, VerificationCanary
from services.runtime.core import Output
from services.verifier.assurance import alarms
from services.verifier.assurance.sequential import Sequential


class Standing:
    """State that every instance rebuilds from the topics of canaries and alarms, in any order and with repeats.

    A failed reference quarantines its check set for the rest of the run. A known-bad that passed, or a pass that is
    wrong in every run of its audit, stops the line. An alarm whose canary is known is owed until it is seen on the
    topic, so that a crash between the two records loses none; its id says what it is about, so that it is raised once.
    """

    def __init__(self) -> None:
        self._tests: dict[str, Sequential] = {}
        self._seen: set[str] = set()
        self._quarantined: set[str] = set()
        self._owed: dict[str, VerificationAlarm] = {}
        self.raised: dict[str, VerificationAlarm] = {}
        """Alarms by id."""
        self._tallies: Counter[tuple[str, str]] = Counter()

    def quarantined(self, check_digest: str) -> bool:
        """Whether nothing may be concluded from this check set any more."""
        return check_digest in self._quarantined

    @property
    def quarantines(self) -> int:
        """How many check sets are quarantined."""
        return len(self._quarantined)

    def tallied(self, kind: str, outcome: str) -> int:
        """How many canaries of this kind ended right, wrong or unknown."""
        return self._tallies[kind, outcome]

    def count(self, severity: str) -> int:
        """How many alarms of this severity were raised."""
        return sum(alarm.severity == severity for alarm in self.raised.values())

    def observe(self, record: Record) -> None:
        """Take in a canary or an alarm, read from its topic or just made."""
        if isinstance(record, VerificationAlarm):
            self.raised[record.alarm_id] = record
            self._owed.pop(record.alarm_id, None)
            if record.kind == "quarantine" and record.check_digest is not None:
                self._quarantined.add(record.check_digest)
        elif isinstance(record, VerificationCanary) and record.canary_id not in self._seen:
            self._seen.add(record.canary_id)
            outcome = "unknown" if record.verdict == "unknown" else "right" if _right(record) else "wrong"
            self._tallies[record.kind, outcome] += 1
            if record.kind == "reference":
                self._tested(record, self._tests.setdefault(record.check_digest, Sequential()))
            elif outcome == "wrong":
                self.owe(alarms.soundness(record))

    def _tested(self, record: VerificationCanary, test: Sequential) -> None:
        if _observe(test, record):
            self._quarantined.add(record.check_digest)
            self.owe(alarms.quarantine(record, test))

    def owe(self, alarm: VerificationAlarm) -> None:
        """Raise this alarm with the next outputs, unless it was raised before."""
        if alarm.alarm_id not in self.raised:
            self._owed.setdefault(alarm.alarm_id, alarm)

    def alarms(self) -> list[Output]:
        """Every alarm that is owed, as outputs."""
        owed = list(self._owed.values())
        for alarm in owed:
            self.observe(alarm)
        return [Output(VERIFICATION_ALARM, alarm) for alarm in owed]

    def judged(self, canary: VerificationCanary) -> list[Output]:
        """Outputs of a canary whose verdict is final: its record, with the state of the test, and what it alarms."""
        if canary.kind == "reference":
            test = replace(self._tests.get(canary.check_digest, Sequential()))
            _observe(test, canary)
            canary = replace(canary, log_ratio=test.log_ratio)
        self.observe(canary)
        return [Output(VERIFICATION_CANARY, canary), *self.alarms()]


def _right(record: VerificationCanary) -> bool:
    return record.verdict == record.expected


def _observe(test: Sequential, record: VerificationCanary) -> bool:
    """Whether this reference's verdict quarantines. Infrastructure says nothing about a check set."""
    if record.verdict == "unknown":
        return False
    rejected = record.verdict == "fail"
    return test.observe(max(0, record.runs - rejected), rejected) == "quarantined"
