"""Loads a candidate version and lets it act on a few prompts: the gate judges what it does, not what it is."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from schemas.policy import PolicyPublished
from services.agent.engine import EngineError, EngineRequest, EngineSample, SamplingParams
from services.gate.core import UnusableCheckpoint
from services.gate.findings import Finding, Limits, Measured, Origin, judge
from services.runtime.checkpoints import Manifest, fetch_checkpoint, load_manifest
from services.runtime.scratch import Scratch
from services.runtime.store import CorruptObject, MissingObject, ObjectStore

if TYPE_CHECKING:
    import torch

    from services.agent.harness import Harness
    from services.agent.template import Task

HARNESS_FILES = ("harness.json", "tokenizer.json")
MODEL_FILES = (*HARNESS_FILES, "config.json", "generation_config.json", "model.safetensors")


@dataclass(frozen=True)
class ProbeSettings:
    """How to probe: which manifest is version 0 (empty: the first one seen), prompts, sampling, bounds."""

    base_manifest: str
    prompts: int
    seed: int
    sampling: SamplingParams
    limits: Limits


def choose_prompts(tasks: Sequence[Task], count: int, seed: int) -> list[Task]:
    """The probe's tasks: the same for every version of a run."""
    return random.Random(f"gate {seed}").sample(list(tasks), min(count, len(tasks)))


