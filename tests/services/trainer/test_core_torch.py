"""Real weights: a trainer that was killed anywhere makes, byte for byte, the weights of one that was not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from services.agent import model as policy
from services.runtime import scratch
from services.trainer.checkpoint import TorchWeights
from tests.services.sampler.world import harness
from tests.services.trainer.core_world import World


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    shape = policy.ModelShape(32, 2, 2, 1, 64, harness().tokenizer.size, 160)
    policy.save(folder, policy.build(shape, seed=1), harness())
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TorchWorld(World):
    """The world of the core's tests around the real updater."""

    weights_file = "model.safetensors"

    def __init__(self, path, base, **how) -> None:
        self.base = base
        super().__init__(path, **how)
        self.make_weights = lambda store: TorchWeights(self.settings, store)
        for number in range(6):
            self.group(number)


def test_byte_identical_weights_after_a_kill(tmp_path, base):
    calm = TorchWorld(tmp_path / "calm", base)
    calm.run()
    expected, events = calm.versions(), calm.events
    assert len({weights for _, _, weights in expected}) == 4, "every update changes the weights"
    update = calm.of_updates()[0]
    assert update.ratio_p50 == pytest.approx(1, abs=0.2)
    assert update.gradient_norm > 0
    # The last third of the events covers two whole updates: plan, files, manifest, records.
    for kill_at in range(events - 90, events, 8):
        world = TorchWorld(tmp_path / str(kill_at), base)
        world.kill_at = kill_at
        world.run()
        assert world.versions() == expected, f"killed at event {kill_at} of {events}"


def test_its_last_checkpoint_goes_with_the_process(tmp_path, base, monkeypatch):
    """It is kept for the upload, so that no block's end removes it; `up` does, before it leaves without ado."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    TorchWorld(tmp_path / "world", base).run()
    assert [name.split("-")[3] for name in os.listdir(tmp_path) if name != "world"] == ["checkpoint"]
    scratch.close_all()
    assert os.listdir(tmp_path) == ["world"]


def test_importing_the_policy_leaves_no_folder_of_torchs_compiler(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    command = [sys.executable, "-c", "from services.agent import model"]
    root = Path(__file__).parents[3]
    subprocess.run(command, cwd=root, env={**environment, "TMPDIR": str(tmp_path)}, check=True, timeout=100)
    assert os.listdir(tmp_path) == []
