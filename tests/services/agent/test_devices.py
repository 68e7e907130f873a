"""A device that torch cannot use is said at the start, with the setting to change, by whoever computes there."""

from types import SimpleNamespace

import pytest

from services.agent.model import unusable
from services.runtime.errors import UserError
from services.runtime.settings import load
from services.sampler.main import torch_engine
from services.trainer.checkpoint import TorchWeights

NOWHERE = "cuda:99"


def test_the_cpu_is_usable_and_what_is_not_there_is_not():
    assert unusable("cpu") == ""
    assert unusable(NOWHERE)
    assert "nonsense" in unusable("nonsense")


@pytest.mark.parametrize("make", [lambda s: torch_engine(SimpleNamespace(settings=s)), lambda s: TorchWeights(s, None)])
def test_who_computes_there_says_so(make):
    settings = load(sampler={"device": NOWHERE}, trainer={"device": NOWHERE})
    with pytest.raises(UserError, match=f"cannot use the device '{NOWHERE}'") as said:
        make(settings)
    assert any(setting in str(said.value) for setting in ("sampler.device", "trainer.device"))
    assert "use cpu" in str(said.value)


def test_the_engine_gets_its_device():
    assert torch_engine(SimpleNamespace(settings=load(sampler={"device": "meta"})))._device == "meta"
