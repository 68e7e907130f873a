"""Runs dispatch: loads the task set, hands the core to the loop, and ends by itself when the run is over."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import Gauge

from schemas.topics import (
    EVALUATION_RESULT,
    GROUP_ADMISSION,
    POLICY_GATE,
    ROLLOUT_REQUESTED,
    TRAINING_UPDATE,
    VERIFICATION_ALARM,
)
from services.dispatch.cohorts import EvaluationPlan, draw_tasks
from services.dispatch.core import DispatchCore
from services.dispatch.credit import Credit
from services.dispatch.requests import Planner
from services.dispatch.selection import Task
from services.runtime.context import ServiceContext, ServiceSpec
from services.runtime.core import Effects, Message
from services.runtime.errors import UserError
from services.runtime.loop import run_service
from services.runtime.process import ServiceProcess
from services.runtime.settings import RunSettings
from services.runtime.store import MissingObject, ObjectStore
from services.tasks import leaks, training
from services.tasks.certificates import Certificates
from services.tasks.taskset import HELDOUT_BUGS, HELDOUT_FAMILIES, TRAIN, BadDocument, TaskSet, load_public

SPEC = ServiceSpec(
    "dispatch",
    broadcast=(
        ROLLOUT_REQUESTED,
        GROUP_ADMISSION,
        POLICY_GATE,
        TRAINING_UPDATE,
        EVALUATION_RESULT,
        VERIFICATION_ALARM,
    ),
)


class EndingCore(DispatchCore):
    """The core in its process: asks the loop to drain and leave (exit code 0) once the run is over."""

    context: ServiceContext

    def caught_up(self, now_ms: int) -> Effects:
        return self._then_end(super().caught_up(now_ms))

    def handle(self, message: Message, now_ms: int) -> Effects:
        return self._then_end(super().handle(message, now_ms))

    def tick(self, now_ms: int) -> Effects:
        return self._then_end(super().tick(now_ms))

    def _then_end(self, effects: Effects) -> Effects:
        if self.finished and not self.context.stop.is_set():
            facts = self.facts
            if facts.alarm is not None:
                self.context.log.error(
                    "verdicts cannot be believed: no more groups", alarm=facts.alarm.alarm_id, detail=facts.alarm.detail
                )
            self.context.log.info("run finished", reason=self.finished, updates=facts.updates, promoted=facts.promoted)
            self.context.stop.set()
        return effects


def load_tasks(store: ObjectStore, digest: str) -> TaskSet:
    """The run's task set, public half. Raises UserError when it is not in the store or not what it says."""
    key = f"tasks/{digest}/public.json"
    if not digest:
        raise UserError("the run names no task set", "taskset_digest", "prepare the run first: rollstream run does")
    try:
        return load_public(store.get(key))
    except MissingObject as e:
        raise UserError(f"the task set is not in the object store: {e}", key, "prepare the run again") from e
    except BadDocument as e:
        raise UserError(f"the task set cannot be used: {e}", key, "prepare the run again") from e


def evaluation_plan(settings: RunSettings, tasks: TaskSet) -> EvaluationPlan:
    """Which tasks every evaluation of this run measures."""
    wanted = settings.evaluation
    counts = {
        TRAIN: wanted.train_tasks,
        HELDOUT_BUGS: wanted.heldout_bugs,
        HELDOUT_FAMILIES: wanted.heldout_families,
    }
    sets = {
        name: draw_tasks(settings.seed, name, (fixture.task_id for fixture in tasks.split(name)), count)
        for name, count in counts.items()
    }
    return EvaluationPlan(sets, wanted.samples)


def training_tasks(context: ServiceContext, tasks: TaskSet) -> list[Task]:
    """The tasks that may be trained on, by the run's certificates. Raises UserError where these do not suffice."""
    settings = context.settings
    key = training.object_key(settings.taskset_digest)
    try:
        held = training.read(context.store.get(key), key)
    except MissingObject:
        held = Certificates()
    allowed = settings.tasks.allow_uncertified or not settings.dispatch.updates
    found = training.trainable(tasks.split(TRAIN), held, allowed)
    if found.left_out:
        context.log.warning("quarantined tasks left out of training", tasks=dict(found.left_out))
    # Leak canaries have no reference that a certificate could be made with; they are asked to be failed.
    return [Task(fixture.task_id, fixture.family) for fixture in (*found.fixtures, *tasks.split(leaks.SPLIT))]


def make_core(context: ServiceContext) -> EndingCore:
    """The core as configured, with its metrics and alarms."""
    settings = context.settings
    tasks = load_tasks(context.store, settings.taskset_digest)
    selectable = training_tasks(context, tasks)
    if not selectable and settings.dispatch.updates:
        raise UserError("the task set has no training tasks", settings.taskset_digest, "choose another tasks.source")
    fixtures = {fixture.task_id: fixture for fixture in tasks.fixtures}
    planner = Planner(settings.run_id, settings.seed, settings.taskset_digest, fixtures, settings.sampling)

    def alarm(what: str, names: Sequence[str]) -> None:
        context.log.error("overdue", what=what, names=list(names))
        alarms.inc(len(names))

    alarms = Gauge("rlvr_dispatch_overdue", "groups and versions named overdue since start", registry=context.registry)
    core = EndingCore(
        planner,
        selectable,
        evaluation_plan(settings, tasks),
        Credit(settings.admission.max_lag, settings.dispatch.batch_groups, settings.dispatch.updates),
        group_size=settings.dispatch.group_size,
        selection=settings.dispatch.selection,
        evaluate_every=settings.evaluation.every,
        wall_s=settings.dispatch.wall_s,
        closure_deadline_ms=int(settings.closure.deadline_s * 1000),
        alarm=alarm,
    )
    core.context = context
    registry = context.registry
    Gauge("rlvr_dispatch_open_groups", "training groups started, neither excluded nor trained on", registry=registry
          ).set_function(lambda: len(core.facts.open))  # fmt: skip
    Gauge("rlvr_dispatch_groups", "groups planned in this run", registry=registry
          ).set_function(lambda: core.facts.next_number)  # fmt: skip
    return core


def main(settings: RunSettings, process: ServiceProcess | None = None) -> int:
    """Run until the run is over (exit code 0) or SIGTERM; returns the exit code."""
    return run_service(SPEC, make_core, settings, process)
