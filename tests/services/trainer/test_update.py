"""Protects: engine and trainer agree token for token, only sampled ids are scored, and updates repeat to the byte."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from services.agent.context import TrialContext
from services.agent.engine import EngineRequest, EngineSample, SamplingParams
from services.agent.engines.torch_engine import TorchEngine
from services.agent.harness import Harness
from services.agent.model import ModelShape, build
from services.agent.tokenizer import CONTROL_TOKENS, END
from services.runtime.settings import Trainer
from services.trainer.imitation import PassedTrials
from services.trainer.packing import ScoredCall, TrainGroup, TrainMember, pack, pieces_of
from services.trainer.scoring import Scorer
from services.trainer.update import Updater
from tests.services.agent.conftest import SmallTask

SETTINGS = Trainer(warmup_updates=0, optimizer_steps=2)


def imitating(trials: int) -> Trainer:
    return SETTINGS.model_copy(update={"imitation_trials": trials, "imitation_weight": 1.0})


@pytest.fixture(scope="module")
def harness() -> Harness:
    return Harness.train([SmallTask()], 300)


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return build(ModelShape(32, 2, 4, 1, 48, 300, 512), 0)


def small_copy(model: torch.nn.Module) -> torch.nn.Module:
    return copy.deepcopy(model)


@pytest.fixture(scope="module")
def groups(harness: Harness, model: torch.nn.Module) -> list[TrainGroup]:
    """Four groups of four two-turn trials, really sampled, with made-up rewards."""
    found = []
    for number in range(4):
        task = SmallTask(first_failure=f"FAIL [{number}] want 0 got 1" + "," * number)
        contexts = [TrialContext(harness, task) for _ in range(4)]
        calls: list[list[ScoredCall]] = [[] for _ in contexts]
        for turn in range(2):
            for member, sample in enumerate(sampled(model, harness, contexts, number * 8 + turn)):
                calls[member].append(ScoredCall(contexts[member].prefix, sample.ids, sample.logprobs))
                contexts[member].after_invocation(sample.ids)
                contexts[member].observe("FAIL [1] want 1 got 2")
        rewards = [1.0, 0.0, 0.0, 1.0]
        members = tuple(
            TrainMember(f"{number}/{i}", tuple(calls[i]), 2 * reward - 1, reward) for i, reward in enumerate(rewards)
        )
        found.append(TrainGroup(f"run/{number:08d}", members))
    return found


def sampled(model: torch.nn.Module, harness: Harness, contexts: list[TrialContext], seed: int) -> list[EngineSample]:
    engine, stop = TorchEngine(), threading.Event()
    engine.use(0, model)
    got: dict[str, EngineSample] = {}

    def on_sample(sample: EngineSample) -> None:
        got[sample.request_id] = sample
        if len(got) == len(contexts):
            stop.set()

    for i, context in enumerate(contexts):
        engine.submit(EngineRequest(f"{i}", context.prefix, 16, seed * 100 + i, SamplingParams(), harness.stop_ids))
    engine.run(on_sample, lambda name, error: pytest.fail(f"{name}: {error}"), stop)
    return [got[f"{i}"] for i in range(len(contexts))]


@pytest.mark.parametrize("lean", [True, False])
def test_ratio_of_engine_and_trainer_is_one_for_every_scored_token(
    model: torch.nn.Module, groups: list[TrainGroup], lean: bool
) -> None:
    packed = pack(groups)
    with torch.no_grad():
        logprobs, _ = Scorer(model, lean).score(packed)
    ratios = (logprobs[torch.from_numpy(packed.source)] - torch.from_numpy(packed.behaviour)).exp()
    assert len(ratios) == sum(len(c.sampled) for g in groups for m in g.members for c in m.calls)
    assert (ratios - 1).abs().max() < 1e-4


def test_only_sampled_ids_are_scored(groups: list[TrainGroup]) -> None:
    for group in groups:
        for member in group.members:
            (piece,) = pieces_of(member)
            assert np.array_equal(piece.ids[piece.scored], np.concatenate([c.sampled for c in member.calls]))
            outside = np.delete(piece.ids, piece.scored)
            assert np.array_equal(outside[: len(member.calls[0].prefix)], member.calls[0].prefix)
            # What the harness appended (a stop token that was not sampled among it) is context, never a target.
            appended = outside[len(member.calls[0].prefix) :]
            cut = member.calls[0].sampled[-1] != END
            assert (appended[0] == END) == cut
            assert (appended < len(CONTROL_TOKENS)).any()


def test_equal_trials_are_computed_once_and_counted_twice(groups: list[TrainGroup]) -> None:
    group = groups[0]
    doubled = replace(group, members=(*group.members, replace(group.members[0], trial_id="twin")))
    once, twice = pack([group]), pack([doubled])
    assert twice.computed_tokens == once.computed_tokens
    assert len(twice.source) == len(once.source) + sum(len(c.sampled) for c in group.members[0].calls)


def test_a_compacted_trial_becomes_two_sequences(groups: list[TrainGroup]) -> None:
    member = groups[0].members[0]
    short = ScoredCall(member.calls[0].prefix, member.calls[1].sampled, member.calls[1].logprobs)
    broken = replace(member, calls=(*member.calls, short))
    pieces = pieces_of(broken)
    assert [len(p.scored) for p in pieces] == [
        sum(len(c.sampled) for c in member.calls),
        len(short.sampled),
    ]
    assert len(pack([TrainGroup("g", (broken,))]).lengths) == 1


@pytest.mark.parametrize("reduction", ["sequence_mean", "token_mean", "constant"])
def test_accumulation_over_any_split_is_the_single_pass(
    model: torch.nn.Module, groups: list[TrainGroup], reduction: str
) -> None:
    gradients = []
    for limit in (1, 300, 1 << 20):
        own = small_copy(model)
        settings = SETTINGS.model_copy(
            update={"optimizer_steps": 1, "reduction": reduction, "max_grad_norm": 1e9, "imitation_trials": 0}
        )
        updater = Updater(own, settings, seed=0, microbatch_tokens=limit)
        updater.update(groups, version=1)
        gradients.append(torch.cat([p.grad.flatten() for p in own.parameters() if p.grad is not None]))
    for other in gradients[:2]:
        assert torch.nn.functional.cosine_similarity(other, gradients[2], dim=0).item() == pytest.approx(1, abs=1e-5)
        assert (other.norm() / gradients[2].norm()).item() == pytest.approx(1, abs=1e-5)


def test_lean_and_plain_scoring_give_the_same_gradient(model: torch.nn.Module, groups: list[TrainGroup]) -> None:
    found = []
    for lean in (True, False):
        own = small_copy(model)
        Updater(own, SETTINGS.model_copy(update={"optimizer_steps": 1, "imitation_trials": 0}), 0, lean=lean).update(
            groups, 1
        )
        found.append(torch.cat([p.grad.flatten() for p in own.parameters() if p.grad is not None]))
    assert torch.nn.functional.cosine_similarity(found[0], found[1], dim=0).item() == pytest.approx(1, abs=1e-5)


def test_first_ratios_are_one_and_the_stats_add_up(model: torch.nn.Module, groups: list[TrainGroup]) -> None:
    stats = Updater(small_copy(model), SETTINGS, 0).update(groups, 1)
    assert stats.mismatch_max < 1e-4
    assert (stats.sequences, stats.mean_reward, stats.optimizer_steps) == (16, 0.5, 2)
    assert stats.scored_tokens == sum(len(c.sampled) for g in groups for m in g.members for c in m.calls)
    assert stats.ratio_p01 <= 1 <= stats.ratio_p99
    one = Updater(small_copy(model), SETTINGS.model_copy(update={"optimizer_steps": 1}), 0).update(groups, 1)
    assert (one.ratio_p01, one.ratio_p50, one.ratio_p99) == (1, 1, 1)


def test_resumed_updates_give_the_same_bytes(model: torch.nn.Module, groups: list[TrainGroup], tmp_path: Path) -> None:
    straight = Updater(small_copy(model), imitating(3), seed=7)
    for version in (1, 2, 3):
        straight.update(groups, version)
    first = Updater(small_copy(model), imitating(3), seed=7)
    first.update(groups, 1)
    first.save_state(tmp_path / "state.pt")
    resumed = Updater(small_copy(first.model), imitating(3), seed=7)
    resumed.load_state(tmp_path / "state.pt")
    for version in (2, 3):
        resumed.update(groups, version)
    for a, b in zip(straight.model.parameters(), resumed.model.parameters(), strict=True):
        assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
    (tmp_path / "state.pt").write_bytes(b"torn")
    with pytest.raises(ValueError, match="no optimizer state"):
        resumed.load_state(tmp_path / "state.pt")


def test_updates_raise_the_probability_of_what_was_rewarded(model: torch.nn.Module, groups: list[TrainGroup]) -> None:
    own = small_copy(model)
    updater = Updater(own, SETTINGS.model_copy(update={"learning_rate": 1e-3}), 0)
    packed = pack(groups)

    def margin() -> float:
        with torch.no_grad():
            logprobs, _ = Scorer(own).score(packed)
        return float((logprobs[torch.from_numpy(packed.source)] * torch.from_numpy(packed.coefficients)).sum())

    before = margin()
    for version in range(3):
        updater.update(groups, version)
    assert margin() > before + 1


def test_what_cannot_be_scored_is_refused(model: torch.nn.Module) -> None:
    updater = Updater(small_copy(model), SETTINGS, 0)
    with pytest.raises(ValueError, match="no sampled token"):
        updater.update([TrainGroup("g", (TrainMember("t", (), 1.0, 1.0),))], 1)
    with pytest.raises(ValueError, match="frozen reference"):
        Updater(small_copy(model), SETTINGS.model_copy(update={"kl_estimator": "k3"}), 0)


def test_passed_trials_are_kept_one_a_prompt_and_survive_a_restart(groups: list[TrainGroup]) -> None:
    passed = PassedTrials()
    passed.add(groups)
    assert len(passed) == len(groups)
    drawn = passed.draw(3, np.random.default_rng(0))
    assert len(drawn) == 3
    for group in drawn:
        (member,) = group.members
        assert member.reward == 1
    again = PassedTrials()
    again.restore(passed.state())
    same = again.draw(3, np.random.default_rng(0))
    assert [g.group_id for g in same] == [g.group_id for g in drawn]
    assert np.array_equal(same[0].members[0].calls[0].prefix, drawn[0].members[0].calls[0].prefix)


def test_imitation_raises_the_likelihood_of_passed_trials(model: torch.nn.Module, groups: list[TrainGroup]) -> None:
    losses: list[float] = []
    updater = Updater(small_copy(model), imitating(4), 0)
    for version in range(4):
        updater.update(groups, version)
        assert updater.imitation_loss is not None
        losses.append(updater.imitation_loss)
    assert losses[-1] < losses[0]
    without = Updater(small_copy(model), imitating(0), 0)
    without.update(groups, 1)
    assert without.imitation_loss is None


def test_the_rate_warms_up_stays_and_decays(model: torch.nn.Module, groups: list[TrainGroup]) -> None:
    schedule = SETTINGS.model_copy(update={"learning_rate": 1e-5, "warmup_updates": 2, "decay_updates": 4})
    updater = Updater(small_copy(model), schedule, 0, total_updates=8)
    rates = [updater.update(groups[:1], version).learning_rate / 1e-5 for version in range(10)]
    assert rates == pytest.approx([0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0.1, 0.1])


def test_kl_to_a_frozen_reference_and_an_entropy_bonus(model: torch.nn.Module, groups: list[TrainGroup]) -> None:
    values = {"kl_estimator": "k3", "kl_weight": 0.1, "entropy_weight": 0.01, "reduction": "token_mean"}
    chosen = SETTINGS.model_copy(update=values)
    updater = Updater(small_copy(model), chosen, 0, reference=small_copy(model))
    first = updater.update(groups, 1)
    for version in range(2, 5):
        last = updater.update(groups, version)
    assert 0 <= first.kl_loss < last.kl_loss
    assert first.loss == pytest.approx(first.policy_loss + 0.1 * first.kl_loss - 0.01 * first.entropy, abs=2e-3)
