"""Cost of the wire: one invocation of 1,000 appended and 1,000 sampled ids, encoded and decoded (run by hand)."""

import time

import numpy as np

from schemas.codec import decode, encode, headers
from schemas.rollout import Invocation

SIZE, COUNT, REPEATS = 1_000, 2_000, 5
BUDGET_US = 100.0


def invocations(count: int) -> list[Invocation]:
    """Records that differ in their ids, as in a run."""
    ids = np.arange(SIZE, dtype=np.int32)
    logprobs = -np.random.default_rng(0).random(SIZE, dtype=np.float32)
    base = {
        "run_id": "run",
        "group_id": "run/00000001",
        "trial_id": "run/00000001/3",
        "split": "train",
        "attempt": 0,
        "turn": 2,
        "parent_id": "run/00000001/3.0.1",
        "appended_ids": ids,
        "prefix_length": 2_000,
        "prefix_digest": "a" * 64,
        "sampled_ids": ids,
        "logprobs": logprobs,
        "support_sizes": ids,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "seed": 42,
        "engine": "torch",
        "policy_version": 3,
        "tokenizer_digest": "t" * 64,
        "template_digest": "p" * 64,
        "compaction": None,
        "stop": "stop_token",
        "started_ms": 1,
        "ended_ms": 2,
    }
    return [Invocation(invocation_id=f"run/00000001/3.0.{n}", **base) for n in range(count)]


def best_us(work, items) -> float:
    """Microseconds per item, the best of several passes."""
    best = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        for item in items:
            work(item)
        best = min(best, (time.perf_counter() - started) / len(items) * 1e6)
    return best


def main() -> None:
    records = invocations(COUNT)
    raw = encode(records[0])
    head = headers(records[0])
    encoded = best_us(encode, records)
    print(f"invocation of {SIZE} + {SIZE} ids: {len(raw)} bytes")
    print(f"encode  {encoded:6.1f} us   (budget {BUDGET_US:g} us: {'met' if encoded < BUDGET_US else 'MISSED'})")
    print(f"headers {best_us(headers, records):6.1f} us")
    print(f"decode  {best_us(lambda _: decode(Invocation, raw, head), records):6.1f} us   (token lists are not copied)")


if __name__ == "__main__":
    main()
