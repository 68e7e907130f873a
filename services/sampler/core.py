"""The sampler's core: many trials at once, each driven only by what stands in the log.

A sampled action takes effect when its `rollout.invocation` is read back from the topic: nothing that was not recorded
is ever acted upon, and of two records with one id the first in the log counts for everybody. So a sampler that takes
over needs no other memory than the topics, and tokens that were recorded are never sampled again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from schemas.codec import ContractViolation
from schemas.ids import BadId, parse_trial
from schemas.policy import PolicyGate
from schemas.rollout import Invocation, RolloutCompleted, RolloutRequested
from schemas.sandbox import SandboxResult
from schemas.topics import ROLLOUT_COMPLETED, ROLLOUT_INVOCATION, SANDBOX_COMMAND
from services.agent.engine import EngineRequest, EngineSample
from services.agent.harness import Harness
from services.runtime.clock import Clock
from services.runtime.core import BaseCore, Effects, Job, Message, Output, on_account_of
from services.runtime.logs import Log
from services.runtime.settings import RunSettings
from services.sampler.facts import Pending, Trial, echo
from services.sampler.ledger import Ledger
from services.sampler.lineup import Lineup
from services.sampler.policies import Policies
from services.sampler.tasks import Tasks
from services.sampler.trial import Attempt, Finish, Limits, Operate, Sample, end_id, ending

ORPHAN_S = 60.0
"""Seconds for which records are kept whose request has not been read (topics are not read in one order)."""
UNKNOWN_S = 600.0
"""Seconds for which a trial waits for news of the version that it was asked for under."""
ECHO_TRIES = 4
"""A record of our own that was sent this often and never came back fails its attempt."""
INLINE_DIFF_BYTES = 256 * 1024
"""A larger candidate goes to the object store and its record carries the claim check."""


@dataclass(frozen=True)
class Ports:
    """What the core reaches outside. `submit` returns at once; the others take their time and run on workers."""

    engine: str
    submit: Callable[[EngineRequest], None]
    load: Callable[[PolicyGate], Harness]
    tasks: Callable[[str], bytes]
    put_diff: Callable[[str], str]


class SamplerCore(BaseCore):
    """See the module. Engine callbacks enter through `on_sample` and `on_engine_error`."""

    def __init__(self, settings: RunSettings, ports: Ports, clock: Clock, log: Log) -> None:
        box = settings.sandbox
        self._run_id = settings.run_id
        self._settings = settings.sampler
        self._limits = Limits(box.cpu_s, box.wall_s, box.output_bytes)
        self._ports = ports
        self._clock = clock
        self._log = log
        self._policies = Policies()
        self._tasks = Tasks(ports.tasks, log)
        self._harness: Harness | None = None
        self._started = False
        self._ledgers: dict[int, Ledger] = {}
        self._live: set[int] = set()
        self._trials: dict[str, Trial] = {}
        self._active: dict[str, Trial] = {}
        self._lineup = Lineup()

    @property
    def active_trials(self) -> int:
        """Trials under way."""
        return len(self._active)

    @property
    def waiting_trials(self) -> int:
        """Requested trials that have not begun."""
        return sum(1 for trial in self._trials.values() if trial.requested is not None) - len(self._active)

    @property
    def policy_version(self) -> int:
        """Version in the engine; -1 before the first."""
        return -1 if self._policies.loaded is None else self._policies.loaded

    # -- the loop's side -------------------------------------------------------------------------------------------

    def assigned(self, partitions: frozenset[int]) -> None:
        for number in partitions:
            self._ledgers[number] = Ledger()

    def revoked(self, partitions: frozenset[int]) -> None:
        for number in partitions:
            self._ledgers.pop(number, None)
            self._live.discard(number)
        for trial in [t for t in self._trials.values() if t.partition in partitions]:
            del self._trials[trial.id]
            self._active.pop(trial.id, None)

    def caught_up(self, now_ms: int) -> Effects:
        self._started = True
        fresh = set(self._ledgers) - self._live
        self._live |= fresh
        effects = Effects()
        for trial in [t for t in self._trials.values() if t.partition in fresh and t.requested is not None]:
            if trial.final:
                effects += self._close(trial)
            else:
                self._lineup.add(trial)
        return self._go_on(effects, now_ms)

    def handle(self, message: Message, now_ms: int) -> Effects:
        record = message.record
        if isinstance(record, PolicyGate):
            if record.run_id == self._run_id:
                self._policies.note(record)
            return self._go_on(Effects(done=[message.position]), now_ms)
        if message.partition not in self._ledgers:
            return Effects()
        if not isinstance(record, RolloutRequested | Invocation | SandboxResult | RolloutCompleted):
            return Effects(done=[message.position])
        if record.run_id != self._run_id:
            return Effects(done=[message.position])
        try:
            parse_trial(record.trial_id)
        except BadId as e:
            raise ContractViolation("id", str(e)) from e
        if isinstance(record, RolloutRequested):
            effects = self._requested(record, message)
        else:
            effects = self._fact(record, message, now_ms)
        return self._go_on(effects, now_ms)

    def tick(self, now_ms: int) -> Effects:
        effects = Effects()
        now_s = self._clock.monotonic()
        for trial in list(self._active.values()):
            effects += self._check_deadline(trial, now_s, now_ms)
        effects += self._drop_orphans(now_s)
        effects += self._give_up(now_s, now_ms)
        for ledger in self._ledgers.values():
            effects.done += ledger.release(now_s)
        return self._go_on(effects, now_ms)

    # -- the engine's side -----------------------------------------------------------------------------------------

    def on_sample(self, sample: EngineSample, now_ms: int) -> Effects:
        """The engine served a call. One that nobody waits for any more (partition lost, deadline passed) is dropped."""
        trial = self._caller(sample.request_id)
        if trial is None or trial.attempt is None:
            return Effects()
        record = trial.attempt.invocation(sample, self._ports.engine)
        trial.pending = echo(ROLLOUT_INVOCATION, record, sample.request_id, self._clock.monotonic())
        return self._go_on(Effects(outputs=[Output(ROLLOUT_INVOCATION, record)]), now_ms)

    def on_engine_error(self, request_id: str, error: str, now_ms: int) -> Effects:
        """The engine could not serve a call."""
        trial = self._caller(request_id)
        if trial is None or trial.attempt is None:
            return Effects()
        trial.attempt.fail("engine", error)
        return self._go_on(self._advance(trial, now_ms), now_ms)

    def _caller(self, request_id: str) -> Trial | None:
        trial = self._active.get(request_id.rsplit(".", 2)[0])
        return trial if trial is not None and trial.waits_for("call", request_id) else None

    # -- facts -----------------------------------------------------------------------------------------------------

    def _trial(self, trial_id: str, partition: int) -> Trial:
        trial = self._trials.get(trial_id)
        if trial is None:
            trial = self._trials[trial_id] = Trial(trial_id, partition, self._clock.monotonic())
        return trial

    def _requested(self, record: RolloutRequested, message: Message) -> Effects:
        ledger = self._ledgers[message.partition]
        if ledger.is_finished(record.trial_id):
            return Effects(done=[message.position])
        trial = self._trial(record.trial_id, message.partition)
        trial.positions.append(message.position)
        ledger.open(trial.id, message.position.offset)
        if trial.requested is None:
            trial.requested = record
            if message.partition in self._live:
                if trial.final:
                    return self._close(trial)
                self._lineup.add(trial)
        return Effects()

    def _fact(self, record: Invocation | SandboxResult | RolloutCompleted, message: Message, now_ms: int) -> Effects:
        if self._ledgers[message.partition].is_finished(record.trial_id):
            return Effects(done=[message.position])
        trial = self._trial(record.trial_id, message.partition)
        if isinstance(record, RolloutCompleted):
            trial.ends.append(message.position)
            trial.completed.setdefault(record.attempt, record)
        else:
            trial.positions.append(message.position)
            if isinstance(record, Invocation):
                trial.invocations.setdefault(record.invocation_id, record)
            else:
                trial.results.setdefault(record.operation_id, record)
        if trial.id in self._active:
            return self._advance(trial, now_ms)
        if trial.final and trial.requested is not None and trial.partition in self._live:
            return self._close(trial)
        return Effects()

    def _drop_orphans(self, now_s: float) -> Effects:
        """Records without a request belong to trials that were finished before: their requests are committed."""
        effects = Effects()
        for trial in [t for t in self._trials.values() if t.requested is None]:
            if trial.partition not in self._live or now_s - trial.seen_s <= ORPHAN_S:
                continue
            if trial.final:
                effects += self._close(trial)
            else:
                del self._trials[trial.id]
                effects.done += trial.positions + trial.ends
        return effects

    def _give_up(self, now_s: float, now_ms: int) -> Effects:
        """End trials that wait for a version of which the gate has never said a word: dispatch asks for none such."""
        effects = Effects()
        for trial in [t for t in self._trials.values() if t.requested is not None and t.id not in self._active]:
            assert trial.requested is not None
            version = trial.requested.policy_version
            if trial.partition in self._live and now_s - trial.seen_s > UNKNOWN_S and not self._policies.knows(version):
                self._active[trial.id] = trial
                why = f"version {version} was never decided on"
                effects += self._emit_end(trial, Finish(end_id(trial.id, trial.number), "engine", why), now_ms)
        return effects

    def _close(self, trial: Trial) -> Effects:
        del self._trials[trial.id]
        self._active.pop(trial.id, None)
        self._ledgers[trial.partition].close(trial.id, trial.ends)
        return Effects(done=trial.positions)

    # -- which trials run ------------------------------------------------------------------------------------------

    def _startable(self, trial_id: str) -> Trial | None:
        """The trial, when it still is to be begun (its partition may be lost, it may have ended elsewhere)."""
        return None if trial_id in self._active else self._trials.get(trial_id)

    def _go_on(self, effects: Effects, now_ms: int) -> Effects:
        """What every entry ends with: load weights that the gate allows, let waiting trials begin."""
        if not self._started:
            return effects
        decision = self._policies.next_load(self._clock.monotonic())
        if decision is not None:
            load = functools.partial(self._ports.load, decision)
            effects.jobs.append(Job(load, functools.partial(self._loaded, decision)))
        while len(self._active) < self._settings.concurrency:
            trial = self._lineup.take(self._policies, self._startable)
            if trial is None:
                break
            self._active[trial.id] = trial
            effects += self._advance(trial, now_ms)
        effects.jobs += self._tasks.jobs(self._clock.monotonic(), self._tasks_changed)
        return effects

    def _loaded(self, decision: PolicyGate, result: Any) -> Effects:
        now_ms = self._clock.now_ms()
        if isinstance(result, BaseException):
            self._policies.failed(self._clock.monotonic())
            self._log.exception("policy not loaded; trying again", result, version=decision.policy_version)
            return Effects()
        if self._harness is not None and result.template_digest != self._harness.template_digest:
            self._log.warning("the harness changed with this version", version=decision.policy_version)
        self._harness = result
        self._policies.finish(decision.policy_version)
        self._log.info("policy loaded", version=decision.policy_version)
        effects = Effects()
        for trial in [t for t in self._active.values() if t.pending and t.pending.kind == "weights"]:
            trial.pending = None
            effects += self._advance(trial, now_ms)
        return self._go_on(effects, now_ms)

    def _tasks_changed(self) -> Effects:
        effects = Effects()
        now_ms = self._clock.now_ms()
        for trial in [t for t in self._active.values() if t.attempt is None and t.pending is None]:
            effects += self._advance(trial, now_ms)
        return self._go_on(effects, now_ms)

    # -- one trial -------------------------------------------------------------------------------------------------

    def _advance(self, trial: Trial, now_ms: int) -> Effects:
        """Feed what the log holds until something is needed that it does not, and ask for that once."""
        with on_account_of([*trial.positions, *trial.ends]):
            return self._next(trial, now_ms)

    def _next(self, trial: Trial, now_ms: int) -> Effects:
        while True:
            if trial.final:
                return self._close(trial)
            if trial.number in trial.completed:
                trial.number, trial.attempt, trial.pending = trial.number + 1, None, None
                continue
            if trial.attempt is None:
                unusable = self._begin(trial)
                if unusable is not None:
                    return self._emit_end(trial, unusable, now_ms)
                if trial.attempt is None:
                    return Effects()
            attempt = trial.attempt
            need = attempt.need
            if isinstance(need, Sample) and (call := trial.invocations.get(need.id)) is not None:
                attempt.on_invocation(call)
            elif isinstance(need, Operate) and (result := trial.results.get(need.id)) is not None:
                attempt.on_result(result)
            else:
                return self._ask(trial, attempt, now_ms)
            trial.pending = None

    def _begin(self, trial: Trial) -> Finish | None:
        """Make the attempt, when its task is at hand; a Finish when that task can never be had."""
        asked = trial.requested
        assert asked is not None
        if self._harness is None:
            return None
        task = self._tasks.find(asked)
        if task is None:
            return None
        if isinstance(task, str):
            return Finish(end_id(trial.id, trial.number), "engine", task)
        trial.attempt = Attempt(asked, trial.number, self._harness, task, rebuild=task.deterministic)
        return None

    def _ask(self, trial: Trial, attempt: Attempt, now_ms: int) -> Effects:
        need, now_s = attempt.need, self._clock.monotonic()
        kinds = {Sample: ("call", "weights", "echo"), Operate: ("operation",), Finish: ("echo", "upload")}[type(need)]
        if trial.pending is not None and trial.pending.id == need.id and trial.pending.kind in kinds:
            return Effects()
        if isinstance(need, Finish):
            return self._emit_end(trial, need, now_ms)
        if isinstance(need, Operate):
            trial.pending = Pending("operation", need.id, now_s)
            return Effects(outputs=[Output(SANDBOX_COMMAND, attempt.command(self._limits, now_ms))])
        if not self._policies.may_sample:
            trial.pending = Pending("weights", need.id, now_s)
            return Effects()
        trial.pending = Pending("call", need.id, now_s)
        self._ports.submit(need.request)
        return Effects()

    def _emit_end(self, trial: Trial, need: Finish, now_ms: int) -> Effects:
        assert trial.requested is not None
        attempts = self._settings.attempts if trial.attempt is not None else 0  # an unusable task stays unusable
        record = ending(trial.requested, trial.number, need, attempts, now_ms, trial.attempt)
        if need.diff is not None and len(need.diff.encode()) > INLINE_DIFF_BYTES:
            trial.pending = Pending("upload", need.id, self._clock.monotonic())
            upload = functools.partial(self._ports.put_diff, need.diff)
            return Effects(jobs=[Job(upload, functools.partial(self._uploaded, trial, record), trial.partition)])
        trial.pending = echo(ROLLOUT_COMPLETED, record, need.id, self._clock.monotonic())
        return Effects(outputs=[Output(ROLLOUT_COMPLETED, record)])

    def _uploaded(self, trial: Trial, record: RolloutCompleted, result: Any) -> Effects:
        if trial.pending is None or trial.pending.kind != "upload":
            return Effects()
        if isinstance(result, BaseException):
            self._log.exception("candidate not stored; trying again", result, trial=trial.id)
            trial.pending.since_s = self._clock.monotonic()
            trial.pending.tries = 0
            return Effects()
        record = replace(record, diff=None, diff_uri=result)
        trial.pending = echo(ROLLOUT_COMPLETED, record, trial.pending.id, self._clock.monotonic())
        return Effects(outputs=[Output(ROLLOUT_COMPLETED, record)])

    def _check_deadline(self, trial: Trial, now_s: float, now_ms: int) -> Effects:
        """Every wait ends: a silent engine or sandbox fails the attempt, a lost record of our own is sent again."""
        pending, attempt = trial.pending, trial.attempt
        if pending is None or trial.requested is None:
            return Effects()
        waited, limit = now_s - pending.since_s, self._settings.operation_deadline_s
        if pending.kind == "upload" and pending.tries == 0 and waited > 1:
            trial.pending = None
            return self._advance(trial, now_ms)
        if pending.kind == "echo" and waited > limit and pending.output is not None:
            if pending.tries >= ECHO_TRIES and attempt is not None and isinstance(attempt.need, Sample):
                attempt.fail("engine", f"the record of {pending.id} never came back")
                return self._advance(trial, now_ms)
            pending.since_s, pending.tries = now_s, pending.tries + 1
            return Effects(outputs=[pending.output])
        if attempt is None:
            return Effects()
        if pending.kind == "call" and waited > trial.requested.wall_s:
            attempt.fail("engine", f"no answer to {pending.id} within {trial.requested.wall_s:g} s")
            return self._advance(trial, now_ms)
        if pending.kind == "operation" and waited > limit:
            if pending.tries == 1:
                pending.since_s, pending.tries = now_s, 2
                return Effects(outputs=[Output(SANDBOX_COMMAND, attempt.command(self._limits, now_ms))])
            attempt.fail("sandbox_lost", f"no result of {pending.id} within {2 * limit:g} s")
            return self._advance(trial, now_ms)
        return Effects()
