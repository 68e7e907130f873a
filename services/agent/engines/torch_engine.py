"""The embedded engine: continuous batching over a decoder; a row leaves when its action ends and others join."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from services.agent import model as models
from services.agent.engine import EngineError, EngineRequest, EngineSample
from services.agent.engines.decoder import Decoder
from services.agent.engines.generic_decoder import GenericDecoder
from services.agent.engines.lean_decoder import LeanDecoder
from services.agent.engines.sampling import draw, processed, uniforms
from services.agent.llama import is_plain_llama, weights_of
from services.agent.tokenizer import ACT

_IDLE_S = 0.05
# A joining row costs a forward pass of its own; waiting a few steps lets several join in one.
_STEPS_BETWEEN_JOINS = 8


@dataclass(eq=False)
class _Row:
    request: EngineRequest
    numbers: np.ndarray[tuple[int], np.dtype[np.float32]]
    started_ms: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    support: list[int] = field(default_factory=list)
    ended: bool = False


class TorchEngine:
    """See `Engine`. `lean` False forces the model's own forward; `batch` bounds the rows that are decoded at once."""

    name = "torch"

    def __init__(
        self, batch: int = 128, threads: int = 0, device: str = "cpu", lean: bool = True, boundary: int | None = ACT
    ) -> None:
        self._batch = batch
        self._device = device
        self._lean = lean
        self._boundary = boundary
        self._threads = threads
        self._condition = threading.Condition()
        self._waiting: deque[EngineRequest] = deque()
        self._next: tuple[int, torch.nn.Module] | None = None
        self._announced = -1
        self._version = -1
        self._vocabulary = 0
        self._context = 0
        self._decoder: Decoder | None = None
        self._since_join = 0

    @property
    def version(self) -> int:
        """Version that the next call will use."""
        return self._announced

    def load(self, version: int, folder: Path) -> None:
        """Read the checkpoint here, swap between calls. Raises EngineError when the folder holds no usable model."""
        try:
            model = models.load(folder, self._device)
        except Exception as error:  # the library answers a broken folder with almost any exception
            raise EngineError(f"version {version} cannot be loaded from {folder}: {error}") from error
        self.use(version, model)

    def use(self, version: int, model: torch.nn.Module) -> None:
        """Swap to a model in memory, which must not change afterwards."""
        with self._condition:
            self._next = (version, model)
            self._announced = version
            self._condition.notify_all()

    def submit(self, request: EngineRequest) -> None:
        """Queue one call."""
        with self._condition:
            self._waiting.append(request)
            self._condition.notify_all()

    def run(
        self,
        on_sample: Callable[[EngineSample], None],
        on_error: Callable[[str, EngineError], None],
        stop: threading.Event,
    ) -> None:
        """Serve calls until `stop` is set; calls still queued or under way then end in `on_error`."""
        if self._threads:
            torch.set_num_threads(self._threads)
        rows: list[_Row] = []
        while not stop.is_set():
            for request_id, error in self._serve_once(rows, on_sample):
                on_error(request_id, error)
        with self._condition:
            left, self._waiting = list(self._waiting), deque()
        for request in [row.request for row in rows] + left:
            on_error(request.request_id, EngineError("the engine was stopped"))
        self._decoder = None
        self._next = self._next or ((self._version, self._model) if self._version >= 0 else None)

    def _serve_once(self, rows: list[_Row], on_sample: Callable[[EngineSample], None]) -> list[tuple[str, EngineError]]:
        """Let waiting calls join, advance every row by one token, deliver what ended. Returns the calls that failed."""
        failed: list[tuple[str, EngineError]] = []
        joining = self._admit(rows, failed)
        if not rows and not joining:
            return failed
        try:
            with torch.inference_mode():
                if joining:
                    self._join(rows, joining)
                else:
                    self._advance(rows, self._step(rows))
        except (RuntimeError, MemoryError) as error:
            # A decoder that failed is in an unknown state: everything under way is lost and named, weights stay.
            for row in [*rows, *(r for r in joining if r not in rows)]:
                failed.append((row.request.request_id, EngineError(f"decoding failed: {error}")))
            rows.clear()
            self._decoder = self._new_decoder()
            return failed
        self._deliver(rows, on_sample)
        return failed

    def _admit(self, rows: list[_Row], failed: list[tuple[str, EngineError]]) -> list[_Row]:
        with self._condition:
            if not rows and self._next is not None:
                self._swap()
            if not rows and (not self._waiting or self._version < 0):
                self._condition.wait(_IDLE_S)
                return []
            # A newer version waits for the rows under way; letting others join would make it wait for ever.
            room = 0 if self._next is not None else self._batch - len(rows)
            if rows and self._since_join < _STEPS_BETWEEN_JOINS:
                room = 0
            taken = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        now = _now_ms()
        joining = []
        for request in taken:
            problem = self._problem(request)
            if problem:
                failed.append((request.request_id, EngineError(problem)))
            else:
                joining.append(_Row(request, uniforms(request), now))
        return joining

    def _problem(self, request: EngineRequest) -> str | None:
        prefix, params = request.prefix, request.sampling
        if prefix.ndim != 1 or len(prefix) == 0:
            return f"a prefix of shape {prefix.shape} is no row of ids"
        if int(prefix.min()) < 0 or int(prefix.max()) >= self._vocabulary:
            return f"the prefix holds an id outside of 0..{self._vocabulary - 1}"
        if request.max_tokens < 1 or len(prefix) + request.max_tokens > self._context:
            return f"{len(prefix)} ids and {request.max_tokens} to sample do not fit a context of {self._context}"
        if not (params.temperature > 0 and params.top_k >= 0 and 0 < params.top_p <= 1):
            return f"no distribution: {params}"
        return None

    def _swap(self) -> None:
        assert self._next is not None
        self._version, self._model = self._next
        self._next = None
        config: Any = self._model.config
        self._vocabulary = int(config.vocab_size)
        self._context = int(getattr(config, "max_position_embeddings", 0)) or 1 << 30
        self._decoder = self._new_decoder()

    def _new_decoder(self) -> Decoder:
        if self._lean and is_plain_llama(self._model):
            with torch.no_grad():
                return LeanDecoder(weights_of(self._model), self._boundary, self._batch)
        return GenericDecoder(self._model)

    def _join(self, rows: list[_Row], joining: list[_Row]) -> None:
        assert self._decoder is not None
        found = self._decoder.join([row.request.prefix for row in joining])
        self._since_join = 0
        rows += joining
        self._advance(joining, found)

    def _step(self, rows: list[_Row]) -> Tensor:
        assert self._decoder is not None
        self._since_join += 1
        return self._decoder.step(torch.tensor([row.ids[-1] for row in rows], device=self._device))

    def _advance(self, rows: list[_Row], found: Tensor) -> None:
        numbers = torch.tensor([float(row.numbers[len(row.ids)]) for row in rows], device=found.device)
        drawn = draw(processed(found, [row.request.sampling for row in rows]), numbers)
        values = zip(rows, drawn.ids.tolist(), drawn.logprobs.tolist(), drawn.support.tolist(), strict=True)
        for row, token, logprob, support in values:
            row.ids.append(token)
            row.logprobs.append(logprob)
            row.support.append(support)
            row.ended = token in row.request.stop_ids or len(row.ids) == row.request.max_tokens

    def _deliver(self, rows: list[_Row], on_sample: Callable[[EngineSample], None]) -> None:
        ended = [row for row in rows if row.ended]
        if not ended:
            return
        order = self._order(rows)
        assert self._decoder is not None
        with torch.inference_mode():
            self._decoder.keep(order)
        rows[:] = [rows[i] for i in order]
        now = _now_ms()
        for row in ended:
            on_sample(
                EngineSample(
                    row.request.request_id,
                    np.asarray(row.ids, dtype=np.int32),
                    np.asarray(row.logprobs, dtype=np.float32),
                    np.asarray(row.support, dtype=np.int32),
                    "stop_token" if row.ids[-1] in row.request.stop_ids else "length",
                    self._version,
                    row.started_ms,
                    now,
                )
            )

    def _order(self, rows: list[_Row]) -> list[int]:
        """Rows that go on; for the lean decoder the holes are filled from the tail, so that few rows move."""
        going = [i for i, row in enumerate(rows) if not row.ended]
        if isinstance(self._decoder, GenericDecoder):
            return going
        head = [i for i in range(len(going)) if not rows[i].ended]
        tail = iter([i for i in going if i >= len(going)])
        kept = set(head)
        return [i if i in kept else next(tail) for i in range(len(going))]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
