"""Runs the sampler: the engine on its own thread, the core in the loop, weights fetched as the gate allows them."""

from __future__ import annotations

import threading

from prometheus_client import Counter, Gauge

from schemas.policy import PolicyGate
from schemas.topics import POLICY_GATE, ROLLOUT_COMPLETED, ROLLOUT_INVOCATION, ROLLOUT_REQUESTED, SANDBOX_RESULT
from services.agent.engine import Engine, EngineError, EngineSample
from services.agent.harness import HARNESS_FILE, TOKENIZER_FILE, Harness
from services.runtime.checkpoints import Manifest, fetch_checkpoint, load_manifest
from services.runtime.context import ServiceContext, ServiceSpec
from services.runtime.errors import UserError
from services.runtime.loop import run_service
from services.runtime.process import ServiceProcess
from services.runtime.scratch import Scratch
from services.runtime.settings import RunSettings
from services.runtime.store import CorruptObject, MissingObject, ObjectStore
from services.sampler.core import Ports, SamplerCore

SPEC = ServiceSpec(
    "sampler",
    inputs=(ROLLOUT_REQUESTED, SANDBOX_RESULT, ROLLOUT_INVOCATION, ROLLOUT_COMPLETED),
    broadcast=(POLICY_GATE,),
    workers=2,
)


def fetched_harness(store: ObjectStore, manifest: Manifest) -> Harness:
    """The harness of a checkpoint, without its weights."""
    with Scratch("harness") as folder:
        fetch_checkpoint(store, manifest, folder, [HARNESS_FILE, TOKENIZER_FILE])
        return Harness.load(folder)


def synthetic_engine(context: ServiceContext) -> Engine:
    """The engine without a model; its right answers come from the catalogue's own repairs of training tasks."""
    from services.agent.engines.synthetic import SyntheticEngine
    from services.agent.grammar import Edit, render
    from services.tasks.repair import reference_edits
    from services.tasks.taskset import load_public

    settings, store = context.settings, context.store
    try:
        harness = fetched_harness(store, load_manifest(store, settings.base_manifest))
        tasks = load_public(store.get(f"tasks/{settings.taskset_digest}/public.json"))
    except (MissingObject, CorruptObject, ValueError) as e:
        raise UserError(f"the run is not prepared: {e}", "base_manifest, taskset_digest", "prepare it first") from e
    answers = {}
    if settings.tasks.source == "catalogue":
        for fixture, (line, text) in reference_edits(tasks):
            answers[harness.prompt_ids(fixture).tobytes()] = harness.action_ids(render(Edit(line, text.lstrip())))
    chosen = settings.sampler
    return SyntheticEngine(
        harness, chosen.synthetic_min_s, chosen.synthetic_max_s, chosen.synthetic_pass_rate, answers=answers
    )


def torch_engine(context: ServiceContext) -> Engine:
    """The embedded engine."""
    from services.agent import model
    from services.agent.engines.torch_engine import TorchEngine

    chosen = context.settings.sampler
    if why := model.unusable(chosen.device):
        raise UserError(
            f"torch cannot use the device {chosen.device!r}: {why}", "sampler.device", "correct it, or use cpu"
        )
    return TorchEngine(batch=chosen.concurrency, threads=chosen.threads, device=chosen.device)


class Sampler:
    """Engine and core of one process, and the ways between them."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        kind = context.settings.sampler.engine
        self._engine = synthetic_engine(context) if kind == "synthetic" else torch_engine(context)
        self._weights_read = kind != "synthetic"
        ports = Ports(self._engine.name, self._engine.submit, self._load, self._tasks, self._put_diff)
        self.core = SamplerCore(context.settings, ports, context.clock, context.log)
        self._tokens = Counter("rlvr_sampler_tokens", "tokens sampled", registry=context.registry)
        self._calls = Counter("rlvr_sampler_calls", "model calls by outcome", ["outcome"], registry=context.registry)
        self._gauge("rlvr_sampler_trials_active", "trials under way", lambda: self.core.active_trials)
        self._gauge("rlvr_sampler_trials_waiting", "requested trials not begun", lambda: self.core.waiting_trials)
        self._gauge("rlvr_sampler_policy_version", "version in the engine", lambda: self.core.policy_version)
        threading.Thread(target=self._run_engine, name="engine", daemon=True).start()

    def _gauge(self, name: str, text: str, read: object) -> None:
        assert callable(read)
        Gauge(name, text, registry=self._context.registry).set_function(lambda: float(read()))

    def _run_engine(self) -> None:
        try:
            self._engine.run(self._on_sample, self._on_error, self._context.stop)
        except Exception as e:
            self._context.fail(e)

    def _on_sample(self, sample: EngineSample) -> None:
        self._tokens.inc(len(sample.ids))
        self._calls.labels("sampled").inc()
        self._context.emit(lambda: self.core.on_sample(sample, self._context.clock.now_ms()))

    def _on_error(self, request_id: str, error: EngineError) -> None:
        # An engine that is being stopped failed nobody: whoever takes over goes on from what is in the log.
        if self._context.stop.is_set():
            return
        self._calls.labels("failed").inc()
        self._context.log.error("engine", call=request_id, error=str(error))
        self._context.emit(lambda: self.core.on_engine_error(request_id, str(error), self._context.clock.now_ms()))

    # -- ports, on worker threads ------------------------------------------------------------------------------------

    def _load(self, decision: PolicyGate) -> Harness:
        store = self._context.store
        manifest = load_manifest(store, decision.manifest_uri, decision.manifest_digest)
        with Scratch("policy") as folder:
            names = manifest.policy_files if self._weights_read else [HARNESS_FILE, TOKENIZER_FILE]
            fetch_checkpoint(store, manifest, folder, names)
            self._engine.load(decision.policy_version, folder)
            return Harness.load(folder)

    def _tasks(self, digest: str) -> bytes:
        return self._context.store.get(f"tasks/{digest}/public.json")

    def _put_diff(self, diff: str) -> str:
        return self._context.store.put_content(diff.encode())


def make_core(context: ServiceContext) -> SamplerCore:
    """The core with its engine running."""
    return Sampler(context).core


def main(settings: RunSettings, process: ServiceProcess | None = None) -> int:
    """Run until SIGTERM; returns the exit code."""
    return run_service(SPEC, make_core, settings, process)
