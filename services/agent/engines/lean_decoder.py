"""Decoding for our Llama shape: a group's prompt is kept once and read once, each row owns only what follows it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from services.agent.llama import Weights, embed, finish, logits, project, rotary
from services.agent.shared_prefix import KeysValues, Layout, joined, prompt_pass, suffix_pass

Ids = npt.NDArray[np.int32]
_CHUNK = 64


@dataclass(eq=False)
class _Prompt:
    """Keys and values of one prompt, (layers, 2, kv_heads, length, head_dim)."""

    key: bytes
    length: int
    cache: Tensor


@dataclass(eq=False)
class _Tail:
    """What a finished call computed behind its prompt (`ids`, their keys and values), for the trial's next call."""

    ids: Ids
    cache: Tensor


@dataclass(eq=False)
class _Row:
    """A row in flight. `start` is the prefix it joined with; `ids` is what it has read behind the prompt."""

    prompt: _Prompt
    start: bytes
    ids: list[int]


class LeanDecoder:
    """The rows of one weight version. `boundary` is the id that ends a prefix, and at whose first occurrence in it the
    part shared with other trials ends; without one, everything but the last id counts as shared."""

    def __init__(
        self,
        weights: Weights,
        boundary: int | None,
        capacity: int = 64,
        kept_prompts: int = 256,
        kept_tails: int = 512,
    ) -> None:
        self._weights = weights
        self._boundary = boundary
        self._kept_prompts, self._kept_tails = kept_prompts, kept_tails
        self._prompts: OrderedDict[bytes, _Prompt] = OrderedDict()
        self._tails: OrderedDict[bytes, list[_Tail]] = OrderedDict()
        self._rows: list[_Row] = []
        shape = weights.shape
        self._device = weights.embedding.device
        self._scale = shape.head_dim**-0.5
        self._own = weights.embedding.new_zeros((shape.layers, 2, capacity, shape.kv_heads, 2 * _CHUNK, shape.head_dim))
        self._lengths = torch.zeros(capacity, dtype=torch.int64, device=self._device)
        self._widest = 0
        self._table: list[_Prompt] = []
        self._shared: Tensor | None = None
        self._changed = True

    def join(self, prefixes: Sequence[Ids]) -> Tensor:
        """Add rows; unknown prompts are computed together, then all that follows them together."""
        prompts = [self._prompt_of(prefix) for prefix in prefixes]
        self._compute([p for p in dict.fromkeys(prompts) if p.cache.numel() == 0], prefixes, prompts)
        tails = [self._tail_of(prefix, prompt) for prefix, prompt in zip(prefixes, prompts, strict=True)]
        known = [0 if tail is None else len(tail.ids) for tail in tails]
        behind = [prefix[p.length :] for prefix, p in zip(prefixes, prompts, strict=True)]
        fresh = [ids[n:] for ids, n in zip(behind, known, strict=True)]
        # Rows without a tail share their prompt's keys and values here too; a tail makes a context of its own.
        contexts: dict[object, list[Tensor]] = {}
        owner = []
        for prompt, tail in zip(prompts, tails, strict=True):
            key: object = prompt if tail is None else tail
            contexts.setdefault(key, [prompt.cache] if tail is None else [prompt.cache, tail.cache])
            owner.append(list(contexts).index(key) if tail is None else len(contexts) - 1)
        stacked, lengths = _stacked(list(contexts.values()))
        shared: KeysValues = [(t[0].transpose(1, 2), t[1].transpose(1, 2)) for t in stacked]
        layout = Layout.of([len(ids) for ids in fresh], self._device)
        last = layout.lengths.cumsum(0) - 1
        owners, length = (torch.tensor(v, device=self._device) for v in (owner, lengths))
        tokens = joined(fresh, self._device)
        hidden, own = suffix_pass(self._weights, shared, length, owners, tokens, layout, last)
        self._store(own, [len(ids) for ids in fresh], tails)
        for prefix, prompt, ids in zip(prefixes, prompts, behind, strict=True):
            self._rows.append(_Row(prompt, prefix.tobytes(), ids.tolist()))
        self._changed = True
        return logits(self._weights, hidden)

    def _tail_of(self, prefix: Ids, prompt: _Prompt) -> _Tail | None:
        """What an earlier call of the same trial left, found by the prefix that it had joined with."""
        if self._boundary is None:
            return None
        ends = np.flatnonzero(prefix[:-1] == self._boundary)
        if not len(ends):
            return None
        found = self._tails.get(prefix[: ends[-1] + 1].tobytes(), [])
        behind = prefix[prompt.length : -1]
        for number, tail in enumerate(found):
            if np.array_equal(behind[: len(tail.ids)], tail.ids):
                return found.pop(number)
        return None

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

    def _store(self, own: KeysValues, lengths: list[int], tails: list[_Tail | None]) -> None:
        n = len(self._rows)
        starts = [0 if tail is None else len(tail.ids) for tail in tails]
        ends = [start + length for start, length in zip(starts, lengths, strict=True)]
        self._reserve(n + len(ends), max(ends) + _CHUNK)
        new = torch.stack([torch.stack((k, v)) for k, v in own]).transpose(3, 4)
        for row, (start, end, tail) in enumerate(zip(starts, ends, tails, strict=True)):
            if tail is not None:
                self._own[:, :, n + row, :, :start] = tail.cache
            self._own[:, :, n + row, :, start:end] = new[:, :, row, :, : end - start]
        self._lengths[n : n + len(ends)] = torch.tensor(ends, device=self._device)
        self._widest = max(self._widest, *ends)

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
        kept = set(order)
        for number, row in enumerate(self._rows):
            if number not in kept and self._boundary is not None:
                cache = self._own[:, :, number, :, : len(row.ids)].clone()
                self._tails.setdefault(row.start, []).append(_Tail(np.asarray(row.ids, np.int32), cache))
                self._tails.move_to_end(row.start)
        while len(self._tails) > self._kept_tails:
            self._tails.popitem(last=False)
        moved = [(new, old) for new, old in enumerate(order) if new != old]
        if moved:
            to = torch.tensor([new for new, _ in moved], device=self._device)
            source = torch.tensor([old for _, old in moved], device=self._device)
            self._own[:, :, to] = self._own[:, :, source]
            self._lengths[to] = self._lengths[source]
        self._rows = [self._rows[i] for i in order]
        self._widest = max((len(row.ids) for row in self._rows), default=0)
        self._changed = True

    def step(self, ids: Tensor) -> Tensor:
        """One token for every row."""
        n = len(self._rows)
        for row, token in zip(self._rows, ids.tolist(), strict=True):
            row.ids.append(token)
        self._reserve(n, self._widest + 1)
        if self._changed:
            self._arrange()
        self._widest += 1
        positions = self._lengths[:n]
        row_numbers = self._numbers[:n]
        cos, sin = rotary(self._weights, self._prompt_lengths + positions)
        visible = self._steps[: self._widest] <= positions[:, None]
        own_mask = torch.zeros(visible.shape, dtype=cos.dtype, device=self._device)
        own_mask.masked_fill_(~visible, float("-inf"))
        mask = torch.cat((self._shared_mask, own_mask), 1)[:, None, None]
        hidden = embed(self._weights, ids)
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
        unique = list(dict.fromkeys(row.prompt for row in self._rows))
        known = {p: i for i, p in enumerate(self._table)}
        if any(p not in known for p in unique) or len(self._table) > 2 * len(unique):
            self._table, known = unique, {p: i for i, p in enumerate(unique)}
            self._shared, _ = _stacked([[p.cache] for p in unique])
        members: list[list[int]] = [[] for _ in self._table]
        places = []
        for number, row in enumerate(self._rows):
            members[known[row.prompt]].append(number)
            places.append((known[row.prompt], len(members[known[row.prompt]]) - 1))
        depth = max(len(m) for m in members)
        self._depth = depth
        self._readers = torch.tensor([m + [0] * (depth - len(m)) for m in members], device=self._device).flatten()
        self._places = torch.tensor([table * depth + k for table, k in places], device=self._device)
        lengths = torch.tensor([row.prompt.length for row in self._rows], device=self._device)
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
        # (prompts, depth, kv, group, size) -> (prompts, kv, depth·group, size): all readers of a prompt as one matrix.
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


def _stacked(contexts: list[list[Tensor]]) -> tuple[Tensor, list[int]]:
    """Contexts (each some caches in a row) side by side, zero padded, and the length of each.

    Shape (layers, 2, contexts, kv_heads, longest, head_dim).
    """
    first = contexts[0][0]
    lengths = [sum(part.shape[3] for part in parts) for parts in contexts]
    out = first.new_zeros((first.shape[0], 2, len(contexts), first.shape[2], max(lengths), first.shape[4]))
    for row, parts in enumerate(contexts):
        start = 0
        for part in parts:
            out[:, :, row, :, start : start + part.shape[3]] = part
            start += part.shape[3]
    return out, lengths
