"""One TOML file per run plus environment: every setting of every service, typed, with its bounds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from services.runtime import places
from services.runtime.errors import UserError
from services.runtime.places import Layer
from services.runtime.sections import Kafka as Kafka
from services.runtime.sections import Runtime as Runtime
from services.runtime.sections import Section as Section
from services.runtime.sections import Store as Store
from services.runtime.toml import literal, read_toml


class Tasks(Section):
    """Which tasks. `source` is `catalogue` or the path of a QuixBugs-style jsonl file."""

    source: str = "catalogue"
    seed: int = Field(0, ge=0, lt=2**63)
    certificates: str = Field("", description="file of certificates; empty: the ones shipped with the catalogue")
    allow_uncertified: bool = Field(False, description="also train on check sets without a valid certificate")
    leak_canaries: int = Field(0, ge=0, le=10_000, description="unsolvable training tasks; a solved one stops")


class Isolation(Section):
    """What jails are made of, for sandbox and verifier alike."""

    backend: Literal["bubblewrap", "docker"] = "bubblewrap"
    docker_url: str = Field("", description="address of the Docker Engine; empty: DOCKER_HOST or its usual socket")
    docker_image: str = Field("", description="image with Python 3.11 or newer; empty: the staged interpreter")
    docker_runtime: str = Field("", description="for example runsc (gVisor); empty: the engine's default")


class Sampling(Section):
    """The distribution that rollouts are sampled from."""

    temperature: float = Field(1.0, gt=0)
    top_k: int = Field(0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)


class Dispatch(Section):
    """Groups, curriculum and credit."""

    group_size: int = Field(8, ge=1, le=1024)
    batch_groups: int = Field(10, ge=1, le=65_536, description="admitted groups per update; also the credit unit")
    selection: Literal["uniform", "pass_rate"] = "pass_rate"
    updates: int = Field(36, ge=0, description="the run ends after this many")
    wall_s: float = Field(0.0, ge=0, description="no new groups after this many seconds of training; 0: no limit")


class Sampler(Section):
    """Engine and concurrency."""

    engine: Literal["torch", "synthetic"] = "torch"
    concurrency: int = Field(128, ge=1, le=65_536, description="trials in flight in one sampler")
    threads: int = Field(1, ge=1, le=1024)
    device: str = Field("cpu", description="where the embedded engine computes, as torch names it: cpu, cuda, cuda:1")
    attempts: int = Field(3, ge=1, description="attempts of one trial before its outcome is unknown")
    operation_deadline_s: float = Field(30.0, gt=0)
    synthetic_min_s: float = Field(0.2, ge=0)
    synthetic_max_s: float = Field(16.8, ge=0)
    synthetic_pass_rate: float = Field(0.5, ge=0, le=1)

    @model_validator(mode="after")
    def _span(self) -> Sampler:
        if self.synthetic_min_s > self.synthetic_max_s:
            raise ValueError(f"synthetic_min_s = {self.synthetic_min_s:g} is above synthetic_max_s")
        return self


class Sandbox(Section):
    """Exploration workspaces."""

    workers: int = Field(2, ge=1, le=1024)
    workspaces: int = Field(160, ge=1, le=65_536, description="live workspaces in one sandbox service")
    pool: int = Field(8, ge=0, le=65_536, description="started jails that wait; 0: each workspace gets a fresh one")
    cpu_s: float = Field(0.1, gt=0, description="CPU seconds of one public check run")
    wall_s: float = Field(5.0, gt=0)
    memory_mb: int = Field(256, ge=32)
    processes: int = Field(16, ge=1, le=65_536)
    print_kb: int = Field(1024, ge=64, le=65_536, description="KiB that one public check run may print; more ends it")
    output_bytes: int = Field(16_384, ge=256)
    idle_s: float = Field(600.0, gt=0, description="a workspace unused for this long is removed")


class Verifier(Section):
    """All-pass verification."""

    workers: int = Field(3, ge=1, le=1024, description="check runs at once: a third of their time they wait")
    trials: int = Field(3, ge=1, le=1000, description="k: every one must pass")
    infra_retries: int = Field(3, ge=0)
    retry_backoff_s: float = Field(0.1, ge=0, description="before the first repeat after a fault; doubles")
    min_evidence: Literal["E1", "E2", "E3", "E4"] = "E2"
    call_cpu_s: float = Field(0.1, gt=0)
    wall_s: float = Field(10.0, gt=0)
    memory_mb: int = Field(256, ge=32)
    processes: int = Field(16, ge=1, le=65_536)
    print_kb: int = Field(1024, ge=64, le=65_536, description="KiB that a check run may print; more fails it")
    reuse: bool = Field(True, description="reuse the verdict of an identical candidate at identical digests")
    rejudge_share: float = Field(
        0.05,
        ge=0,
        le=1,
        description="of what could be reused, passes and fails, judged afresh; chosen by the trial's id",
    )
    format_weight: float = Field(0.0, ge=0)
    length_weight: float = Field(0.0, ge=0)
    objective: Literal["all_pass", "partial_cases"] = Field(
        "all_pass", description="partial_cases: a fail earns partial_weight times its share of right answers"
    )
    partial_weight: float = Field(0.3, ge=0, description="only read by the objective partial_cases")
    canary_share: float = Field(0.02, ge=0, le=0.5, description="known answers judged beside the candidates")
    audit_share: float = Field(0.02, ge=0, le=0.5, description="passes that are judged again, harder")
    unknown_alarm_rate: float = Field(0.2, gt=0, le=1, description="unknown verdicts of one version above this: alarm")
    exploit_alarm_rate: float = Field(0.1, gt=0, le=1, description="passes of one version with exploit findings")
    alarm_count: int = Field(40, ge=1, description="verdicts of a version before one of its rates counts")

    @model_validator(mode="after")
    def _priority(self) -> Verifier:
        partial = self.partial_weight if self.objective == "partial_cases" else 0.0
        total = partial + self.format_weight + self.length_weight
        if total >= 1:
            named = "partial_weight + " if self.objective == "partial_cases" else ""
            raise ValueError(
                f"{named}format_weight + length_weight = {total:g} must be < 1: "
                f"else a wrong answer could earn as much as a right one "
                f"(lowest pass 1 - length_weight, highest fail {named}format_weight)"
            )
        return self


class Closure(Section):
    """When a group is resolved and what its coefficients are."""

    rule: Literal["complete", "shrink"] = "complete"
    shrink_fraction: float = Field(0.75, gt=0, le=1)
    advantage: Literal["std", "centered", "leave_one_out"] = "std"
    epsilon: float = Field(1e-6, ge=0)
    deadline_s: float = Field(900.0, gt=0, description="a group older than this closes as unresolved")


class Admission(Section):
    """The staleness bound. 0: synchronous, on-policy."""

    max_lag: int = Field(2, ge=0)


class Trainer(Section):
    """Objective and optimizer."""

    learning_rate: float = Field(5e-4, gt=0)
    warmup_updates: int = Field(5, ge=0)
    decay_updates: int = Field(18, ge=0, description="the learning rate falls to a tenth over the last so many updates")
    optimizer_steps: int = Field(2, ge=1, description="steps per update; the batch is split, one pass")
    clip_low: float = Field(0.2, ge=0, le=1)
    clip_high: float = Field(0.28, ge=0)
    reduction: Literal["sequence_mean", "token_mean", "constant"] = "constant"
    constant_length: int = Field(64, ge=1)
    kl_estimator: Literal["none", "k1", "k2", "k3"] = "none"
    kl_weight: float = Field(0.0, ge=0)
    entropy_weight: float = Field(0.0, ge=0)
    correction_cap: float = Field(2.0, gt=0)
    max_grad_norm: float = Field(1.0, gt=0)
    imitation_trials: int = Field(48, ge=0, description="passed trials repeated after each update; 0: pure GRPO")
    imitation_weight: float = Field(1.0, ge=0)
    threads: int = Field(1, ge=1, le=1024)
    device: str = Field("cpu", description="as sampler.device")
    keep_checkpoints: int = Field(3, ge=1)
    kind: Literal["torch", "synthetic"] = "torch"
    synthetic_update_s: float = Field(1.0, ge=0)

    @model_validator(mode="after")
    def _kl(self) -> Trainer:
        if self.kl_weight > 0 and self.kl_estimator == "none":
            raise ValueError(f"kl_weight = {self.kl_weight:g} without a kl_estimator has no effect: k1, k2 or k3")
        return self


class Gate(Section):
    """What a version must show before it may collect data."""

    min_entropy: float = Field(0.02, ge=0, description="nats per token, mean over the probe rollouts")
    min_valid_actions: float = Field(0.5, ge=0, le=1)
    probe_prompts: int = Field(16, ge=1)
    max_memory_mb: int = Field(4096, ge=64)
    threads: int = Field(1, ge=1, le=1024)


class Evaluation(Section):
    """Measured before the first and after the last update, on fixed tasks."""

    train_tasks: int = Field(120, ge=0)
    heldout_bugs: int = Field(130, ge=0)
    heldout_families: int = Field(30, ge=0)
    samples: int = Field(2, ge=1, le=10_000)
    every: int = Field(0, ge=0, description="also after every so many updates; 0: never")


class Recorder(Section):
    """How topics are cut into objects. Offsets are committed once their object is there."""

    segment_bytes: int = Field(4 * 1024 * 1024, ge=1024, le=32 * 1024 * 1024, description="of records, uncompressed")
    segment_s: float = Field(60.0, gt=0, description="a segment is closed when its first record waits for this long")
    buffer_bytes: int = Field(
        64 * 1024 * 1024, ge=1024 * 1024, description="of records in memory; full: nothing is read until the store took"
    )
    uploads: int = Field(2, ge=1, le=32, description="segments that are stored at the same time")

    @model_validator(mode="after")
    def _room(self) -> Recorder:
        if self.segment_bytes > self.buffer_bytes:
            raise ValueError(f"segment_bytes = {self.segment_bytes} never come together in buffer_bytes")
        return self


class Scale(Section):
    """How many instances of a service the laptop stack starts; they share the partitions."""

    sampler: int = Field(1, ge=1, le=256)
    sandbox: int = Field(1, ge=1, le=256)
    verifier: int = Field(1, ge=1, le=256)
    closure: int = Field(1, ge=1, le=256)
    admission: int = Field(1, ge=1, le=256)
    recorder: int = Field(1, ge=1, le=256)


class ColdStart(Section):
    """Supervised start on generated repair traces of the training families."""

    target_pass_rate: float = Field(0.30, gt=0, lt=1, description="stop when this is measured on training tasks")
    max_steps: int = Field(400, ge=0, description="0: start from model.base as it is")
    max_wall_s: float = Field(170.0, gt=0)
    learning_rate: float = Field(3e-3, gt=0)
    batch: int = Field(32, ge=1)
    threads: int = Field(2, ge=1, le=1024)


class Model(Section):
    """Shape of the policy that is made when no base checkpoint is given (a transformers causal LM)."""

    hidden: int = Field(128, ge=2, le=65_536)
    layers: int = Field(4, ge=1, le=1024)
    heads: int = Field(4, ge=1, le=1024)
    kv_heads: int = Field(1, ge=1, le=1024)
    feed_forward: int = Field(384, ge=1, le=2**20)
    vocabulary: int = Field(512, ge=261, le=2**20, description="256 bytes and 5 control tokens at least")
    context: int = Field(512, ge=64, le=2**20)
    base: str = Field("", description="folder of a checkpoint of ours (model and harness) to start from instead")

    @model_validator(mode="after")
    def _shape(self) -> Model:
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(f"hidden = {self.hidden} must be an even multiple of heads = {self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads = {self.heads} must be a multiple of kv_heads = {self.kv_heads}")
        return self


class RunSettings(Section):
    """Everything a run is configured by: see `load` for where values come from."""

    run_id: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
    run_dir: str = "runs/run"
    seed: int = Field(0, ge=0, lt=2**63)
    kafka: Kafka = Kafka()
    runtime: Runtime = Runtime()
    store: Store = Store()
    hidden_store: Store = Field(Store(), description="of the hidden checks alone; url empty: the store above")
    tasks: Tasks = Tasks()
    sampling: Sampling = Sampling()
    model: Model = Model()
    coldstart: ColdStart = ColdStart()
    dispatch: Dispatch = Dispatch()
    sampler: Sampler = Sampler()
    isolation: Isolation = Isolation()
    sandbox: Sandbox = Sandbox()
    verifier: Verifier = Verifier()
    closure: Closure = Closure()
    admission: Admission = Admission()
    trainer: Trainer = Trainer()
    gate: Gate = Gate()
    evaluation: Evaluation = Evaluation()
    recorder: Recorder = Recorder()
    scale: Scale = Scale()
    # Filled in by whoever prepares a run: content digests of what lies in the object store.
    taskset_digest: str = ""
    base_manifest: str = Field("", description="object-store key of the version-0 checkpoint manifest")

    @model_validator(mode="after")
    def _group(self) -> RunSettings:
        if self.dispatch.group_size < 2 and self.dispatch.updates > 0:
            raise ValueError(
                f"dispatch.group_size = {self.dispatch.group_size}: the coefficient {self.closure.advantage!r} "
                f"compares the members of a group, so nothing could be learnt; 2 at least (8 is usual)"
            )
        if self.trainer.optimizer_steps > self.dispatch.batch_groups * self.dispatch.group_size:
            raise ValueError(
                f"trainer.optimizer_steps = {self.trainer.optimizer_steps} is more than the trials of a batch "
                f"(dispatch.batch_groups x dispatch.group_size): a step would have nothing to learn from"
            )
        return self


SECRETS = frozenset({"secret_key", "password"})
"""Settings that no print shows; a run's file holds them empty, its processes get them through the environment."""


