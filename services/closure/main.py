"""Runs closure: hands its core to the loop."""

from __future__ import annotations

from prometheus_client import Gauge

from schemas.topics import GROUP_CLOSED, ROLLOUT_REQUESTED, VERIFICATION_VERDICT
from services.closure.cohort import Rewards, Rule
from services.closure.core import ClosureCore
from services.runtime.context import ServiceContext, ServiceSpec
from services.runtime.loop import run_service
from services.runtime.process import ServiceProcess
from services.runtime.settings import RunSettings

SPEC = ServiceSpec("closure", inputs=(ROLLOUT_REQUESTED, VERIFICATION_VERDICT, GROUP_CLOSED))


def make_core(context: ServiceContext) -> ClosureCore:
    """The core as configured, with its metrics."""
    wanted = context.settings.closure
    fraction = wanted.shrink_fraction if wanted.rule == "shrink" else 1.0
    rule = Rule(wanted.rule, fraction, wanted.advantage, wanted.epsilon)

    def on_contradiction(trial_id: str, why: str) -> None:
        context.log.error("a verdict contradicts its request", trial=trial_id, why=why)

    rewards = Rewards.of(context.settings.verifier)
    core = ClosureCore(context.settings.run_id, rule, int(wanted.deadline_s * 1000), rewards, on_contradiction)
    registry = context.registry
    Gauge("rlvr_open_groups", "groups that wait for verdicts", registry=registry).set_function(lambda: core.open_groups)
    for name, text in (
        ("closed", "groups closed since start"),
        ("deadline", "groups closed by their deadline since start"),
        ("orphans", "verdicts dropped since their group was closed before this process started"),
        ("late", "records of groups that were closed already"),
        ("contradicted", "verdicts that contradict their request since start"),
    ):
        gauge = Gauge(f"rlvr_closure_{name}", text, registry=registry)
        gauge.set_function(lambda name=name: core.counts.get(name, 0))  # type: ignore[misc]  # mypy: default argument
    return core


def main(settings: RunSettings, process: ServiceProcess | None = None) -> int:
    """Run until SIGTERM; returns the exit code."""
    return run_service(SPEC, make_core, settings, process)