class Prober:
    """Probes one version after the other on one thread. The model object is kept: only its weights are read anew."""

    def __init__(self, store: ObjectStore, settings: ProbeSettings, tasks: Sequence[Task]) -> None:
        self._store = store
        self._settings = settings
        self._tasks = choose_prompts(tasks, settings.prompts, settings.seed)
        self._origin: Origin | None = None
        self._harnesses: dict[tuple[str, ...], Harness] = {}
        self._round_trips: dict[str, bool] = {}
        self._shape: str | None = None
        self._model: torch.nn.Module

    def __call__(self, published: PolicyPublished) -> list[Finding]:
        """Findings on a version. Raises UnusableCheckpoint when it can never be loaded, OSError and others when the
        store does not answer."""
        started = time.monotonic()
        try:
            manifest = load_manifest(self._store, published.manifest_uri, published.manifest_digest)
            origin = self._first_harness(manifest)
            with Scratch("gate") as folder:
                fetch_checkpoint(self._store, manifest, folder, MODEL_FILES)
                harness = self._harness(manifest, folder)
                model = self._load(manifest, folder)
            measured = self._measure(harness, model, published.policy_version, started)
        except (MissingObject, CorruptObject, ValueError, KeyError, EngineError) as e:
            raise UnusableCheckpoint(f"{type(e).__name__}: {e}") from e
        return judge(measured, origin, self._settings.limits)

    def _first_harness(self, candidate: Manifest) -> Origin:
        """Tokenizer and template of version 0, read once."""
        if self._origin is None:
            key = self._settings.base_manifest
            base = load_manifest(self._store, key) if key else candidate
            with Scratch("gate") as folder:
                fetch_checkpoint(self._store, base, folder, HARNESS_FILES)
                harness = self._harness(base, folder)
            self._origin = Origin(harness.tokenizer.digest, harness.template_digest)
        return self._origin

    def _harness(self, manifest: Manifest, folder: Path) -> Harness:
        """The harness in `folder`, parsed once per content."""
        from services.agent.harness import Harness

        content = tuple(manifest.files[name].sha256 for name in HARNESS_FILES)
        if content not in self._harnesses:
            self._harnesses = {content: Harness.load(folder)}
        return self._harnesses[content]

    def _load(self, manifest: Manifest, folder: Path) -> torch.nn.Module:
        """The candidate's model. Weights go into the model at hand when the configuration is the same: building one
        anew costs more than the whole probe of a small policy."""
        from safetensors.torch import load_file

        from services.agent import model as models

        shape = manifest.files["config.json"].sha256
        weights = folder / "model.safetensors"
        if shape != self._shape or not weights.exists():
            self._shape = None
            self._model = models.load(folder)
            self._shape = shape
            return self._model
        tied = {"lm_head.weight"} if getattr(self._model.config, "tie_word_embeddings", False) else set()
        try:
            missing, unexpected = self._model.load_state_dict(load_file(weights), strict=False)
        except RuntimeError as e:  # a tensor of another size
            self._shape = None
            raise ValueError(f"the weights do not fit the configuration: {e}") from e
        if unexpected or set(missing) - tied:
            self._shape = None
            raise ValueError(f"the weights do not fit the configuration: missing {missing}, unexpected {unexpected}")
        return self._model

    def _measure(self, harness: Harness, model: torch.nn.Module, version: int, started: float) -> Measured:
        import torch

        finite = all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())
        samples = self._sample(harness, model, version) if finite else []
        logprobs = np.concatenate([sample.logprobs for sample in samples]) if samples else np.zeros(0, np.float32)
        return Measured(
            finite_weights=finite,
            round_trip=self._reads_back(harness),
            tokenizer=harness.tokenizer.digest,
            template=harness.template_digest,
            valid_actions=self._valid_actions(harness, samples),
            entropy=round(float(-logprobs.mean()), 6) if logprobs.size else float("nan"),
            memory_mb=resident_mb(),
            probes=len(samples),
            tokens=int(logprobs.size),
            seconds=round(time.monotonic() - started, 4),
        )

    def _sample(self, harness: Harness, model: torch.nn.Module, version: int) -> list[EngineSample]:
        """One call per prompt, with the same seeds at every version. Raises EngineError."""
        from services.agent.engines.torch_engine import TorchEngine

        engine = TorchEngine(batch=max(1, len(self._tasks)))
        engine.use(version, model)
        found: list[EngineSample] = []
        failed: list[EngineError] = []
        stop = threading.Event()

        def count() -> None:
            if len(found) + len(failed) == len(self._tasks):
                stop.set()

        def on_sample(sample: EngineSample) -> None:
            found.append(sample)
            count()

        def on_error(request_id: str, error: EngineError) -> None:
            del request_id
            failed.append(error)
            count()

        for number, task in enumerate(self._tasks):
            prefix = harness.prompt_ids(task)
            room = min(harness.limits.action_tokens, harness.limits.context_tokens - len(prefix))
            engine.submit(EngineRequest(str(number), prefix, room, number, self._settings.sampling, harness.stop_ids))
        count()
        engine.run(on_sample, on_error, stop)
        if failed:
            raise failed[0]
        return found

    def _reads_back(self, harness: Harness) -> bool:
        """Whether every probe prompt survives its round trip; asked once per tokenizer: its digest pins the answer."""
        digest = harness.tokenizer.digest
        if digest not in self._round_trips:
            self._round_trips[digest] = all(_round_trip(harness, task) for task in self._tasks)
        return self._round_trips[digest]

    def _valid_actions(self, harness: Harness, samples: Sequence[EngineSample]) -> float:
        from services.agent.context import TrialContext
        from services.agent.grammar import Malformed

        valid = 0
        for sample in samples:
            context = TrialContext(harness, self._tasks[int(sample.request_id)])
            valid += not isinstance(context.after_invocation(sample.ids), Malformed)
        return valid / len(samples) if samples else float("nan")


def _round_trip(harness: Harness, task: Task) -> bool:
    """Whether the prompt's ids read back as the prompt, and mark where the policy acts exactly once."""
    from services.agent.template import prompt_text
    from services.agent.tokenizer import ACT, BEGIN

    ids = harness.prompt_ids(task)
    framed = ids[0] == BEGIN and ids[-1] == ACT and int((ids == ACT).sum()) == 1
    return bool(framed) and harness.tokenizer.decode(ids[1:-1]) == prompt_text(task)


def resident_mb() -> float:
    """Resident memory of this process in MiB."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)
