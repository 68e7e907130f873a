"""Decoding for our Llama shape: a group's prompt is kept once and read once, each row owns only what follows it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from services.agent.llama import Weights, finish, logits, project, rotary
from services.agent.shared_prefix import KeysValues, Layout, joined, prompt_pass, suffix_pass

Ids = npt.NDArray[np.int32]
_CHUNK = 64


@dataclass(eq=False)
class _Prompt:
    """Keys and values of one prompt, (layers, 2, kv_heads, length, head_dim)."""

    key: bytes
    length: int
    cache: Tensor


class LeanDecoder:
    """The rows of one weight version. `boundary` is the id at whose first occurrence the shared part of a prefix ends."""

    def __init__(self, weights: Weights, boundary: int | None, capacity: int = 64, kept_prompts: int = 256) -> None:
        self._weights = weights
        self._boundary = boundary
        self._kept_prompts = kept_prompts
        self._prompts: OrderedDict[bytes, _Prompt] = OrderedDict()
        self._rows: list[_Prompt] = []
        shape = weights.shape
        self._device = weights.embedding.device
        self._scale = shape.head_dim**-0.5
        self._own = weights.embedding.new_zeros(
            (shape.layers, 2, capacity, shape.kv_heads, 2 * _CHUNK, shape.head_dim)
        )
        self._lengths = torch.zeros(capacity, dtype=torch.int64, device=self._device)
        self._widest = 0
        self._table: list[_Prompt] = []
        self._shared: Tensor | None = None
        self._changed = True

    def join(self, prefixes: Sequence[Ids]) -> Tensor:
        """Add rows; the prompts that are not known yet are computed together, then all suffixes together."""
        prompts = [self._prompt_of(prefix) for prefix in prefixes]
        self._compute([p for p in dict.fromkeys(prompts) if p.cache.numel() == 0], prefixes, prompts)
        suffixes = [prefix[p.length :] for prefix, p in zip(prefixes, prompts, strict=True)]
        layout = Layout.of([len(s) for s in suffixes], self._device)
        unique = list(dict.fromkeys(prompts))
        number = {p.key: i for i, p in enumerate(unique)}
        owner = torch.tensor([number[p.key] for p in prompts], device=self._device)
        lengths = torch.tensor([p.length for p in unique], device=self._device)
        stacked = _stacked(unique)
        shared: KeysValues = [(t[0].transpose(1, 2), t[1].transpose(1, 2)) for t in stacked]
        last = layout.lengths.cumsum(0) - 1
        hidden, own = suffix_pass(self._weights, shared, lengths, owner, joined(suffixes, self._device), layout, last)
        self._store(own, layout)
        self._rows += prompts
        self._changed = True
        return logits(self._weights, hidden)

    def _prompt_of(self, prefix: Ids) -> _Prompt:
        length = len(prefix) - 1
        if self._boundary is not None:
            ends = np.flatnonzero(prefix[: length + 1] == self._boundary)
            length = int(ends[0]) if len(ends) else length
        key = prefix[:length].tobytes()
        known = self._prompts.get(key)
        if known is None:
            known = self._prompts[key] = _Prompt(key, length, torch.empty(0))
        self._prompts.move_to_end(key)
        return known

    def _compute(self, new: list[_Prompt], prefixes: Sequence[Ids], prompts: list[_Prompt]) -> None:
        if not new:
            return
        text = {p.key: prefix[: p.length] for prefix, p in zip(prefixes, prompts, strict=True)}
        layout = Layout.of([p.length for p in new], self._device)
        found = prompt_pass(self._weights, joined([text[p.key] for p in new], self._device), layout)
        whole = torch.stack([torch.stack((k, v)) for k, v in found]).transpose(3, 4)
        for row, prompt in enumerate(new):
            prompt.cache = whole[:, :, row, :, : prompt.length].clone()
        while len(self._prompts) > self._kept_prompts:
            self._prompts.popitem(last=False)

    def _store(self, own: KeysValues, layout: Layout) -> None:
        n, rows = len(self._rows), layout.rows
        self._reserve(n + rows, layout.width + _CHUNK)
        for layer, (keys, values) in enumerate(own):
            self._own[layer, 0, n : n + rows, :, : layout.width] = keys.transpose(1, 2)
            self._own[layer, 1, n : n + rows, :, : layout.width] = values.transpose(1, 2)
        self._lengths[n : n + rows] = layout.lengths
        self._widest = max(self._widest, layout.width)

    def _reserve(self, rows: int, width: int) -> None:
        old = self._own
        if rows <= old.shape[2] and width <= old.shape[4]:
            return
        capacity = max(old.shape[2], rows if rows <= old.shape[2] else 2 * rows)
        wide = max(old.shape[4], -(-width // _CHUNK) * _CHUNK)
        self._own = old.new_zeros((old.shape[0], 2, capacity, old.shape[3], wide, old.shape[5]))
        self._own[:, :, : old.shape[2], :, : old.shape[4]] = old
        self._lengths = torch.cat((self._lengths, self._lengths.new_zeros(capacity - len(self._lengths))))

    def keep(self, order: Sequence[int]) -> None:
        """Rows move only where their number changes: holes are filled from the tail by whoever calls."""
        moved = [(new, old) for new, old in enumerate(order) if new != old]
        if moved:
            to = torch.tensor([new for new, _ in moved], device=self._device)
            source = torch.tensor([old for _, old in moved], device=self._device)
            self._own[:, :, to] = self._own[:, :, source]
            self._lengths[to] = self._lengths[source]
        self._rows = [self._rows[i] for i in order]
        self._widest = int(self._lengths[: len(order)].max()) if order else 0
        self._changed = True

    def step(self, ids: Tensor) -> Tensor:
        """One token for every row."""
        n = len(self._rows)
        self._reserve(n, self._widest + 1)
        if self._changed:
            self._arrange()
        self._widest += 1
        positions = self._lengths[:n]
        row_numbers = self._numbers[:n]
        cos, sin = rotary(self._weights, self._prompt_lengths + positions)
        visible = self._steps[: self._widest] <= positions[:, None]
        own_mask = torch.zeros(visible.shape, dtype=cos.dtype, device=self._device).masked_fill_(~visible, float("-inf"))
        mask = torch.cat((self._shared_mask, own_mask), 1)[:, None, None]
        hidden = F.embedding(ids, self._weights.embedding)
        for layer, block in enumerate(self._weights.blocks):
            queries, keys, values = project(self._weights, block, hidden, cos, sin)
            own = self._own[layer]
            own[0, row_numbers, :, positions] = keys
            own[1, row_numbers, :, positions] = values
            hidden = finish(self._weights, block, hidden, self._attended(layer, queries, own, mask))
        self._lengths[:n] += 1
        return logits(self._weights, hidden)

    def _arrange(self) -> None:
        """Which table row each prompt stands in, and which rows of the batch read it."""
        unique = list(dict.fromkeys(self._rows))
        known = {p: i for i, p in enumerate(self._table)}
        if any(p not in known for p in unique) or len(self._table) > 2 * len(unique):
            self._table, known = unique, {p: i for i, p in enumerate(unique)}
            self._shared = _stacked(unique)
        members: list[list[int]] = [[] for _ in self._table]
        places = []
        for row, prompt in enumerate(self._rows):
            members[known[prompt]].append(row)
            places.append((known[prompt], len(members[known[prompt]]) - 1))
        depth = max(len(m) for m in members)
        self._depth = depth
        self._readers = torch.tensor([m + [0] * (depth - len(m)) for m in members], device=self._device).flatten()
        self._places = torch.tensor([table * depth + k for table, k in places], device=self._device)
        lengths = torch.tensor([p.length for p in self._rows], device=self._device)
        assert self._shared is not None
        seen = torch.arange(self._shared.shape[4], device=self._device) < lengths[:, None]
        self._prompt_lengths = lengths
        self._shared_mask = torch.zeros(seen.shape, dtype=self._own.dtype, device=self._device)
        self._shared_mask.masked_fill_(~seen, float("-inf"))
        self._numbers = torch.arange(self._own.shape[2], device=self._device)
        self._steps = torch.arange(self._own.shape[4], device=self._device)
        self._changed = False

    def _attended(self, layer: int, queries: Tensor, own: Tensor, mask: Tensor) -> Tensor:
        """Attention of one token per row over its prompt (read once per table row) and its own tokens."""
        assert self._shared is not None
        shape, n, wide = self._weights.shape, len(queries), self._widest
        kv, group, size = shape.kv_heads, shape.group, shape.head_dim
        shared_keys, shared_values = self._shared[layer, 0], self._shared[layer, 1]
        prompts, width = len(self._table), shared_keys.shape[2]
        q = (queries * self._scale).view(n, kv, group, size)
        # (prompts, depth, kv, group, size) -> (prompts, kv, depth·group, size): all readers of one prompt as one matrix.
        readers = q[self._readers].view(prompts, self._depth, kv, group, size).transpose(1, 2)
        readers = readers.reshape(prompts, kv, self._depth * group, size)
        shared = (readers @ shared_keys.transpose(2, 3)).view(prompts, kv, self._depth, group, width)
        shared = shared.transpose(1, 2).reshape(prompts * self._depth, kv, group, width)[self._places]
        mine = q @ own[0, :n, :, :wide].transpose(2, 3)
        weight = (torch.cat((shared, mine), 3) + mask).softmax(-1)
        back = weight[..., :width][self._readers].view(prompts, self._depth, kv, group, width).transpose(1, 2)
        read = back.reshape(prompts, kv, self._depth * group, width) @ shared_values
        read = read.view(prompts, kv, self._depth, group, size).transpose(1, 2)
        read = read.reshape(prompts * self._depth, kv, group, size)[self._places]
        return torch.add(read, weight[..., width:] @ own[1, :n, :, :wide]).flatten(1)


def _stacked(prompts: list[_Prompt]) -> Tensor:
    """Prompts side by side, zero padded: (layers, 2, prompts, kv_heads, longest, head_dim)."""
    first = prompts[0].cache
    width = max(p.length for p in prompts)
    out = first.new_zeros((first.shape[0], 2, len(prompts), first.shape[2], width, first.shape[4]))
    for row, prompt in enumerate(prompts):
        out[:, :, row, :, : prompt.length] = prompt.cache
    return out
