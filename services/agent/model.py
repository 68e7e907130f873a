"""The policy on disk: a transformers causal LM folder (config, safetensors) with its harness beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from services.agent.harness import Harness
from services.agent.tokenizer import BEGIN, END, PAD
from services.runtime.scratch import importing_torch_compiler

with importing_torch_compiler():
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging as library_logging

library_logging.disable_progress_bar()  # its bars would run through a service's log

# The usual 0.02 suits wide models; 0.1 is about one over the root of hidden 128. From it the repair policy learns in
# 128 supervised steps what takes over 250 from 0.02 (sampled pass rate 0.35; 0.06 after 128 steps from 0.02).
INIT_STD = 0.1


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a policy that is made from nothing."""

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 1
    feed_forward: int = 384
    vocabulary: int = 512
    context: int = 512


def build(shape: ModelShape, seed: int, init_std: float = INIT_STD) -> torch.nn.Module:
    """A new LlamaForCausalLM with random float32 weights; the same seed gives the same weights."""
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        initializer_range=init_std,
        pad_token_id=PAD,
        bos_token_id=BEGIN,
        eos_token_id=END,
        attention_dropout=0.0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: torch.nn.Module = LlamaForCausalLM(config)
    return model.float().eval()


def save(folder: Path, model: torch.nn.Module, harness: Harness) -> None:
    """Write `config.json`, `model.safetensors`, `harness.json` and `tokenizer.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    own: Any = model  # the library's classes are untyped
    own.save_pretrained(folder)
    harness.save(folder)


def unusable(device: str) -> str:
    """Why torch cannot compute on this device; empty where it can."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # no such name, no such device, or a torch built without it
        return str(error).splitlines()[0]
    return ""


def load(folder: Path, device: str = "cpu") -> torch.nn.Module:
    """Any causal LM that transformers can load from local files, in evaluation mode. Raises OSError or ValueError."""
    if not (folder / "config.json").is_file():
        raise OSError(f"{folder}: no config.json, so this is no checkpoint folder")
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype="auto")
    return model.to(device).eval()
