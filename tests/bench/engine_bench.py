"""Tokens per second of the embedded engine: groups of eight on one prompt, actions of up to 60 tokens.

Run: python tests/bench/engine_bench.py [threads]
"""

from __future__ import annotations

import argparse
import json
import threading
import time

import numpy as np
import torch

from services.agent.engine import EngineRequest, EngineSample, SamplingParams
from services.agent.engines.torch_engine import TorchEngine
from services.agent.model import ModelShape, build


def measure(lean: bool, groups: int, members: int, prompt: int, tokens: int, batch: int = 128) -> tuple[float, int]:
    """(tokens per second, calls) for one burst of `groups` · `members` calls."""
    engine = TorchEngine(batch=batch, lean=lean, boundary=None)
    engine.use(1, build(ModelShape(), seed=0))
    rng = np.random.default_rng(0)
    stop, got = threading.Event(), []

    def on_sample(sample: EngineSample) -> None:
        got.append(len(sample.ids))
        if len(got) == groups * members:
            stop.set()

    def on_error(request_id: str, error: Exception) -> None:
        raise AssertionError((request_id, error))

    for group in range(groups):
        prefix = rng.integers(5, 512, prompt).astype(np.int32)
        for member in range(members):
            request_id = f"{group}/{member}"
            seed = group * 100 + member
            engine.submit(EngineRequest(request_id, prefix, tokens, seed, SamplingParams(), frozenset({3})))
    started = time.perf_counter()
    engine.run(on_sample, on_error, stop)
    return sum(got) / (time.perf_counter() - started), len(got)


def main() -> None:
    """Print one JSON line per decoder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("threads", nargs="?", type=int, default=2)
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    for lean in (True, False):
        rates = [measure(lean, 8, 8, 100, 60)[0] for _ in range(3)]
        name = "lean" if lean else "transformers"
        print(json.dumps({"decoder": name, "threads": threads, "tokens_per_s": round(max(rates))}))


if __name__ == "__main__":
    main()
