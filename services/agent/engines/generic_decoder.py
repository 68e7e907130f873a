"""Decoding for any transformers causal LM through its own forward: left padding and the library's cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import DynamicCache


class GenericDecoder:
    """Rows that join while others run form a batch of their own: caches of unequal length are never mixed."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._device = next(model.parameters()).device
        self._waves: list[_Wave] = []

    def join(self, prefixes: Sequence[npt.NDArray[np.int32]]) -> Tensor:
        """A new wave."""
        wave = _Wave(self._model, self._device, prefixes)
        self._waves.append(wave)
        return wave.logits

    def step(self, ids: Tensor) -> Tensor:
        """One token for every row of every wave."""
        found, start = [], 0
        for wave in self._waves:
            found.append(wave.step(ids[start : start + wave.rows]))
            start += wave.rows
        return torch.cat(found)

    def keep(self, order: Sequence[int]) -> None:
        """Waves keep their place, so `order` must be ascending."""
        if list(order) != sorted(order):
            raise ValueError("rows of this decoder may leave but not change their order")
        start = 0
        for wave in self._waves:
            wave.keep([i - start for i in order if start <= i < start + wave.size])
            start += wave.size
        for wave in self._waves:
            wave.size = wave.rows
        self._waves = [wave for wave in self._waves if wave.rows]


class _Wave:
    """Rows that joined together; `size` is the count before the last `keep`, `rows` the count now."""

    def __init__(self, model: torch.nn.Module, device: torch.device, prefixes: Sequence[npt.NDArray[np.int32]]) -> None:
        self._model = model
        self.rows = self.size = len(prefixes)
        width = max(len(p) for p in prefixes)
        ids = torch.zeros((self.rows, width), dtype=torch.int64, device=device)
        self._mask = torch.zeros((self.rows, width), dtype=torch.int64, device=device)
        for row, prefix in enumerate(prefixes):
            ids[row, width - len(prefix) :] = torch.from_numpy(prefix.astype(np.int64)).to(device)
            self._mask[row, width - len(prefix) :] = 1
        self._cache = DynamicCache(config=model.config)
        self._positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
        self.logits = self._forward(ids)

    def _forward(self, ids: Tensor) -> Tensor:
        out = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._positions = self._positions[:, -1:] + 1
        found: Tensor = out.logits[:, -1]
        return found

    def step(self, ids: Tensor) -> Tensor:
        self._mask = torch.cat((self._mask, self._mask.new_ones((self.rows, 1))), 1)
        return self._forward(ids[:, None])

    def keep(self, rows: Sequence[int]) -> None:
        self.rows = len(rows)
        if self.rows == self.size:
            return
        index = torch.tensor(list(rows), dtype=torch.int64, device=self._mask.device)
        self._mask, self._positions = self._mask[index], self._positions[index]
        if self.rows:
            self._cache.batch_select_indices(index)
