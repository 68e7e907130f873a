"""Byte-level BPE over our own corpus: any text has ids, digits stand alone, control tokens cannot be spelt in text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

# In id order. `act` hands the turn to the policy, `end` is the stop token, `obs` opens what a tool answered.
CONTROL_TOKENS = ("<|pad|>", "<|begin|>", "<|act|>", "<|end|>", "<|obs|>")
PAD, BEGIN, ACT, END, OBS = range(5)

Ids = npt.NDArray[np.int32]


class Tokenizer:
    """Text to ids and back; `digest` pins the exact vocabulary and merges."""

    def __init__(self, backend: Backend) -> None:
        for number, token in enumerate(CONTROL_TOKENS):
            if backend.token_to_id(token) != number:
                raise ValueError(f"the tokenizer has no control token {token} at id {number}")
        # Text that spells a control token is text: the ids of control tokens are only ever added by the harness.
        backend.encode_special_tokens = True
        self._backend = backend

    @classmethod
    def train(cls, corpus: Iterable[str], vocabulary: int) -> Tokenizer:
        """A tokenizer of at most `vocabulary` ids (261 at least: bytes and control tokens). Deterministic."""
        if vocabulary < 256 + len(CONTROL_TOKENS):
            raise ValueError(f"a vocabulary of {vocabulary} cannot hold 256 bytes and {len(CONTROL_TOKENS)} controls")
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=list(CONTROL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator(corpus, trainer)
        return cls(backend)

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """From a `tokenizer.json`. Raises OSError or ValueError."""
        text = path.read_text(encoding="utf-8")
        try:
            return cls(Backend.from_str(text))
        except Exception as error:  # the library raises bare Exception for malformed documents
            raise ValueError(f"{path}: no tokenizer of ours: {error}") from error

    def save(self, path: Path) -> None:
        """Write `tokenizer.json`."""
        path.write_text(self.text, encoding="utf-8")

    @cached_property
    def text(self) -> str:
        """The document of the tokenizer."""
        return str(self._backend.to_str())

    @cached_property
    def digest(self) -> str:
        """`sha256:` + hex over the document."""
        return "sha256:" + hashlib.sha256(self.text.encode("utf-8")).hexdigest()

    @cached_property
    def size(self) -> int:
        """Count of ids."""
        return int(self._backend.get_vocab_size())

    def encode(self, text: str) -> Ids:
        """Ids of `text`, shape (n,) int32; never a control token."""
        return np.asarray(self._backend.encode(text, add_special_tokens=False).ids, dtype=np.int32)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Text of ids without control tokens; bytes that are no UTF-8 become U+FFFD."""
        return str(self._backend.decode([int(i) for i in ids], skip_special_tokens=True))

    def show(self, ids: Sequence[int] | Ids) -> str:
        """Text of ids with control tokens spelt out, for people."""
        return str(self._backend.decode([int(i) for i in ids], skip_special_tokens=False))
