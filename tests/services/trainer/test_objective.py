"""Protects: the objective's worked numbers, and that splitting a batch into microbatches changes nothing."""

from __future__ import annotations

import math

import pytest
import torch

from services.trainer.objective import Choices, Scored, correction, divergence, surrogate, terms, token_weights


def scored(current: torch.Tensor, coefficients: list[float], weights: torch.Tensor) -> Scored:
    still = current.detach()
    return Scored(current, still, still, torch.tensor(coefficients), weights, torch.zeros_like(still))


@pytest.mark.parametrize(("advantage", "wanted"), [(1.732, 2.078), (-0.577, -0.750)])
def test_clipped_surrogate(advantage: float, wanted: float) -> None:
    ratio = torch.tensor([1.3], requires_grad=True)
    gain = surrogate(ratio, torch.tensor([advantage]), 0.2, 0.2)
    assert gain.item() == pytest.approx(wanted, abs=5e-4)
    (slope,) = torch.autograd.grad(gain.sum(), ratio)
    assert slope.item() == pytest.approx(0 if advantage > 0 else advantage)  # a gradient that pushes back remains


@pytest.mark.parametrize(("probability", "reached", "gain"), [(0.9, 1.08, None), (0.01, 0.012, 0.002)])
def test_where_the_incentive_flattens(probability: float, reached: float, gain: float | None) -> None:
    # ε = 0.2: the threshold is ratio 1.2, at 0.9 a probability of 1.08 (never), at 0.01 one of 0.012.
    assert probability * 1.2 == pytest.approx(reached)
    new = torch.tensor([min(reached, 1.0) - 1e-5], requires_grad=True)
    (slope,) = torch.autograd.grad(surrogate(new / probability, torch.ones(1), 0.2, 0.2).sum(), new)
    assert slope.item() > 0
    if gain is not None:
        assert reached - probability == pytest.approx(gain)
        beyond = torch.tensor([reached + 1e-5], requires_grad=True)
        (slope,) = torch.autograd.grad(surrogate(beyond / probability, torch.ones(1), 0.2, 0.2).sum(), beyond)
        assert slope.item() == 0


@pytest.mark.parametrize(
    ("reduction", "wanted"),
    [("sequence_mean", 0.0), ("token_mean", 1 / (2 * math.sqrt(3))), ("constant", 1 / (3 * math.sqrt(3)))],
)
def test_reductions_of_rewards_1000_with_2_4_4_6_tokens(reduction: str, wanted: float) -> None:
    lengths = torch.tensor([2, 4, 4, 6])
    per_sequence = [math.sqrt(3)] + [-1 / math.sqrt(3)] * 3
    coefficients = [a for a, n in zip(per_sequence, lengths.tolist(), strict=True) for _ in range(n)]
    weights = token_weights(lengths, reduction, 4, 16, 6)  # type: ignore[arg-type] # one of the three names
    found = terms(scored(torch.full((16,), -1.0), coefficients, weights), Choices())
    assert found.loss.item() == pytest.approx(wanted, abs=1e-6)


def test_sequence_mean_punishes_short_failures_more_per_token() -> None:
    weights = token_weights(torch.tensor([128, 4096]), "sequence_mean", 2, 4224, 1)
    assert (weights[0] / weights[-1]).item() == pytest.approx(32)


def test_global_token_mean_weighs_microbatches_equally() -> None:
    small = token_weights(torch.tensor([100]), "token_mean", 4, 3600, 1)[0].item()
    large = token_weights(torch.tensor([900]), "token_mean", 4, 3600, 1)[0].item()
    assert small == large == pytest.approx(1 / 3600)
    wrongly = [1 / (4 * 100), 1 / (4 * 900)]  # each microbatch its own mean, then averaged over four
    assert wrongly[0] / wrongly[1] == pytest.approx(9)


def test_kl_estimators() -> None:
    log_ratio = torch.tensor([-0.2, 0.1, -0.5])
    assert divergence(log_ratio, "k1").mean().item() == pytest.approx(0.200, abs=5e-4)
    assert divergence(log_ratio, "k2").mean().item() == pytest.approx(0.050, abs=5e-4)
    k3 = divergence(log_ratio, "k3")
    assert k3.tolist() == pytest.approx([0.0187, 0.0052, 0.1065], abs=5e-5)
    assert k3.mean().item() == pytest.approx(0.0435, abs=5e-5)


def test_importance_weights_and_their_cap() -> None:
    behaviour, target = torch.tensor([0.2, 0.8]), torch.tensor([0.6, 0.4])
    weights = correction(target.log(), behaviour.log(), 10.0)
    assert weights.tolist() == pytest.approx([3.0, 0.5])
    assert (behaviour * weights * torch.tensor([0.75, 0.35])).sum().item() == pytest.approx(0.59)
    assert correction(target.log(), behaviour.log(), 2.0).tolist() == pytest.approx([2.0, 0.5])


def test_without_contrast_the_gradient_is_exactly_zero() -> None:
    current = torch.full((6,), -0.7, requires_grad=True)
    terms(scored(current, [0.0] * 6, torch.full((6,), 1 / 6)), Choices()).loss.backward()
    assert current.grad is not None
    assert (current.grad == 0).all()


def test_kl_and_entropy_enter_the_loss_with_their_weights() -> None:
    current = torch.tensor([-1.0, -2.0], requires_grad=True)
    still = current.detach()
    weights = torch.tensor([0.5, 0.5])
    given = Scored(current, still, still, torch.zeros(2), weights, torch.tensor([1.0, 3.0]), still + 0.1)
    found = terms(given, Choices(kl_estimator="k1", kl_weight=0.5, entropy_weight=0.1))
    assert found.loss.item() == pytest.approx(0.5 * -0.1 - 0.1 * 2.0)
    found.loss.backward()
    assert current.grad is not None
    assert current.grad.tolist() == pytest.approx([0.25, 0.25])
