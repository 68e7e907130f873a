"""Runs the gate: loads the probe's tasks and hands the core to the loop."""

from __future__ import annotations

from prometheus_client import Gauge

from schemas.policy import PolicyPublished
from schemas.topics import (
    EVALUATION_RESULT,
    POLICY_GATE,
    POLICY_PUBLISHED,
    ROLLOUT_REQUESTED,
    VERIFICATION_ALARM,
    VERIFICATION_VERDICT,
)
from services.agent.engine import SamplingParams
from services.gate.core import Check, GateCore, UnusableCheckpoint
from services.gate.evaluation import Evaluations
from services.gate.findings import Finding, Limits
from services.gate.probe import Prober, ProbeSettings
from services.runtime.checkpoints import load_manifest
from services.runtime.context import ServiceContext, ServiceSpec
from services.runtime.errors import UserError
from services.runtime.loop import run_service
from services.runtime.process import ServiceProcess
from services.runtime.settings import RunSettings
from services.runtime.store import CorruptObject, MissingObject, ObjectStore
from services.tasks.taskset import TRAIN, BadDocument, load_public

SPEC = ServiceSpec(
    "gate",
    broadcast=(
        POLICY_PUBLISHED,
        POLICY_GATE,
        ROLLOUT_REQUESTED,
        VERIFICATION_VERDICT,
        VERIFICATION_ALARM,
        EVALUATION_RESULT,
    ),
    workers=1,
)
MARGIN_MS = 60_000
"""Beyond closure's deadline, before an evaluation is closed over trials that never got a verdict."""


class ManifestOnly:
    """The check of synthetic versions, which have no model: the manifest is complete and is the one announced."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __call__(self, published: PolicyPublished) -> list[Finding]:
        """See `services.gate.core.Check`."""
        try:
            manifest = load_manifest(self._store, published.manifest_uri, published.manifest_digest)
        except (MissingObject, CorruptObject) as e:
            raise UnusableCheckpoint(str(e)) from e
        same = manifest.version == published.policy_version
        return [Finding("synthetic_manifest", manifest.version, published.policy_version, same)]


def make_check(context: ServiceContext) -> Check:
    """The check that this run's versions need. Raises UserError when the task set cannot be read."""
    settings = context.settings
    if settings.trainer.kind == "synthetic":
        return ManifestOnly(context.store)
    key = f"tasks/{settings.taskset_digest}/public.json"
    try:
        tasks = load_public(context.store.get(key))
    except (MissingObject, BadDocument) as e:
        raise UserError(f"the gate cannot read the task set: {e}", key, "prepare the run again") from e
    gate = settings.gate
    sampling = SamplingParams(settings.sampling.temperature, settings.sampling.top_k, settings.sampling.top_p)
    limits = Limits(gate.min_entropy, gate.min_valid_actions, gate.max_memory_mb)
    probe = ProbeSettings(settings.base_manifest, gate.probe_prompts, settings.seed, sampling, limits)
    prober = Prober(context.store, probe, tasks.split(TRAIN))

    def check(published: PolicyPublished) -> list[Finding]:
        import torch

        torch.set_num_threads(gate.threads)
        return prober(published)

    return check


def make_core(context: ServiceContext) -> GateCore:
    """The core as configured, with its metrics."""
    settings = context.settings

    def on_trouble(version: int, why: str) -> None:
        context.log.warning("a version could not be checked; trying again", version=version, why=why)

    evaluations = Evaluations(settings.run_id, int(settings.closure.deadline_s * 1000) + MARGIN_MS)
    core = GateCore(settings.run_id, make_check(context), evaluations, context.clock.now_ms, on_trouble)
    registry = context.registry
    pending = Gauge("rlvr_gate_pending_versions", "published versions without a decision", registry=registry)
    pending.set_function(lambda: core.pending_versions)
    held = Gauge("rlvr_gate_held_versions", "versions held back since start", registry=registry)
    held.set_function(lambda: core.held_versions)
    waiting = Gauge("rlvr_gate_evaluation_trials", "evaluation trials without a final verdict", registry=registry)
    waiting.set_function(lambda: sum(core.waiting.values()))
    return core


def main(settings: RunSettings, process: ServiceProcess | None = None) -> int:
    """Run until SIGTERM; returns the exit code."""
    return run_service(SPEC, make_core, settings, process)
