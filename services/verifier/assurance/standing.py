"""What is known about the verdicts themselves: canaries judged, check sets quarantined, alarms raised."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import replace

from schemas.record import Record
from schemas.topics import VERIFICATION_ALARM, VERIFICATION_CANARY
from schemas.verification import VerificationAlarm, VerificationCanary
from services.runtime.core import Output
from services.verifier.assurance import alarms
from services.verifier.assurance.sequential import Sequential
from services.verifier.reward import ANSWERED_WRONGLY

INDEPENDENT = 3
"""Candidates that must agree before what they show is held to be our fault and not theirs."""
REMEMBERED = 100_000


class Standing:
    """State that every instance rebuilds from the topics of canaries and alarms, in any order and with repeats.

    A failed reference quarantines its check set for the rest of the run, and a known-bad that passed stops the line:
    both are our own, and nothing that a candidate does enters their answers. A pass that its audit contradicts costs
    that candidate alone, which is not believed again; such passes stop the line only when they are of `INDEPENDENT`
    different tasks, since no candidate and no group has more than one task, and programs of different tasks cannot be
    each other's copies. An alarm whose canary is known is owed until it is seen on the
    topic, so that a crash between the two records loses none; its id says what it is about, so that it is raised once.
    """

    def __init__(self) -> None:
        self._tests: dict[str, Sequential] = {}
        self._seen: set[str] = set()
        self._quarantined: set[str] = set()
        self._owed: dict[str, VerificationAlarm] = {}
        self._contradicted: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._wrong_tasks: dict[str, str] = {}  # task -> the candidate whose audit was wrong in every run
        self._pressed: dict[str, set[str]] = {}  # check set -> groups beside which its reference met a limit
        self.raised: dict[str, VerificationAlarm] = {}
        """Alarms by id."""
        self._tallies: Counter[tuple[str, str]] = Counter()

    def quarantined(self, check_digest: str) -> bool:
        """Whether nothing may be concluded from this check set any more."""
        return check_digest in self._quarantined

    def contradicted(self, candidate_digest: str, check_digest: str) -> bool:
        """Whether this candidate passed once and answered wrongly when it was judged again."""
        return (candidate_digest, check_digest) in self._contradicted

    def contradict(self, candidate_digest: str, check_digest: str) -> None:
        """Never believe this candidate again."""
        self._contradicted[candidate_digest, check_digest] = None
        while len(self._contradicted) > REMEMBERED:
            self._contradicted.popitem(last=False)

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
                if record.kind == "audit":
                    self._audited(record)

    def _audited(self, record: VerificationCanary) -> None:
        if answered_wrongly(record.cause):
            self.contradict(record.candidate_digest, record.check_digest)
        if record.cause == alarms.ALWAYS_WRONG and record.candidate_digest not in self._wrong_tasks.values():
            self._wrong_tasks.setdefault(record.task_id, record.candidate_digest)
            if len(self._wrong_tasks) >= INDEPENDENT:
                self.owe(alarms.contradicted(record, sorted(self._wrong_tasks)))

    def _tested(self, record: VerificationCanary, test: Sequential) -> None:
        if _observe(test, record) and self._its_own(record):
            self._quarantined.add(record.check_digest)
            self.owe(alarms.quarantine(record, test))

    def _its_own(self, record: VerificationCanary) -> bool:
        """Whether a rejected reference speaks against its check set. A limit of time or memory may have been met
        because of what ran beside it, and that is a candidate: then it has to happen beside several groups."""
        if record.cause in ANSWERED_WRONGLY:
            return True
        beside = self._pressed.setdefault(record.check_digest, set())
        beside.add(record.canary_id.rpartition("/")[0])
        return len(beside) >= INDEPENDENT

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


def answered_wrongly(cause: str) -> bool:
    """Whether the cause of an audit's or a judgement's fail is a wrong answer, and not a limit that was met."""
    return cause == alarms.ALWAYS_WRONG or cause.removeprefix(alarms.UNSTEADY) in ANSWERED_WRONGLY


def _right(record: VerificationCanary) -> bool:
    return record.verdict == record.expected


def _observe(test: Sequential, record: VerificationCanary) -> bool:
    """Whether this reference's verdict quarantines. Infrastructure says nothing about a check set."""
    if record.verdict == "unknown":
        return False
    rejected = record.verdict == "fail"
    return test.observe(max(0, record.runs - rejected), rejected) == "quarantined"
