"""Protects: log-probabilities are those of the distribution sampled from, seeds decide tokens, versions never mix."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from services.agent import model as models
from services.agent.engine import Engine, EngineError, EngineRequest, EngineSample, SamplingParams
from services.agent.engines.lean_decoder import LeanDecoder
from services.agent.engines.sampling import draw, processed
from services.agent.engines.synthetic import SyntheticEngine
from services.agent.engines.torch_engine import TorchEngine
from services.agent.harness import Harness
from services.agent.model import ModelShape, build
from services.agent.tokenizer import ACT, END

SMALL = ModelShape(hidden=32, layers=2, heads=4, kv_heads=1, feed_forward=48, vocabulary=300, context=128)


def small_model(seed: int = 0, kv_heads: int = 1) -> torch.nn.Module:
    return build(ModelShape(32, 2, 4, kv_heads, 48, 300, 128), seed)


def request(number: int, prefix: list[int], tokens: int = 12, **sampling: float) -> EngineRequest:
    params = SamplingParams(**sampling)  # type: ignore[arg-type] # top_k is whole wherever it is given here
    return EngineRequest(f"t.{number}", np.asarray(prefix, np.int32), tokens, number, params, frozenset({END}))


def serve(
    engine: Engine,
    requests: list[EngineRequest],
    follow: Callable[[EngineSample], EngineRequest | None] = lambda _: None,
) -> tuple[dict[str, EngineSample], dict[str, EngineError]]:
    """Run until every request (and every follow-up) has ended."""
    stop, samples, errors = threading.Event(), {}, {}
    left = [len(requests)]

    def on_sample(sample: EngineSample) -> None:
        samples[sample.request_id] = sample
        more = follow(sample)
        if more is not None:
            engine.submit(more)
        else:
            done()

    def on_error(request_id: str, error: EngineError) -> None:
        errors[request_id] = error
        done()

    def done() -> None:
        left[0] -= 1
        if left[0] == 0:
            stop.set()

    for each in requests:
        engine.submit(each)
    engine.run(on_sample, on_error, stop)
    return samples, errors


def prompts(count: int, length: int = 20) -> list[list[int]]:
    rng = np.random.default_rng(1)
    return [[*rng.integers(5, 300, length + i).tolist(), ACT] for i in range(count)]


@torch.no_grad()
def reference_logprobs(model: torch.nn.Module, prefix: list[int], ids: np.ndarray) -> np.ndarray:
    whole = torch.tensor([[*prefix, *ids.tolist()]])
    found = model(whole).logits[0, len(prefix) - 1 : -1].log_softmax(-1)
    return found.gather(-1, whole[0, len(prefix) :, None]).squeeze(-1).numpy()


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("lean", [True, False])
def test_logprobs_equal_the_models_own_forward(lean: bool, kv_heads: int) -> None:
    model = small_model(kv_heads=kv_heads)
    engine = TorchEngine(batch=8, lean=lean)
    engine.use(3, model)
    own = prompts(3)
    asked = [request(i, own[i % 3]) for i in range(12)]
    samples, errors = serve(engine, asked)
    assert not errors
    for each in asked:
        sample = samples[each.request_id]
        assert sample.policy_version == 3
        expected = reference_logprobs(model, each.prefix.tolist(), sample.ids)
        assert np.abs(sample.logprobs - expected).max() < 1e-4
        assert (sample.support_sizes == 300).all()
        assert sample.stop == ("stop_token" if sample.ids[-1] == END else "length")
        assert END not in sample.ids[:-1].tolist()


def test_a_later_turn_continues_what_the_earlier_one_computed() -> None:
    model = small_model()
    engine = TorchEngine(batch=8)
    engine.use(1, model)
    prefixes = {f"t.{i}": p for i, p in enumerate(prompts(2) * 2)}

    def follow(sample: EngineSample) -> EngineRequest | None:
        number = int(sample.request_id[2:])
        if number >= 100:
            return None
        prefixes[f"t.{number + 100}"] = [*prefixes[sample.request_id], *sample.ids.tolist(), 4, 77, 78, ACT]
        return request(number + 100, prefixes[f"t.{number + 100}"])

    samples, errors = serve(engine, [request(i, prefixes[f"t.{i}"]) for i in range(4)], follow)
    assert not errors
    assert len(samples) == 8
    for request_id, sample in samples.items():
        expected = reference_logprobs(model, prefixes[request_id], sample.ids)
        assert np.abs(sample.logprobs - expected).max() < 1e-4


def test_the_seed_decides_the_tokens_whatever_else_is_in_the_batch() -> None:
    model, own = small_model(), prompts(4)
    alone = {}
    for i in range(8):
        engine = TorchEngine()
        engine.use(1, model)
        alone.update(serve(engine, [request(i, own[i % 4])])[0])
    engine = TorchEngine(batch=5)
    engine.use(1, model)
    together, _ = serve(engine, [request(i, own[i % 4]) for i in range(8)])
    assert {k: s.ids.tolist() for k, s in alone.items()} == {k: s.ids.tolist() for k, s in together.items()}
    generic = TorchEngine(batch=5, lean=False)
    generic.use(1, model)
    other, _ = serve(generic, [request(i, own[i % 4]) for i in range(8)])
    assert {k: s.ids.tolist() for k, s in other.items()} == {k: s.ids.tolist() for k, s in together.items()}


def test_cut_distributions_are_renormalised_and_counted() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    cold = processed(logits, [SamplingParams(temperature=0.5)])
    assert torch.allclose(cold, (logits / 0.5).log_softmax(-1))
    two = processed(logits, [SamplingParams(top_k=2)])
    assert torch.allclose(two[0, :2], logits[0, :2].log_softmax(-1))
    assert torch.isinf(two[0, 2:]).all()
    # Probabilities .644 .237 .087 .032: two tokens are the smallest set that reaches .8.
    nucleus = processed(logits, [SamplingParams(top_p=0.8)])
    assert draw(nucleus, torch.tensor([0.999999])).support.tolist() == [2]
    mixed = processed(logits.repeat(2, 1), [SamplingParams(), SamplingParams(top_k=1)])
    assert torch.isinf(mixed[1]).sum() == 3


def test_inverse_cdf_sampling_follows_the_probabilities() -> None:
    wanted = torch.tensor([0.1, 0.0, 0.6, 0.3])
    numbers = torch.linspace(0, 1 - 1e-6, 1000)
    drawn = draw(wanted.log().expand(1000, -1), numbers)
    counts = torch.bincount(drawn.ids, minlength=4) / 1000
    assert torch.allclose(counts, wanted, atol=2e-3)
    assert torch.allclose(drawn.logprobs.exp(), wanted[drawn.ids])
    assert drawn.support.tolist() == [3] * 1000


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (request(0, [5, 300]), "outside of 0..299"),
        (request(0, [5, -1]), "outside of 0..299"),
        (request(0, []), "no row of ids"),
        (request(0, [5] * 120), "do not fit a context of 128"),
        (request(0, [5], temperature=0.0), "no distribution"),
    ],
)
def test_bad_calls_end_in_an_error_and_harm_no_other(bad: EngineRequest, message: str) -> None:
    engine = TorchEngine()
    engine.use(1, small_model())
    samples, errors = serve(engine, [bad, request(1, [7, 8, ACT])])
    assert message in str(errors["t.0"])
    assert list(samples) == ["t.1"]


def test_weights_swap_between_calls_and_each_sample_names_its_version() -> None:
    old, new = small_model(0), small_model(1)
    engine = TorchEngine(batch=4)
    engine.use(1, old)
    own = prompts(2)

    def follow(sample: EngineSample) -> EngineRequest | None:
        if sample.request_id == "t.0":
            engine.use(2, new)
            return request(50, own[0])
        return None

    samples, _ = serve(engine, [request(i, own[i % 2], tokens=4 + 4 * i) for i in range(6)], follow)
    assert {s.policy_version for s in samples.values()} == {1, 2}
    assert engine.version == 2
    for request_id, sample in samples.items():
        number = int(request_id[2:])
        prefix = own[0] if number == 50 else own[number % 2]
        expected = reference_logprobs(old if sample.policy_version == 1 else new, prefix, sample.ids)
        assert np.abs(sample.logprobs - expected).max() < 1e-4


def test_calls_left_at_the_end_are_named(tmp_path: Path) -> None:
    engine = TorchEngine()
    stop, errors = threading.Event(), []
    stop.set()
    engine.submit(request(0, [5, ACT]))
    engine.run(lambda _: None, lambda name, error: errors.append((name, str(error))), stop)
    assert errors == [("t.0", "the engine was stopped")]
    with pytest.raises(EngineError, match="no checkpoint folder"):
        engine.load(1, tmp_path)


def test_a_policy_folder_round_trips_and_another_architecture_drops_in(harness: Harness, tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = small_model()
    models.save(tmp_path / "torn", model, harness)
    (tmp_path / "torn" / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(EngineError, match="version 1 cannot be loaded"):
        TorchEngine().load(1, tmp_path / "torn")
    models.save(tmp_path / "llama", model, harness)
    engine = TorchEngine()
    engine.load(1, tmp_path / "llama")
    first, _ = serve(engine, [request(0, prompts(1)[0])])
    engine = TorchEngine()
    engine.use(1, model)
    second, _ = serve(engine, [request(0, prompts(1)[0])])
    assert first["t.0"].ids.tolist() == second["t.0"].ids.tolist()

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=300, n_positions=128, n_embd=32, n_layer=2, n_head=2)
    other = GPT2LMHeadModel(config).eval()
    models.save(tmp_path / "gpt2", other, harness)
    engine.load(2, tmp_path / "gpt2")
    own = prompts(3)
    samples, errors = serve(engine, [request(i, own[i % 3]) for i in range(6)])
    assert not errors
    for i in range(6):
        expected = reference_logprobs(other, own[i % 3], samples[f"t.{i}"].ids)
        assert np.abs(samples[f"t.{i}"].logprobs - expected).max() < 1e-4


def test_the_synthetic_engine_serves_many_heavy_tailed_trials_at_once(harness: Harness, tmp_path: Path) -> None:
    prompt = harness.action_ids("anything")
    answer = harness.action_ids("edit 2: out = 0")
    engine = SyntheticEngine(harness, 0.02, 0.6, pass_rate=0.5, calls=2, answers={prompt.tobytes(): answer})
    engine.load(4, tmp_path)

    def call(trial: int, turn: int) -> EngineRequest:
        return EngineRequest(f"g/{trial}.0.{turn}", prompt, 32, 0, SamplingParams(), harness.stop_ids)

    def follow(sample: EngineSample) -> EngineRequest | None:
        trial, turn = sample.request_id[2:].split(".0.")
        return call(int(trial), 1) if turn == "0" else None

    samples, errors = serve(engine, [call(i, 0) for i in range(300)], follow)
    assert not errors
    assert len(samples) == 600
    firsts = [s for name, s in samples.items() if name.endswith(".0.0")]
    right = sum(np.array_equal(s.ids, answer) for s in firsts)
    assert 110 < right < 190
    seconds = sorted(engine.duration_s(f"g/{i}.0") for i in range(300))
    assert seconds[0] < 0.03 < 0.5 < seconds[-1] <= 0.6
    assert all(harness.tokenizer.decode(s.ids) == "submit" for n, s in samples.items() if n.endswith(".0.1"))


def test_a_failed_decoding_names_every_call_under_way_and_the_engine_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    engine = TorchEngine()
    engine.use(1, model)
    real, calls = LeanDecoder.step, []

    def failing(self: LeanDecoder, ids: torch.Tensor) -> torch.Tensor:
        calls.append(len(ids))
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        return real(self, ids)

    monkeypatch.setattr(LeanDecoder, "step", failing)
    _, errors = serve(engine, [request(i, prompts(1)[0]) for i in range(3)])
    assert set(errors) == {"t.0", "t.1", "t.2"}
    assert "decoding failed: out of memory" in str(errors["t.0"])
    samples, errors = serve(engine, [request(9, prompts(1)[0])])
    assert list(samples) == ["t.9"]
