"""Runs admission: hands its core to the loop."""

from __future__ import annotations

from prometheus_client import Gauge

from schemas.topics import GROUP_ADMISSION, GROUP_CLOSED, POLICY_GATE, POLICY_PUBLISHED
from services.admission.core import AdmissionCore
from services.runtime.context import ServiceContext, ServiceSpec
from services.runtime.loop import run_service
from services.runtime.process import ServiceProcess
from services.runtime.settings import RunSettings

SPEC = ServiceSpec("admission", inputs=(GROUP_CLOSED, GROUP_ADMISSION), broadcast=(POLICY_PUBLISHED, POLICY_GATE))
REASONS = ("admitted", "stale", "unresolved", "zero_contrast", "halted_version", "poison")


def make_core(context: ServiceContext) -> AdmissionCore:
    """The core as configured, with its metrics."""

    def on_poison(group_id: str, why: str) -> None:
        context.log.error("a closed group contradicts itself", group=group_id, why=why)

    core = AdmissionCore(context.settings.run_id, context.settings.admission.max_lag, on_poison)
    decided = Gauge("rlvr_admission_decided", "groups decided since start", ("reason",), registry=context.registry)
    for reason in REASONS:
        decided.labels(reason).set_function(lambda reason=reason: core.counts.get(reason, 0))  # type: ignore[misc]  # mypy: default argument
    waiting = Gauge("rlvr_admission_waiting", "closed groups that wait for a decision", registry=context.registry)
    waiting.set_function(lambda: core.waiting_groups)
    return core


def main(settings: RunSettings, process: ServiceProcess | None = None) -> int:
    """Run until SIGTERM; returns the exit code."""
    return run_service(SPEC, make_core, settings, process)
