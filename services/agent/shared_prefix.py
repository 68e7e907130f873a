"""Forward passes over groups whose members share a prompt: the prompt is computed once, whoever reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from services.agent.llama import Weights, attend, embed, finish, project, rotary

KeysValues = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Layout:
    """Where the tokens of ragged rows stand in a padded (rows, width) grid; padding is never computed, only skipped.

    `slots` (n,) is the flat grid index of every token, row by row; `steps` (n,) its place in the row.
    """

    rows: int
    width: int
    slots: Tensor
    steps: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device | str = "cpu") -> Layout:
        """The layout of rows of these lengths."""
        sizes = np.asarray(lengths, dtype=np.int64)
        width = int(sizes.max(initial=0))
        ends = np.cumsum(sizes)
        steps = np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)
        slots = np.repeat(np.arange(len(sizes)) * width, sizes) + steps
        return cls(
            len(sizes),
            width,
            torch.from_numpy(slots).to(device),
            torch.from_numpy(steps).to(device),
            torch.from_numpy(sizes).to(device),
        )


class _Spread(torch.autograd.Function):
    """Tokens (n, …) into a zero grid (size, …); every token has its own place, so that the gradient is a gather."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, slots: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(slots)
        grid = tokens.new_zeros((size, *tokens.shape[1:]))
        grid[slots] = tokens
        return grid

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (slots,) = ctx.saved_tensors
        return grads[0][slots], None, None


class _Gather(torch.autograd.Function):
    """The tokens (n, …) of a grid (size, …); the gradient is a spread."""

    @staticmethod
    def forward(ctx: Any, grid: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.size = grid.shape[0]
        return grid[slots]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (slots,) = ctx.saved_tensors
        grid = grads[0].new_zeros((ctx.size, *grads[0].shape[1:]))
        grid[slots] = grads[0]
        return grid, None


def _apply(function: Any, *args: Any) -> Tensor:
    found: Tensor = function.apply(*args)  # untyped in torch
    return found


def _spread(tokens: Tensor, layout: Layout) -> Tensor:
    grid: Tensor = _apply(_Spread, tokens, layout.slots, layout.rows * layout.width)
    return grid.view(layout.rows, layout.width, *tokens.shape[1:])


def _gather(grid: Tensor, layout: Layout) -> Tensor:
    return _apply(_Gather, grid.reshape(layout.rows * layout.width, *grid.shape[2:]), layout.slots)


def prompt_pass(weights: Weights, tokens: Tensor, layout: Layout) -> KeysValues:
    """Keys and values of prompts per layer, each (rows, width, kv_heads, head_dim), zero where there is padding.

    `tokens` (n,) are the prompts one after the other. Hidden states of the last layer are not needed and not computed.
    """
    cos, sin = rotary(weights, layout.steps)
    hidden = embed(weights, tokens)
    found: KeysValues = []
    for number, block in enumerate(weights.blocks):
        queries, keys, values = project(weights, block, hidden, cos, sin)
        found.append((_spread(keys, layout), _spread(values, layout)))
        if number + 1 < weights.shape.layers:
            attended = attend(_spread(queries, layout), *found[-1], None)
            hidden = finish(weights, block, hidden, _gather(attended, layout).flatten(1))
    return found


def suffix_pass(
    weights: Weights,
    prompts: KeysValues,
    prompt_lengths: Tensor,
    owner: Tensor,
    tokens: Tensor,
    layout: Layout,
    wanted: Tensor,
) -> tuple[Tensor, KeysValues]:
    """Hidden states (len(wanted), hidden) of the tokens numbered `wanted`, and the suffixes' own keys and values.

    Suffix row i continues prompt `owner[i]`; `tokens` (n,) are the suffixes one after the other.
    """
    own_lengths = prompt_lengths[owner]
    row = layout.slots // max(layout.width, 1)
    cos, sin = rotary(weights, own_lengths[row] + layout.steps)
    mask = _mask(prompts[0][0].shape[1], own_lengths, layout, weights.embedding.dtype)
    hidden = embed(weights, tokens)
    found: KeysValues = []
    for number, block in enumerate(weights.blocks):
        queries, keys, values = project(weights, block, hidden, cos, sin)
        found.append((_spread(keys, layout), _spread(values, layout)))
        all_keys = torch.cat((prompts[number][0][owner], found[-1][0]), 1)
        all_values = torch.cat((prompts[number][1][owner], found[-1][1]), 1)
        attended = _gather(attend(_spread(queries, layout), all_keys, all_values, mask), layout).flatten(1)
        if number + 1 == weights.shape.layers:
            hidden, attended = _apply(_Gather, hidden, wanted), _apply(_Gather, attended, wanted)
        hidden = finish(weights, block, hidden, attended)
    return hidden, found


def _mask(prompt_width: int, own_lengths: Tensor, layout: Layout, dtype: torch.dtype) -> Tensor:
    device = own_lengths.device
    steps = torch.arange(layout.width, device=device)
    seen = torch.arange(prompt_width, device=device) < own_lengths[:, None]
    causal = steps <= steps[:, None]
    allowed = torch.cat(
        (
            seen[:, None].expand(layout.rows, layout.width, prompt_width),
            causal[None].expand(layout.rows, layout.width, layout.width),
        ),
        2,
    )
    return torch.zeros(allowed.shape, dtype=dtype, device=device).masked_fill_(~allowed, float("-inf"))[:, None]


def joined(rows: Sequence[npt.NDArray[np.int32]], device: torch.device | str = "cpu") -> Tensor:
    """Ragged ids as one tensor (n,) int64."""
    flat = np.concatenate(rows) if rows else np.empty(0, np.int32)
    return torch.from_numpy(flat.astype(np.int64)).to(device)
