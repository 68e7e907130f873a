"""Runs the trainer: restores the newest checkpoint, reads on from where it stood, hands the core to the loop."""

from __future__ import annotations

from prometheus_client import Gauge

from schemas.topics import GROUP_ADMISSION, POLICY_PUBLISHED, ROLLOUT_INVOCATION, TRAINING_UPDATE
from services.runtime.checkpoints import Manifest, latest_manifest, load_manifest
from services.runtime.context import ServiceContext, ServiceSpec
from services.runtime.errors import UserError
from services.runtime.loop import run_service
from services.runtime.process import ServiceProcess
from services.runtime.settings import RunSettings
from services.runtime.store import CorruptObject, MissingObject, ObjectStore
from services.trainer.checkpoint import SyntheticWeights, TorchWeights, Weights
from services.trainer.core import TrainerCore
from services.trainer.records import offsets_of


def starting_point(settings: RunSettings, store: ObjectStore) -> Manifest:
    """The newest checkpoint of the run, else its base. Raises UserError when there is none to start from."""
    try:
        newest = latest_manifest(store, settings.run_id)
        if newest is not None:
            return newest
        if not settings.base_manifest:
            raise UserError(
                "the run names no base checkpoint", "base_manifest", "prepare the run first: rollstream run does"
            )
        return load_manifest(store, settings.base_manifest)
    except MissingObject as e:
        raise UserError(f"the checkpoint to start from is gone: {e}", do="restore it, or start a new run") from e
    except CorruptObject as e:
        raise UserError(f"the checkpoint to start from is damaged: {e}", do="restore it, or start a new run") from e


def make_weights(context: ServiceContext) -> Weights:
    """The trainer of the configured kind."""
    settings = context.settings
    if settings.trainer.kind == "synthetic":
        return SyntheticWeights(settings.trainer.synthetic_update_s, context.stop)
    if settings.sampling.top_k or settings.sampling.top_p < 1:
        raise UserError(
            "the trainer cannot score a cut distribution: its ratio to the sampler's would be biased",
            "sampling.top_k, sampling.top_p",
            "train with top_k = 0 and top_p = 1",
        )
    return TorchWeights(settings, context.store)


class Starter:
    """Makes the core, and knows afterwards where its inputs are to be read from."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, int], int] = {}

    def offsets(self) -> dict[tuple[str, int], int]:
        """(topic, partition) -> offset, as the manifest says."""
        return self._offsets

    def make_core(self, context: ServiceContext) -> TrainerCore:
        """The core at the newest version."""
        manifest = starting_point(context.settings, context.store)
        weights = make_weights(context)
        weights.restore(manifest)
        self._offsets = offsets_of(manifest)
        context.log.info("restored", version=manifest.version, manifest=manifest.key)
        core = TrainerCore(context.settings, context.store, weights, manifest, context.clock, context.log)
        registry = context.registry
        Gauge("rlvr_trainer_version", "newest version whose manifest exists", registry=registry).set_function(
            lambda: core.version
        )
        Gauge("rlvr_trainer_held_groups", "groups held until they are decided", registry=registry).set_function(
            lambda: core.held_groups
        )
        return core


def spec(starter: Starter) -> ServiceSpec:
    """What the trainer reads: its inputs from the manifest's offsets, its own announcements from the beginning."""
    return ServiceSpec(
        "trainer",
        inputs=(ROLLOUT_INVOCATION, GROUP_ADMISSION),
        broadcast=(POLICY_PUBLISHED, TRAINING_UPDATE),
        pinned=starter.offsets,
        workers=2,
    )


def main(settings: RunSettings, process: ServiceProcess | None = None) -> int:
    """Run until SIGTERM; returns the exit code."""
    starter = Starter()
    return run_service(spec(starter), starter.make_core, settings, process)
