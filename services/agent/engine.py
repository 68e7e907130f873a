"""The one interface to whatever samples tokens: ids in; ids, log-probabilities, stop reason and weight version out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class SamplingParams:
    """The distribution to sample from. `top_k` 0 and `top_p` 1 switch the cut off."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True)
class EngineRequest:
    """One model call. `prefix` has shape (n,), int32, ids inside the vocabulary; sampling depends on `seed` alone."""

    request_id: str
    prefix: npt.NDArray[np.int32]
    max_tokens: int
    seed: int
    sampling: SamplingParams
    stop_ids: frozenset[int]


@dataclass(frozen=True)
class EngineSample:
    """What was sampled: `ids` (m,) int32, `logprobs` (m,) float32 in nats under the distribution actually sampled from,
    `support_sizes` (m,) int32. `stop` is `stop_token` only when the last id is a stop id that was itself sampled."""

    request_id: str
    ids: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]
    support_sizes: npt.NDArray[np.int32]
    stop: Literal["stop_token", "length"]
    policy_version: int
    started_ms: int
    ended_ms: int


class EngineError(RuntimeError):
    """A call that the engine could not serve: infrastructure, never the policy's fault."""


class Engine(Protocol):
    """A batching sampler of tokens. `submit` and `load` come from any thread; `run` is the engine's own thread."""

    name: str

    @property
    def version(self) -> int:
        """Version of the weights that the next call will use; -1 before the first load."""

    def load(self, version: int, folder: Path) -> None:
        """Swap to the checkpoint in `folder` once no call is under way, and drop every cached key and value."""

    def submit(self, request: EngineRequest) -> None:
        """Queue one call."""

    def run(
        self,
        on_sample: Callable[[EngineSample], None],
        on_error: Callable[[str, EngineError], None],
        stop: threading.Event,
    ) -> None:
        """Serve calls until `stop` is set; every submitted request ends in exactly one callback."""