def load(path: Path | None = None, **overrides: Any) -> RunSettings:
    """Settings of `overrides` (whole sections or top-level keys) before the environment before a TOML file.

    Environment is `ROLLSTREAM_SECTION__KEY`; `file:folder` as a store's URL in a file is the folder beside that file.
    Raises UserError that names every wrong value with its place.
    """
    return decide(path, overrides, "the given settings")


def decide(
    path: Path | None,
    overrides: Mapping[str, Any],
    said_by: str,
    file: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> RunSettings:
    """As `load`; `said_by` names who gave the overrides, `file` are values that count as a file's."""
    layers = _layers(path, file, overrides, said_by, environment)
    found = places.merged(layers)
    try:
        return RunSettings(**places.nested(found))
    except ValidationError as e:
        raise _refused(e, found, path) from e


def overruled(path: Path | None, **overrides: Any) -> list[str]:
    """One line for every setting that two places give differently, saying which counts; for the start of a run."""
    layers = _layers(path, None, overrides, "the command line")
    unsaid = SECRETS | {"run_dir"}  # the folder is told by --run-dir alone
    return places.overruled([{name: one for name, one in layer.items() if name[-1] not in unsaid} for layer in layers])


def _layers(
    path: Path | None,
    file: Mapping[str, Any] | None,
    overrides: Mapping[str, Any],
    said_by: str,
    environment: Mapping[str, str] = os.environ,
) -> list[Layer]:
    from_file = {**(_placed(read_toml(path), path.parent) if path else {}), **(file or {})}
    return [
        places.flat(from_file, SECTIONS, str(path or "the file")),
        places.from_environment(environment, SECTIONS),
        places.flat(overrides, SECTIONS, said_by),
    ]


def _refused(e: ValidationError, found: Layer, path: Path | None) -> UserError:
    lines, where = [], []
    for error in e.errors():
        name = tuple(str(part) for part in error["loc"])
        given = found.get(name[:2]) or found.get(name[:1])
        shown = ""
        if given is not None:
            where.append(given.place)
            shown = "" if name[-1] in SECRETS else f" (it is {given.value!r})"
        else:  # a rule between several settings
            where += [one.place for key, one in found.items() if not name or key[0] == name[0]]
        lines.append(f"{'.'.join(name) or 'settings'}: {error['msg'].removeprefix('Value error, ')}{shown}")
    listed = ", ".join(dict.fromkeys(where)) or str(path or "the given settings and ROLLSTREAM_… environment")
    return UserError("; ".join(lines), listed, "mend these settings; nothing was started")


SECTIONS: places.Sections = {
    name: frozenset(field.annotation.model_fields)
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    else None
    for name, field in RunSettings.model_fields.items()
}


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a run's own processes: what was decided at its start stands in its file, and nothing that is
    inherited decides again."""
    return {name: value for name, value in environment.items() if not places.is_setting(name)}


def _placed(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The values of a file in `folder`, with the stores that it names beside itself at their absolute place."""
    for name in ("store", "hidden_store"):
        section = values.get(name)
        url = section.get("url") if isinstance(section, dict) else None
        if isinstance(url, str) and url.startswith("file:") and not url.startswith("file:/"):
            values[name] = {**values[name], "url": f"file://{(folder / url.removeprefix('file:')).resolve()}"}
    return values


HIDDEN_READERS = frozenset({"verifier"})
"""The services that are given the login of `[hidden_store]`."""


def secret_environment(settings: RunSettings, service: str | None = None) -> dict[str, str]:
    """The secrets as environment variables for a run's own processes: its file does not hold them.

    For a named service those of the hidden store come only where it has business there. They are added to an
    environment `without_settings`.
    """
    secrets = {
        f"ROLLSTREAM_{name}__{key}".upper(): str(inner)
        for name, section in settings
        if isinstance(section, Section)
        for key, inner in section
        if key in SECRETS and inner
    }
    if service is not None and service not in HIDDEN_READERS:
        secrets["ROLLSTREAM_HIDDEN_STORE__SECRET_KEY"] = ""
    return secrets


def dump_toml(settings: RunSettings) -> str:
    """The settings as TOML text with secrets masked, as written into a run's folder."""
    lines: list[str] = []
    tables: list[str] = []
    for name, value in settings:
        if isinstance(value, Section):
            tables.append(f"\n[{name}]")
            for key, inner in value:
                shown = "" if key in SECRETS else inner
                tables.append(f"{key} = {literal(shown)}")
        else:
            lines.append(f"{name} = {literal(value)}")
    return "\n".join([*lines, *tables]) + "\n"
