"""The verifier's core: completed attempts in, check runs and exactly one verdict per attempt out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from schemas.rollout import INFRA_STOPS, RolloutCompleted
from schemas.topics import VERIFICATION_TRIAL, VERIFICATION_VERDICT
from schemas.verification import VerificationVerdict
from services.runtime.core import BaseCore, Effects, Job, Message, Output, Position, finished
from services.runtime.settings import Verifier
from services.tasks.fixture import CheckSet, Fixture
from services.verifier import report
from services.verifier.admission import Admitted, Refused, admit
from services.verifier.attribution import Facts
from services.verifier.candidate import Candidate, Tasks, Unjudgeable, task_of
from services.verifier.judge import Judgement, judge

CheckRunner = Callable[[Admitted, CheckSet, int], Facts]
"""One check run: candidate, check set, seed -> facts."""
FetchDiff = Callable[[str], str]
"""The text behind a claim check; raises when it cannot be had."""

MAX_REMEMBERED = 200_000
MAX_REUSED = 20_000
_EVIDENCE = {"E1": 1, "E2": 2, "E3": 3, "E4": 4}


@dataclass(eq=False)
class _Waiting:
    """A completed attempt that waits for the judgement of its candidate."""

    record: RolloutCompleted
    position: Position
    partition: int
    started_ms: int
    fixture: Fixture
    check: CheckSet


class VerifierCore(BaseCore):
    """Pure but for the check runner, which runs on worker threads. Identical candidates are judged once."""

    def __init__(
        self,
        settings: Verifier,
        tasks: Tasks,
        check_runner: CheckRunner,
        fetch_diff: FetchDiff,
        verifier_digest: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._tasks = tasks
        self._check_runner = check_runner
        self._fetch_diff = fetch_diff
        self._digest = verifier_digest
        self._now_ms = now_ms
        self._catching_up: set[int] = set()
        self._held: list[Message] = []
        self._judged_attempts: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._running: dict[tuple[str, ...], list[_Waiting]] = {}
        self._reusable: OrderedDict[tuple[str, ...], Judgement] = OrderedDict()

    def assigned(self, partitions: frozenset[int]) -> None:
        """Until caught up, completions are held: their verdicts may still be among the records to come."""
        self._catching_up |= partitions

    def revoked(self, partitions: frozenset[int]) -> None:
        """Forget who waited there; a judgement that runs on for it is kept for reuse and emits nothing."""
        self._catching_up -= partitions
        self._held = [message for message in self._held if message.partition not in partitions]
        for waiting in self._running.values():
            waiting[:] = [one for one in waiting if one.partition not in partitions]

    def caught_up(self, now_ms: int) -> Effects:
        self._catching_up.clear()
        held, self._held = self._held, []
        effects = Effects()
        for message in held:
            effects += self._completed(message, now_ms)
        return effects

    def handle(self, message: Message, now_ms: int) -> Effects:
        record = message.record
        if isinstance(record, VerificationVerdict):
            self._remember(record.trial_id, record.attempt)
            return finished(message)
        if not isinstance(record, RolloutCompleted):
            return finished(message)
        if message.partition in self._catching_up:
            self._held.append(message)
            return Effects()
        return self._completed(message, now_ms)

    def _completed(self, message: Message, now_ms: int) -> Effects:
        record = message.record
        assert isinstance(record, RolloutCompleted)
        if (record.trial_id, record.attempt) in self._judged_attempts:
            return finished(message)
        if record.stop_reason in INFRA_STOPS:
            if not record.final_attempt:
                return finished(message)
            return self._unjudged(message, Unjudgeable(record.stop_reason), now_ms)
        try:
            fixture, check = task_of(record, self._tasks)
        except Unjudgeable as reason:
            return self._unjudged(message, reason, now_ms)
        one = _Waiting(record, message.position, message.partition, now_ms, fixture, check)
        if record.diff is None and record.diff_uri is not None:
            return self._fetched(one, record.diff_uri)
        return self._with_diff(one, record.diff)

    def _fetched(self, one: _Waiting, uri: str) -> Effects:
        def then(result: str | Exception) -> Effects:
            if isinstance(result, Exception):
                return self._emit(one, Judgement("unknown", "diff_unavailable"), None, reused=False)
            return self._with_diff(one, result)

        return Effects(jobs=[Job(lambda: self._fetch_diff(uri), then, partition=one.partition)])

    def _with_diff(self, one: _Waiting, diff: str | None) -> Effects:
        if diff is None:
            return self._emit(one, Judgement("fail", "no_candidate"), None, reused=False)
        try:
            admitted = admit(diff, one.fixture.base_tree, one.fixture.allowed_globs)
        except Refused as refused:
            return self._emit(one, Judgement("fail", refused.reason), None, reused=False)
        key = (admitted.digest, one.check.digest, one.fixture.digest, str(self._settings.trials), self._digest)
        if self._settings.reuse:
            known = self._reusable.get(key)
            if known is not None:
                self._reusable.move_to_end(key)
                return self._emit(one, known, admitted.digest, reused=True)
            if key in self._running:
                self._running[key].append(one)
                return Effects()
            self._running[key] = [one]
        candidate = Candidate(one.fixture, one.check, admitted, key)
        return Effects(jobs=[self._job(one, candidate)])

    def _job(self, one: _Waiting, candidate: Candidate) -> Job:
        def run() -> Judgement:
            return judge(
                f"{one.record.trial_id}.{one.record.attempt}",
                self._settings.trials,
                self._settings.infra_retries,
                lambda seed: self._check_runner(candidate.admitted, candidate.check, seed),
                self._now_ms,
            )

        def then(result: Judgement | Exception) -> Effects:
            return self._judged(one, candidate, result)

        # No partition: others may wait for the same candidate. Who still waits is known here, not to the loop.
        shared = self._settings.reuse
        return Job(run, then, partition=None if shared else one.partition)

    def _judged(self, first: _Waiting, candidate: Candidate, result: Judgement | Exception) -> Effects:
        if isinstance(result, Exception):
            # The check set or the controller failed: not the candidate's doing, and no number of tries would mend it.
            result = Judgement("unknown", f"check_fault_{type(result).__name__}")
        result = self._graded(result, candidate.check)
        if not self._settings.reuse:
            return self._emit(first, result, candidate.admitted.digest, reused=False)
        if result.verdict != "unknown":
            self._reusable[candidate.key] = result
            while len(self._reusable) > MAX_REUSED:
                self._reusable.popitem(last=False)
        effects = Effects()
        for index, one in enumerate(self._running.pop(candidate.key, [])):
            reused = index > 0 and result.verdict != "unknown"
            effects += self._emit(one, result, candidate.admitted.digest, reused)
        return effects

    def _graded(self, result: Judgement, check: CheckSet) -> Judgement:
        if result.verdict == "pass" and _EVIDENCE[check.evidence] < _EVIDENCE[self._settings.min_evidence]:
            return Judgement("unknown", "evidence_too_low", result.runs)
        return result

    def _emit(self, one: _Waiting, judgement: Judgement, candidate_digest: str | None, reused: bool) -> Effects:
        if (one.record.trial_id, one.record.attempt) in self._judged_attempts:
            return Effects(done=[one.position])
        self._remember(one.record.trial_id, one.record.attempt)
        outputs = []
        if not reused:
            outputs = [Output(VERIFICATION_TRIAL, run) for run in report.trials(one.record, one.check, judgement)]
        task = report.Task(one.fixture, one.check, self._digest, candidate_digest)
        verdict = report.verdict(one.record, judgement, self._settings, task, one.started_ms, self._now_ms(), reused)
        outputs.append(Output(VERIFICATION_VERDICT, verdict))
        return Effects(outputs=outputs, done=[one.position])

    def _unjudged(self, message: Message, reason: Unjudgeable, now_ms: int) -> Effects:
        record = message.record
        assert isinstance(record, RolloutCompleted)
        self._remember(record.trial_id, record.attempt)
        task = report.Task(None, None, self._digest, None)
        judgement = Judgement("unknown", reason.cause)
        verdict = report.verdict(record, judgement, self._settings, task, now_ms, now_ms, reused=False)
        return finished(message, [Output(VERIFICATION_VERDICT, verdict)])

    def _remember(self, trial_id: str, attempt: int) -> None:
        self._judged_attempts[(trial_id, attempt)] = None
        while len(self._judged_attempts) > MAX_REMEMBERED:
            self._judged_attempts.popitem(last=False)
