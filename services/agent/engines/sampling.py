"""One token per row from logits: the distribution is cut, then read, so log-probabilities are what was sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from services.agent.engine import EngineRequest, SamplingParams


@dataclass(frozen=True)
class Drawn:
    """For n rows: ids (n,) int64, log-probabilities (n,) float32 in nats, support sizes (n,) int64."""

    ids: Tensor
    logprobs: Tensor
    support: Tensor


def uniforms(request: EngineRequest) -> npt.NDArray[np.float32]:
    """The numbers in [0, 1) that decide this call's tokens, one a token: they depend on its seed alone."""
    return np.random.Generator(np.random.PCG64(request.seed)).random(request.max_tokens, dtype=np.float32)


def processed(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Log-probabilities (n, vocabulary) after temperature, top-k and top-p; cut tokens are minus infinity.

    Order as in vLLM: temperature, then top-k, then the smallest set whose mass reaches top-p. Ties at a cut stay in.
    """
    logits = logits.float()
    if all(p == params[0] for p in params):
        return _cut(logits, params[0])
    out = torch.empty_like(logits)
    for kind in set(params):
        rows = torch.tensor([i for i, p in enumerate(params) if p == kind], device=logits.device)
        out[rows] = _cut(logits[rows], kind)
    return out


def _cut(logits: Tensor, params: SamplingParams) -> Tensor:
    if params.temperature != 1.0:
        logits = logits / params.temperature
    if 0 < params.top_k < logits.shape[-1]:
        least = logits.topk(params.top_k, -1).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    if params.top_p < 1.0:
        ranked = logits.sort(-1, descending=True).values
        probabilities = ranked.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        kept = (before < params.top_p).sum(-1, keepdim=True)
        logits = logits.masked_fill(logits < ranked.gather(-1, kept - 1), float("-inf"))
    return logits.log_softmax(-1)


def draw(logprobs: Tensor, numbers: Tensor) -> Drawn:
    """Inverse-CDF sampling: `logprobs` (n, vocabulary) as `processed` gives them, `numbers` (n,) in [0, 1)."""
    probabilities = logprobs.exp()
    heights = probabilities.cumsum(-1)
    # The last height is 1 only up to rounding; scaling keeps every number inside the support.
    ids = torch.searchsorted(heights, (numbers[:, None] * heights[:, -1:]), right=True).squeeze(-1)
    ids = ids.clamp_(max=logprobs.shape[-1] - 1)
    chosen = logprobs.gather(-1, ids[:, None]).squeeze(-1)
    lost = chosen == float("-inf")
    if bool(lost.any()):  # a number that rounding put on an edge of the support
        best = logprobs.argmax(-1)
        ids = torch.where(lost, best, ids)
        chosen = logprobs.gather(-1, ids[:, None]).squeeze(-1)
    return Drawn(ids, chosen, (logprobs > float("-inf")).sum(-1))
