"""Protects the probe on real checkpoints: a policy that acts is promoted, a broken, silent or foreign one is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from schemas.policy import PolicyPublished
from services.agent import model as models
from services.agent.engine import SamplingParams
from services.agent.harness import Harness
from services.gate.core import UnusableCheckpoint
from services.gate.findings import Finding, Limits
from services.gate.probe import Prober, ProbeSettings, choose_prompts
from services.runtime.checkpoints import CheckpointMeta, load_manifest, publish_checkpoint
from services.runtime.settings import Store
from services.runtime.store import ObjectStore, open_store
from tests.services.closure.records import RUN
from tests.services.dispatch.world import fixture

TOOLS = ("edit", "test", "submit")
TASKS = [
    replace(fixture(f"t{n}", "f"), tools=TOOLS, base_tree={"a.py": f"def f(x):\n    return x + {n}\n"})
    for n in range(4)
]
SHAPE = models.ModelShape(hidden=32, layers=1, heads=2, kv_heads=1, feed_forward=64, vocabulary=300, context=256)


@pytest.fixture(scope="module")
def harness() -> Harness:
    return Harness.train(TASKS, 300)


@pytest.fixture(scope="module")
def acting(harness: Harness) -> torch.nn.Module:
    """A tiny policy taught to answer `submit` or `test`, so that it acts and still has entropy."""
    torch.set_num_threads(1)
    model = models.build(SHAPE, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    prompts = [harness.prompt_ids(task) for task in TASKS]
    rows = [[*prompt.tolist(), *harness.action_ids(text).tolist()] for prompt in prompts for text in ("submit", "test")]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    labels = ids.clone()
    for row, given in enumerate(prompt for prompt in prompts for _ in range(2)):
        labels[row, : len(given)] = labels[row, len(rows[row]) :] = -100
    for _ in range(60):
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    return model.eval()


Publish = Callable[..., PolicyPublished]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(Store(url=f"file://{tmp_path / 'store'}"))


@pytest.fixture
def publish(store: ObjectStore, tmp_path: Path, harness: Harness) -> Publish:
    def make(version: int, model: torch.nn.Module, own: Harness | None = None, **files: bytes) -> PolicyPublished:
        folder = tmp_path / f"v{version}"
        models.save(folder, model, own or harness)
        for name, data in files.items():
            (folder / name.replace("_", ".", 1)).write_bytes(data)
        key, digest = publish_checkpoint(store, folder, CheckpointMeta(RUN, version))
        return PolicyPublished(RUN, version, key, digest, None, None, 0)

    return make


def prober(store: ObjectStore, base: str = "") -> Prober:
    limits = Limits(min_entropy=0.02, min_valid_actions=0.5, max_memory_mb=8192)
    return Prober(store, ProbeSettings(base, 4, 0, SamplingParams(), limits), TASKS)


def failed(findings: list[Finding]) -> list[str]:
    return [finding.check for finding in findings if not finding.ok]


def value(findings: list[Finding], check: str) -> object:
    return next(finding.value for finding in findings if finding.check == check)


def test_a_policy_that_acts_passes_and_the_same_weights_give_the_same_findings(
    store: ObjectStore, publish: Publish, acting: torch.nn.Module
) -> None:
    probe = prober(store)
    first = probe(publish(0, acting))
    assert failed(first) == []
    assert value(first, "valid_actions") == 1.0
    assert 0.02 < float(str(value(first, "entropy"))) < 1.0
    assert value(first, "probes") == 4
    again = probe(publish(1, acting))
    timeless = [f for f in first if f.check not in ("seconds", "memory_mb")]
    assert [f for f in again if f.check not in ("seconds", "memory_mb")] == timeless


def test_the_weights_judged_are_those_of_the_candidate(
    store: ObjectStore, publish: Publish, acting: torch.nn.Module
) -> None:
    """The model object is kept between versions: a probe of old weights would promote anything."""
    probe = prober(store)
    assert failed(probe(publish(0, acting))) == []
    assert failed(probe(publish(1, models.build(SHAPE, seed=5)))) == ["valid_actions"]
    assert failed(probe(publish(2, acting))) == []


def test_a_policy_without_entropy_is_held(store: ObjectStore, publish: Publish, acting: torch.nn.Module) -> None:
    sure = models.build(SHAPE, seed=0)
    state = {name: tensor.clone() for name, tensor in acting.state_dict().items()}
    state["model.norm.weight"] = state["model.norm.weight"] * 5000  # sharpens every distribution to one token
    sure.load_state_dict(state)
    findings = prober(store)(publish(0, sure))
    assert "entropy" in failed(findings)


def test_weights_that_are_no_numbers_are_held(store: ObjectStore, publish: Publish, acting: torch.nn.Module) -> None:
    broken = models.build(SHAPE, seed=0)
    with torch.no_grad():
        broken.get_parameter("model.norm.weight")[3] = float("nan")
    probe = prober(store)
    probe(publish(0, acting))
    assert "finite_weights" in failed(probe(publish(1, broken)))


def test_another_tokenizer_than_that_of_version_0_is_held(
    store: ObjectStore, publish: Publish, acting: torch.nn.Module
) -> None:
    base = publish(0, acting)
    other = Harness.train(TASKS, 290)
    findings = prober(store, base.manifest_uri)(publish(1, acting, other))
    assert "tokenizer" in failed(findings)


def test_a_checkpoint_that_cannot_be_loaded_is_unusable_and_not_tried_again(
    store: ObjectStore, publish: Publish, acting: torch.nn.Module
) -> None:
    probe = prober(store)
    good = publish(0, acting)
    probe(good)
    with pytest.raises(UnusableCheckpoint, match="announced"):
        probe(replace(good, manifest_digest="sha256:0"))
    with pytest.raises(UnusableCheckpoint, match="no object"):
        probe(replace(good, manifest_uri="runs/run/checkpoints/00000099.json"))
    misfit = publish(1, models.build(replace(SHAPE, feed_forward=32), seed=0))
    config = load_manifest(store, good.manifest_uri).files["config.json"]
    files = {**load_manifest(store, misfit.manifest_uri).files, "config.json": config}
    key, digest = publish_checkpoint(store, files, CheckpointMeta(RUN, 2))
    with pytest.raises(UnusableCheckpoint, match="do not fit"):
        probe(replace(good, policy_version=2, manifest_uri=key, manifest_digest=digest))
    assert failed(probe(publish(3, acting))) == [], "the next version is judged on its own"


def test_the_probe_asks_the_same_tasks_every_time() -> None:
    assert choose_prompts(TASKS, 3, 1) == choose_prompts(TASKS, 3, 1)
    assert len(choose_prompts(TASKS, 99, 1)) == len(TASKS)
