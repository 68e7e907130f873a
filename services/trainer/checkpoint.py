"""What an update changes: a policy with its optimizer, restored from and saved to checkpoints byte for byte."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from schemas.bounds import INT32
from services.runtime.checkpoints import OPTIMIZER_FILE, Manifest, StoredFile, fetch_checkpoint, load_manifest
from services.runtime.errors import UserError
from services.runtime.scratch import Scratch
from services.runtime.settings import RunSettings
from services.runtime.store import ObjectStore
from services.trainer.assembly import Room
from services.trainer.packing import TrainGroup

if TYPE_CHECKING:
    from services.trainer.update import Updater, UpdateSettings

Stats = Mapping[str, Any]
"""Fields of `training.update` that only the update itself knows."""
Files = Mapping[str, bytes | Path | StoredFile]


class Interrupted(RuntimeError):
    """The service was asked to end in the middle of an update; the next start computes it again."""


class Weights(Protocol):
    """The part of a trainer that differs by kind. Used by one job at a time."""

    def restore(self, manifest: Manifest) -> None:
        """Be exactly at this version."""

    def update(self, groups: Sequence[TrainGroup], version: int) -> Stats:
        """Become `version`. Raises ValueError or FloatingPointError when these groups cannot be trained on."""

    def files(self) -> Files:
        """The files of the present weights; valid until the next call."""

    @property
    def room(self) -> Room:
        """What can be put into the present weights."""


class TorchWeights:
    """The real thing: a transformers model under the GRPO updater."""

    def __init__(self, settings: RunSettings, store: ObjectStore) -> None:
        import torch

        from services.agent import model as policy

        if why := policy.unusable(device := settings.trainer.device):
            raise UserError(
                f"torch cannot use the device {device!r}: {why}", "trainer.device", "correct it, or use cpu"
            )
        torch.set_num_threads(settings.trainer.threads)
        torch.use_deterministic_algorithms(True)
        self._settings = settings
        self._store = store
        self._scratch: Scratch | None = None
        self._updater: Updater | None = None
        self._harness: Any = None

    def restore(self, manifest: Manifest) -> None:
        """See Weights."""
        from services.agent import model as policy
        from services.agent.harness import Harness
        from services.trainer.update import Updater

        with Scratch("restore") as folder:
            fetch_checkpoint(self._store, manifest, folder)
            model = policy.load(folder, self._settings.trainer.device)
            self._harness = Harness.load(folder)
            self._updater = Updater(
                model,
                cast("UpdateSettings", self._settings.trainer),
                self._settings.seed,
                self._reference(),
                total_updates=self._settings.dispatch.updates,
            )
            if (folder / OPTIMIZER_FILE).exists():
                self._updater.load_state(folder / OPTIMIZER_FILE)

    def _reference(self) -> Any:
        """The frozen policy that a KL term compares with: version 0."""
        from services.agent import model as policy

        if self._settings.trainer.kl_estimator == "none":
            return None
        with Scratch("reference") as folder:
            fetch_checkpoint(self._store, load_manifest(self._store, self._settings.base_manifest), folder)
            return policy.load(folder, self._settings.trainer.device).requires_grad_(False)

    @property
    def room(self) -> Room:
        """See Weights."""
        shape = getattr(self._updater and self._updater.model, "config", None)
        limits = (getattr(shape, name, None) for name in ("vocab_size", "max_position_embeddings"))
        return Room(*(INT32 if limit is None else int(limit) for limit in limits))

    def update(self, groups: Sequence[TrainGroup], version: int) -> Stats:
        """See Weights."""
        if self._updater is None:
            raise RuntimeError("no version was restored")
        stats = dataclasses.asdict(self._updater.update(groups, version))
        return {**stats, "imitation_loss": self._updater.imitation_loss}

    def files(self) -> Files:
        """See Weights."""
        from services.agent import model as policy

        if self._updater is None:
            raise RuntimeError("no version was restored")
        if self._scratch is not None:
            self._scratch.close()
        self._scratch = Scratch("checkpoint")
        folder = self._scratch.path
        policy.save(folder, self._updater.model, self._harness)
        self._updater.save_state(folder / OPTIMIZER_FILE)
        return {path.name: path for path in sorted(folder.iterdir())}


class SyntheticWeights:
    """Takes the time of an update and publishes the same weights under a new version: for measuring everything else."""

    def __init__(self, update_s: float, stop: threading.Event) -> None:
        self._update_s = update_s
        self._stop = stop
        self._files: Files = {}
        self.room = Room()

    def restore(self, manifest: Manifest) -> None:
        """See Weights."""
        self._files = dict(manifest.files)

    def update(self, groups: Sequence[TrainGroup], version: int) -> Stats:
        """See Weights. Nothing is learned, and the record says so: rate, loss and gradient are 0, every ratio is 1."""
        del version
        if self._stop.wait(self._update_s):
            raise Interrupted("stopped during a synthetic update")
        members = [member for group in groups for member in group.members]
        zeros = (
            "learning_rate loss policy_loss kl_loss entropy mismatch_mean mismatch_max clip_low_fraction "
            "clip_high_fraction cap_fraction gradient_norm"
        )
        return {
            **dict.fromkeys(zeros.split(), 0.0),
            **dict.fromkeys(("ratio_p01", "ratio_p50", "ratio_p99"), 1.0),
            "optimizer_steps": 0,
            "scored_tokens": sum(len(call.sampled) for member in members for call in member.calls),
            "prompt_tokens": sum(len(member.calls[0].prefix) for member in members if member.calls),
            "sequences": len(members),
            "mean_reward": sum(member.reward for member in members) / max(1, len(members)),
            "computed_ms": round(self._update_s * 1000),
        }

    def files(self) -> Files:
        """See Weights."""
        return self._files
