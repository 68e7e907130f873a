"""Log-probabilities of packed sequences under a model, with gradients: lean for our Llama, else the model's forward."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from services.agent.llama import Weights, is_plain_llama, logits, weights_of
from services.agent.shared_prefix import Layout, joined, prompt_pass, suffix_pass
from services.trainer.packing import Packed


class Scorer:
    """Scores packed groups under `model`; `lean` False forces the model's own forward."""

    def __init__(self, model: torch.nn.Module, lean: bool = True) -> None:
        self._model = model
        self._lean = lean and is_plain_llama(model)
        self._device = next(model.parameters()).device

    def score(self, packed: Packed) -> tuple[Tensor, Tensor]:
        """(log-probabilities of the targets, entropies of their distributions), each (targets,), in nats."""
        found = self._lean_logits(packed) if self._lean else self._plain_logits(packed)
        temperatures = torch.from_numpy(packed.temperatures).to(self._device)
        if bool((temperatures != 1).any()):
            found = found / temperatures[:, None]
        logprobs = found.float().log_softmax(-1)
        targets = torch.from_numpy(packed.targets).to(self._device)
        chosen = logprobs.gather(-1, targets[:, None]).squeeze(-1)
        return chosen, -(logprobs.exp() * logprobs).sum(-1)

    def _lean_logits(self, packed: Packed) -> Tensor:
        weights: Weights = weights_of(self._model)
        layout = Layout.of([len(p) for p in packed.prompts], self._device)
        prompts = prompt_pass(weights, joined(packed.prompts, self._device), layout)
        own = Layout.of([len(s) for s in packed.suffixes], self._device)
        owner = torch.tensor(packed.owner, device=self._device)
        wanted = torch.from_numpy(packed.wanted).to(self._device)
        tokens = joined(packed.suffixes, self._device)
        hidden, _ = suffix_pass(weights, prompts, layout.lengths, owner, tokens, own, wanted)
        return logits(weights, hidden)

    def _plain_logits(self, packed: Packed) -> Tensor:
        """One row per sequence, right padded: what a causal model reads before a token never includes padding."""
        rows = [np.concatenate([packed.prompts[o], s]) for o, s in zip(packed.owner, packed.suffixes, strict=True)]
        width = max(map(len, rows))
        ids = torch.zeros((len(rows), width), dtype=torch.int64, device=self._device)
        mask = torch.zeros_like(ids)
        starts = np.cumsum([0, *map(len, packed.suffixes)])
        places = np.empty(int(starts[-1]), np.int64)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.from_numpy(row.astype(np.int64)).to(self._device)
            mask[number, : len(row)] = 1
            suffix = len(packed.suffixes[number])
            places[starts[number] : starts[number + 1]] = number * width + np.arange(len(row) - suffix, len(row))
        out = self._model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        wanted = torch.from_numpy(places[packed.wanted]).to(self._device)
        found: Tensor = out.flatten(0, 1)[wanted]
        return found
