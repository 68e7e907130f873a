"""The arithmetic of a Llama block on plain tensors, so that decoding and training may share prompts across a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama; `group` query heads share one key/value head."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads


@dataclass(frozen=True)
class Block:
    """Weights of one layer. `qkv` has 2·(heads + kv_heads) + kv_heads rows of head_dim: queries and keys, the same
    rotated by a quarter turn (so that the rotary embedding is one multiply-add), values."""

    attention_norm: Tensor
    qkv: Tensor
    output: Tensor
    feed_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Weights:
    """All weights of a Llama, derived from the module's parameters (differentiable: gradients reach the parameters)."""

    shape: Shape
    embedding: Tensor
    blocks: tuple[Block, ...]
    final_norm: Tensor
    head: Tensor
    frequencies: Tensor
    padding: int | None  # the id whose embedding is no parameter, as the library has it


def is_plain_llama(model: torch.nn.Module) -> bool:
    """Whether `Weights` can stand for this model: a Llama without biases, with unscaled rotary embeddings."""
    config = getattr(model, "config", None)
    if getattr(config, "model_type", None) != "llama":
        return False
    rope = getattr(config, "rope_parameters", None) or {}
    plain_rope = rope.get("rope_type", "default") == "default"
    biased = getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False)
    return plain_rope and not biased and getattr(config, "hidden_act", "silu") == "silu"


def _rotated(weight: Tensor, head_dim: int) -> Tensor:
    # rotate_half of the transformers library, applied to the rows of a projection instead of to its output.
    heads = weight.view(-1, 2, head_dim // 2, weight.shape[-1])
    return torch.stack((-heads[:, 1], heads[:, 0]), 1).reshape(weight.shape)


def weights_of(module: torch.nn.Module) -> Weights:
    """The weights of a transformers LlamaForCausalLM. Call again after every change of the parameters."""
    model: Any = module  # the library's classes are untyped
    config, inner = model.config, model.model
    head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    shape = Shape(
        int(config.num_hidden_layers),
        int(config.num_attention_heads),
        int(config.num_key_value_heads),
        head_dim,
        float(config.rms_norm_eps),
    )
    blocks = []
    for layer in inner.layers:
        attention, feed = layer.self_attn, layer.mlp
        turning = torch.cat((attention.q_proj.weight, attention.k_proj.weight))
        blocks.append(
            Block(
                layer.input_layernorm.weight,
                torch.cat((turning, _rotated(turning, head_dim), attention.v_proj.weight)),
                attention.o_proj.weight,
                layer.post_attention_layernorm.weight,
                torch.cat((feed.gate_proj.weight, feed.up_proj.weight)),
                feed.down_proj.weight,
            )
        )
    frequencies = inner.rotary_emb.inv_freq
    return Weights(
        shape,
        inner.embed_tokens.weight,
        tuple(blocks),
        inner.norm.weight,
        model.lm_head.weight,
        frequencies,
        inner.embed_tokens.padding_idx,
    )


def embed(weights: Weights, tokens: Tensor) -> Tensor:
    """Hidden states (n, hidden) of ids (n,)."""
    return F.embedding(tokens, weights.embedding, padding_idx=weights.padding)


def rotary(weights: Weights, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines for `positions` of shape (n,): two tensors (n, 1, head_dim)."""
    angles = positions[:, None].to(weights.frequencies.dtype) * weights.frequencies
    angles = torch.cat((angles, angles), -1)[:, None]
    return angles.cos(), angles.sin()


def project(weights: Weights, block: Block, hidden: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (n, heads, head_dim), keys and values (n, kv_heads, head_dim) of hidden states (n, hidden)."""
    shape = weights.shape
    normed = F.rms_norm(hidden, hidden.shape[-1:], block.attention_norm, shape.eps)
    turning = shape.heads + shape.kv_heads
    both = F.linear(normed, block.qkv).view(len(hidden), 2 * turning + shape.kv_heads, shape.head_dim)
    turned = torch.addcmul(both[:, :turning] * cos, both[:, turning : 2 * turning], sin)
    return turned[:, : shape.heads], turned[:, shape.heads :], both[:, 2 * turning :]


def finish(weights: Weights, block: Block, hidden: Tensor, attended: Tensor) -> Tensor:
    """The rest of a block: output projection of `attended` (n, heads · head_dim) and the feed-forward part."""
    hidden = hidden + F.linear(attended, block.output)
    normed = F.rms_norm(hidden, hidden.shape[-1:], block.feed_norm, weights.shape.eps)
    gate, up = F.linear(normed, block.gate_up).chunk(2, -1)
    return hidden + F.linear(F.silu(gate) * up, block.down)


def logits(weights: Weights, hidden: Tensor) -> Tensor:
    """Logits (n, vocabulary) of final hidden states (n, hidden)."""
    return F.linear(F.rms_norm(hidden, hidden.shape[-1:], weights.final_norm, weights.shape.eps), weights.head)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of (b, n, heads, head_dim) over keys and values (b, m, kv_heads, head_dim); causal without a mask.

    `mask` is added to the scores: (b, 1, n, m), minus infinity where a query may not look. Result: shape of `queries`.
    """
    heads, kv_heads = queries.shape[2], keys.shape[2]
    q, k, v = queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
    if kv_heads == 1:
        k, v = k.expand(-1, heads, -1, -1), v.expand(-1, heads, -1, -1)
    elif kv_heads < heads:
        k, v = k.repeat_interleave(heads // kv_heads, 1), v.repeat_interleave(heads // kv_heads, 1)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    return out.transpose(1, 2)
