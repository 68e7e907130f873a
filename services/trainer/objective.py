"""The policy-gradient objective as pure functions over flat scored tokens, normalised over the whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Reduction = Literal["sequence_mean", "token_mean", "constant"]
KlEstimator = Literal["none", "k1", "k2", "k3"]


@dataclass(frozen=True)
class Choices:
    """Everything that the objective leaves open; see DESIGN section 7."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    correction_cap: float = 2.0
    reduction: Reduction = "constant"
    constant_length: int = 64
    kl_estimator: KlEstimator = "none"
    kl_weight: float = 0.0
    entropy_weight: float = 0.0


@dataclass(frozen=True)
class Scored:
    """n sampled tokens of one microbatch. All tensors have shape (n,); log-probabilities are in nats.

    `current` carries the gradient; `proximal` is the trainer's policy at the start of the update, `behaviour` what the
    tokens were sampled from; `coefficients` is the group coefficient of each token's trial; `weights` is the share of
    each token in the batch (see `token_weights`); `entropy` may carry a gradient.
    """

    current: Tensor
    proximal: Tensor
    behaviour: Tensor
    coefficients: Tensor
    weights: Tensor
    entropy: Tensor
    reference: Tensor | None = None


@dataclass(frozen=True)
class Terms:
    """Scalars to be summed over microbatches (`loss` is the one to differentiate), and per-token facts for the log."""

    loss: Tensor
    policy: Tensor
    kl: Tensor
    entropy: Tensor
    ratios: Tensor
    clipped_low: Tensor
    clipped_high: Tensor
    capped: Tensor


def token_weights(lengths: Tensor, reduction: Reduction, sequences: int, tokens: int, constant_length: int) -> Tensor:
    """Weight of each token, shape (sum of lengths,), so that the weighted sum over the whole batch is the reduction.

    `lengths` are the scored tokens of the sequences at hand; `sequences` and `tokens` are totals over **all**
    microbatches (and ranks) of the step, which is why any split into microbatches gives the same gradient.
    """
    if reduction == "sequence_mean":
        each = 1.0 / (sequences * lengths.clamp(min=1).to(torch.float32))
    elif reduction == "token_mean":
        each = torch.full((len(lengths),), 1.0 / max(tokens, 1))
    else:
        each = torch.full((len(lengths),), 1.0 / (sequences * constant_length))
    return torch.repeat_interleave(each.to(lengths.device), lengths)


def surrogate(ratios: Tensor, coefficients: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """PPO's pessimistic bound with separate low and high clips (to be maximised): min(ρA, clip(ρ, 1−εl, 1+εh)·A)."""
    return torch.minimum(ratios * coefficients, ratios.clamp(1 - clip_low, 1 + clip_high) * coefficients)


def correction(proximal: Tensor, behaviour: Tensor, cap: float) -> Tensor:
    """Truncated importance weight min(π_prox/μ, C) for tokens sampled from μ; no gradient."""
    return (proximal - behaviour).detach().exp().clamp(max=cap)


def divergence(log_ratio: Tensor, estimator: KlEstimator) -> Tensor:
    """Per-token estimate of KL(π ‖ π_ref) from log(π_ref/π) of sampled tokens (Schulman's k1, k2, k3)."""
    if estimator == "k1":
        return -log_ratio
    if estimator == "k2":
        return 0.5 * log_ratio.square()
    if estimator == "k3":
        return log_ratio.exp() - 1 - log_ratio
    return torch.zeros_like(log_ratio)


def terms(scored: Scored, choices: Choices) -> Terms:
    """The loss of one microbatch, minimised: −surrogate · correction + KL − entropy bonus, each weighted."""
    ratios = (scored.current - scored.proximal).exp()
    corrected = correction(scored.proximal, scored.behaviour, choices.correction_cap)
    gain = surrogate(ratios, scored.coefficients, choices.clip_low, choices.clip_high) * corrected
    policy = -(scored.weights * gain).sum()
    entropy = (scored.weights * scored.entropy).sum()
    kl = torch.zeros((), device=policy.device)
    if scored.reference is not None and choices.kl_estimator != "none":
        kl = (scored.weights * divergence(scored.reference - scored.current, choices.kl_estimator)).sum()
    loss = policy + choices.kl_weight * kl - choices.entropy_weight * entropy
    raw = ratios.detach()
    return Terms(
        loss,
        policy.detach(),
        kl.detach(),
        entropy.detach(),
        raw,
        (raw < 1 - choices.clip_low) & (scored.coefficients < 0),
        (raw > 1 + choices.clip_high) & (scored.coefficients > 0),
        (scored.proximal - scored.behaviour).exp() > choices.correction_cap,
    )
