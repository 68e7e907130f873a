"""The verifier's core: completed attempts in, check runs and exactly one final verdict per attempt out."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from schemas.rollout import INFRA_STOPS, RolloutCompleted
from schemas.topics import VERIFICATION_TRIAL, VERIFICATION_VERDICT
from schemas.verification import VerificationAlarm, VerificationCanary, VerificationVerdict
from services.patch.admission import Admitted, Refused, admit
from services.runtime.core import BaseCore, Effects, Job, Message, Output, Position, finished, on_account_of
from services.runtime.errors import UserError
from services.runtime.settings import Verifier
from services.verifier import report, retries
from services.verifier.assurance import alarms
from services.verifier.assurance.known_answers import Chance, KnownAnswer, KnownAnswers
from services.verifier.assurance.shares import Shares
from services.verifier.assurance.standing import Standing, answered_wrongly
from services.verifier.candidate import LEAKS, Candidate, CertificateOf, Identity, Task, Tasks, Unjudgeable, task_of
from services.verifier.echoes import Echoes
from services.verifier.judge import Course, Judgement
from services.verifier.retries import CheckRunner, Courses
from services.verifier.reuse import SHARED, Earlier, Reuse
from services.watch.soundness import Tally

FetchDiff = Callable[[str], str]
"""The text behind a claim check; raises when it cannot be had, UserError when it is to be asked for again."""

MAX_REMEMBERED = 200_000
QUARANTINED = "quarantined"
CONTRADICTED = "contradicted"
"""Cause of a fail: an identical candidate passed before, and answered wrongly when it was judged again."""
LEAK = "leak"
_LEVELS = {"E1": 1, "E2": 2, "E3": 3, "E4": 4}


@dataclass(eq=False)
class _Waiting:
    """A completed attempt that waits for the judgement of its candidate."""

    record: RolloutCompleted
    position: Position
    partition: int
    started_ms: int
    task: Task

    @property
    def name(self) -> str:
        return f"{self.record.trial_id}.{self.record.attempt}"


class VerifierCore(BaseCore):
    """Pure but for the check runner, which runs on worker threads. Identical candidates are judged once.

    A completion is finished with only when its final verdict is out: `pending` ones say that infrastructure failed and
    the judgement goes on later. Canaries and audits run beside the candidates on the same path.
    """

    def __init__(
        self,
        settings: Verifier,
        tasks: Tasks,
        check_runner: CheckRunner,
        fetch_diff: FetchDiff,
        verifier_digest: str,
        now_ms: Callable[[], int],
        *,
        run_id: str = "",
        certificate_of: CertificateOf = lambda digest: None,
        chance: Chance | None = None,
    ) -> None:
        self._settings = settings
        self._tasks = tasks
        self._fetch_diff = fetch_diff
        self._digest = verifier_digest
        self._now_ms = now_ms
        self._run_id = run_id
        self._certificate_of = certificate_of
        self._courses = Courses(settings, check_runner, now_ms)
        self._known_answers = KnownAnswers(settings, chance)
        self._catching_up: set[int] = set()
        self._held: list[Message] = []
        self._judged_attempts: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._running: dict[tuple[str, ...], list[_Waiting]] = {}
        self._echoes = Echoes()
        self._reuse = Reuse(settings)
        self.standing = Standing()
        """Canaries, quarantines and alarms, to read from."""
        self.unknowns = Shares(settings.unknown_alarm_rate, settings.alarm_count)
        """Unknown verdicts per policy version, to read from: a rise is laundering until shown otherwise."""
        self.exploits = Shares(settings.exploit_alarm_rate, settings.alarm_count)
        """Passes per policy version in whose candidate or tool calls exploit watch found something, to read from."""
        self.tally = Tally()
        """Counts behind the estimates of false accepts, to read from."""

    @property
    def resting(self) -> int:
        """Judgements that wait to be repeated after an infrastructure fault."""
        return self._courses.resting

    def unknown_rate(self, age: int) -> float:
        """Unknown share of the verdicts of the newest version (age 0), the one before it (1), ...; NaN without any."""
        share = self.unknowns.latest(age)
        return math.nan if share is None else share.rate

    def exploit_rate(self, age: int) -> float:
        """Share of the passes of a version in which exploit watch found something; NaN without passes."""
        share = self.exploits.latest(age)
        return math.nan if share is None else share.rate

    def false_share(self, age: int, by: str, upper: bool) -> float:
        """Estimated false share of that version's accepts, by `canaries` or `audits`; NaN where there were none."""
        share = self.unknowns.latest(age)
        if share is None:
            return math.nan
        estimate = self.tally.estimate(share.version)
        evidence = estimate.known_bad if by == "canaries" else estimate.audits
        if not evidence.count:
            return math.nan
        return estimate.share(upper) if by == "canaries" else estimate.audited_share(upper)

    # --- life --------------------------------------------------------------------------------------------------------

    def assigned(self, partitions: frozenset[int]) -> None:
        """Until caught up, completions are held: their verdicts may still be among the records to come."""
        self._catching_up |= partitions

    def revoked(self, partitions: frozenset[int]) -> None:
        """Forget who waited there; a judgement that runs on for it is kept for reuse and emits nothing."""
        self._catching_up -= partitions
        self._echoes.revoked(partitions)
        self._held = [message for message in self._held if message.partition not in partitions]
        for waiting in self._running.values():
            waiting[:] = [one for one in waiting if one.partition not in partitions]

    def caught_up(self, now_ms: int) -> Effects:
        self._catching_up.clear()
        held, self._held = self._held, []
        effects = Effects(outputs=self.standing.alarms())
        for message in held:
            with on_account_of([message.position]):
                effects += self._completed(message, now_ms)
        return effects

    def tick(self, now_ms: int) -> Effects:
        effects = self._courses.tick(now_ms)
        effects.done += self._echoes.due(now_ms)
        return effects

    # --- records in --------------------------------------------------------------------------------------------------

    def handle(self, message: Message, now_ms: int) -> Effects:
        record = message.record
        if isinstance(record, VerificationCanary | VerificationAlarm):
            if record.run_id == self._run_id:
                self.standing.observe(record)
                self.tally.add(record)
            return finished(message)
        if isinstance(record, VerificationVerdict):
            return self._read_back(message, record, now_ms)
        if not isinstance(record, RolloutCompleted):
            return finished(message)
        if not self._echoes.delivered(message.position, (record.trial_id, record.attempt)):
            return self._finished(message.position)
        if message.partition in self._catching_up:
            self._held.append(message)
            return Effects()
        return self._completed(message, now_ms)

    def _read_back(self, message: Message, record: VerificationVerdict, now_ms: int) -> Effects:
        """A verdict on the topic: only a final one settles its attempt; it is finished with after its completion."""
        if record.verdict == "pending":
            return finished(message)
        attempt = (record.trial_id, record.attempt)
        self._echoes.read_back(message.position, attempt, now_ms)
        if attempt in self._judged_attempts:
            return Effects()
        self._remember(record)
        return Effects(outputs=self.standing.alarms())

    def _finished(self, position: Position, outputs: Iterable[Output] = ()) -> Effects:
        """A completion is finished with, once these outputs are out."""
        self._echoes.finished(position)
        return Effects(outputs=list(outputs), done=[position])

    def _completed(self, message: Message, now_ms: int) -> Effects:
        record = message.record
        assert isinstance(record, RolloutCompleted)
        if (record.trial_id, record.attempt) in self._judged_attempts:
            return self._finished(message.position)
        if record.stop_reason in INFRA_STOPS:
            if not record.final_attempt:
                return self._finished(message.position)
            return self._unjudged(message, Unjudgeable(record.stop_reason), now_ms)
        try:
            task = task_of(record, self._tasks, self._certificate_of)
        except Unjudgeable as reason:
            return self._unjudged(message, reason, now_ms)
        one = _Waiting(record, message.position, message.partition, now_ms, task)
        if record.diff is None and record.diff_uri is None:
            return self._emit(one, Judgement("fail", "no_candidate"), None, reused=False)
        return self._admit(one)

    def _admit(self, one: _Waiting) -> Effects:
        """Fetch the diff where it lies elsewhere, and admit it. On a worker: the text may be as large as it likes."""
        record, fixture = one.record, one.task.fixture

        def run() -> Admitted | Refused:
            diff = self._fetch_diff(record.diff_uri or "") if record.diff is None else record.diff
            try:
                return admit(diff, fixture.base_tree, fixture.allowed_globs)
            except Refused as refused:
                return refused

        def then(result: Admitted | Exception) -> Effects:
            if isinstance(result, Admitted):
                return self._ask_for(one, result)
            if isinstance(result, UserError):  # the store is down or refuses us: waited for, never a verdict
                return self._admit(one)
            if isinstance(result, Refused):
                return self._emit(one, Judgement("fail", result.reason), None, reused=False)
            return self._emit(one, Judgement("unknown", "diff_unavailable"), None, reused=False)

        return Effects(jobs=[Job(run, then, partition=one.partition, cost_bytes=len(record.diff or ""))])

    # --- judging -----------------------------------------------------------------------------------------------------

    def _ask_for(self, one: _Waiting, admitted: Admitted) -> Effects:
        shared = self._key(one, admitted)
        candidate = Candidate(one.task, admitted, shared)
        if self._quarantined(one.task):
            return self._unrun(one, candidate, Judgement("unknown", QUARANTINED))
        if self.standing.contradicted(admitted.digest, one.task.check.digest):
            return self._unrun(one, candidate, Judgement("fail", CONTRADICTED))
        known = self._reuse.get(shared)
        if (known is not None or shared in self._running) and self._reuse.afresh(shared, one.name):
            candidate = replace(candidate, key=(*shared, one.name))
        elif known is not None:
            return self._emit(one, known.judgement, known.identity, reused=True, earlier=known.name)
        if candidate.key in self._running:
            self._running[candidate.key].append(one)
            return Effects()
        self._running[candidate.key] = [one]
        effects = self._start(one, candidate)
        canary = self._known_answers.beside(one.record, one.task.check, self.standing.quarantined)
        if canary is not None:
            effects += self._ask(canary)
        return effects

    def _unrun(self, one: _Waiting, candidate: Candidate, judgement: Judgement) -> Effects:
        """Nothing has to be run; what exploit watch says of the candidate is worked out on a worker all the same."""

        def then(result: Identity | Exception) -> Effects:
            identity = result if isinstance(result, Identity) else None
            return self._emit(one, judgement, identity, reused=False)

        return Effects(jobs=[Job(lambda: candidate.identity, then, partition=one.partition)])

    def _key(self, one: _Waiting, admitted: Admitted) -> tuple[str, ...]:
        task, settings = one.task, self._settings
        key = (admitted.digest, task.check.digest, task.fixture.digest, str(settings.trials), self._digest)
        return key if settings.reuse else (*key, one.name)

    def _quarantined(self, task: Task) -> bool:
        return task.withdrawn or self.standing.quarantined(task.check.digest)

    def _start(self, one: _Waiting, candidate: Candidate) -> Effects:
        settings = self._settings
        course = Course(one.name, settings.trials, settings.infra_retries)

        def wanted() -> bool:
            if not self._running.get(candidate.key):
                self._running.pop(candidate.key, None)
                return False
            return True

        def then(judgement: Judgement) -> Effects:
            return self._judged(candidate, judgement, one.name)

        task = retries.Task(course, candidate.admitted, one.task.check, then, wanted, beside=lambda: candidate.identity)
        return self._courses.start(task)

    def _judged(self, candidate: Candidate, judgement: Judgement, name: str) -> Effects:
        waiting = self._running.get(candidate.key, [])
        if judgement.verdict == "pending":
            outputs = [
                Output(VERIFICATION_VERDICT, self._verdict(one, judgement, candidate.identity)) for one in waiting
            ]
            return Effects(outputs=outputs)
        judgement = self._graded(judgement, candidate)
        self._running.pop(candidate.key, None)
        effects = Effects()
        earlier = self._held_against_earlier(candidate, judgement, name)
        if judgement.verdict == "pass" and waiting:
            audit = self._known_answers.again(waiting[0].record, candidate.task.check, candidate.admitted)
            effects += self._ask(audit) if audit is not None else Effects()
        for index, one in enumerate(waiting):
            reused = index > 0 and judgement.verdict != "unknown"
            before = name if reused else earlier.name if earlier is not None else None
            with on_account_of([one.position]):
                effects += self._emit(
                    one, judgement, candidate.identity, reused, before, earlier is not None and not reused
                )
        return effects

    def _held_against_earlier(self, candidate: Candidate, judgement: Judgement, name: str) -> Earlier | None:
        """The verdict that an identical candidate had before, if it had one. Where the two differ nothing is reused any
        more; and a candidate that passed before and answered wrongly now is not believed again."""
        if judgement.verdict == "unknown" or not self._settings.reuse:
            return None
        earlier = self._reuse.put(candidate.key[:SHARED], Earlier(judgement, candidate.identity, name))
        verdicts = {judgement.verdict: judgement} | ({earlier.judgement.verdict: earlier.judgement} if earlier else {})
        if len(verdicts) == 2 and answered_wrongly(verdicts["fail"].cause):
            self.standing.contradict(candidate.admitted.digest, candidate.task.check.digest)
        return earlier

    def _graded(self, judgement: Judgement, candidate: Candidate) -> Judgement:
        """What the judgement is worth: nothing under quarantine, no pass below the wanted evidence, none for a leak or
        for a candidate that was contradicted while it was judged."""
        task = candidate.task
        if self._quarantined(task):
            return Judgement("unknown", QUARANTINED, judgement.runs)
        if judgement.verdict != "pass":
            return judgement
        if self.standing.contradicted(candidate.admitted.digest, task.check.digest):
            return Judgement("fail", CONTRADICTED, judgement.runs)
        if task.fixture.family == LEAKS:
            return Judgement("unknown", LEAK, judgement.runs)
        if _LEVELS[task.evidence] < _LEVELS[self._settings.min_evidence]:
            return Judgement("unknown", "evidence_too_low", judgement.runs)
        return judgement

    def _ask(self, known: KnownAnswer) -> Effects:
        """Judge something whose answer is known. Infrastructure says nothing; nobody waits for it."""
        started_ms = self._now_ms()

        def then(judgement: Judgement) -> Effects:
            if judgement.verdict == "pending":
                return Effects()
            canary = known.record(judgement, self._digest, started_ms, self._now_ms())
            self.tally.add(canary)
            return Effects(outputs=self.standing.judged(canary))

        return self._courses.start(retries.Task(known.course, known.admitted, known.check, then))

    # --- verdicts out ------------------------------------------------------------------------------------------------

    def _verdict(
        self, one: _Waiting, judgement: Judgement, candidate: Identity | None, reused: bool = False
    ) -> VerificationVerdict:
        subject = report.Subject(self._digest, one.task, candidate)
        return report.verdict(one.record, judgement, self._settings, subject, one.started_ms, self._now_ms(), reused)

    def _emit(
        self,
        one: _Waiting,
        judgement: Judgement,
        candidate: Identity | None,
        reused: bool,
        earlier: str | None = None,
        rejudged: bool = False,
    ) -> Effects:
        if (one.record.trial_id, one.record.attempt) in self._judged_attempts:
            return self._finished(one.position)
        verdict = self._verdict(one, judgement, candidate, reused)
        verdict = replace(verdict, earlier_trial=earlier, rejudged=rejudged)
        self._remember(verdict)
        # Alarms first: whoever reads the verdict can have read them.
        outputs = self.standing.alarms()
        if not reused:
            outputs += [Output(VERIFICATION_TRIAL, run) for run in report.trials(one.record, one.task, judgement)]
        outputs.append(Output(VERIFICATION_VERDICT, verdict))
        return self._finished(one.position, outputs)

    def _unjudged(self, message: Message, reason: Unjudgeable, now_ms: int) -> Effects:
        record = message.record
        assert isinstance(record, RolloutCompleted)
        subject, judgement = report.Subject(self._digest), Judgement("unknown", reason.cause)
        verdict = report.verdict(record, judgement, self._settings, subject, now_ms, now_ms, reused=False)
        self._remember(verdict)
        outputs = [*self.standing.alarms(), Output(VERIFICATION_VERDICT, verdict)]
        return self._finished(message.position, outputs)

    def _remember(self, verdict: VerificationVerdict) -> None:
        """A final verdict, made here or read back: it settles its attempt and counts."""
        self._judged_attempts[(verdict.trial_id, verdict.attempt)] = None
        while len(self._judged_attempts) > MAX_REMEMBERED:
            self._judged_attempts.popitem(last=False)
        self.tally.add(verdict)
        share = self.unknowns.note(verdict.policy_version, verdict.verdict == "unknown")
        if share is not None:
            self.standing.owe(alarms.unknown_rate(verdict, share, self._settings.unknown_alarm_rate))
        if verdict.verdict == "pass":
            share = self.exploits.note(verdict.policy_version, bool(verdict.findings))
            if share is not None:
                self.standing.owe(alarms.exploits(verdict, share, self._settings.exploit_alarm_rate))
        if verdict.verdict == "unknown" and verdict.cause == LEAK:
            self.standing.owe(alarms.leak(verdict))
