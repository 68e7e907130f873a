"""Passed trials worth repeating: one per prompt, so that what was learned once is not lost to later updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from services.trainer.packing import ScoredCall, TrainGroup, TrainMember

CAPACITY = 2048


class PassedTrials:
    """The newest passed trial per prompt. Deterministic."""

    def __init__(self) -> None:
        self._by_prompt: dict[bytes, tuple[TrainMember, float]] = {}

    def __len__(self) -> int:
        return len(self._by_prompt)

    def add(self, groups: Sequence[TrainGroup]) -> None:
        """Take the passed members of these groups."""
        for group in groups:
            passed = [member for member in group.members if member.reward >= 1 and member.calls]
            if passed:
                key = passed[0].calls[0].prefix.tobytes()
                self._by_prompt.pop(key, None)
                self._by_prompt[key] = (passed[0], group.temperature)
        while len(self._by_prompt) > CAPACITY:
            del self._by_prompt[next(iter(self._by_prompt))]

    def draw(self, count: int, rng: np.random.Generator) -> list[TrainGroup]:
        """At most `count` trials of different prompts as groups of one, scored whole (their failed tries were at least
        well-formed: scoring only the last calls raised the share of malformed later tries)."""
        kept = list(self._by_prompt.values())
        chosen = rng.permutation(len(kept))[:count]
        return [
            TrainGroup(member.trial_id, (member,), 0, temperature) for member, temperature in (kept[i] for i in chosen)
        ]

    def state(self) -> list[dict[str, Any]]:
        """Plain data and tensors, oldest first."""
        return [
            {
                "trial_id": member.trial_id,
                "reward": member.reward,
                "temperature": temperature,
                "calls": [
                    [torch.from_numpy(np.array(part)) for part in (call.prefix, call.sampled, call.logprobs)]
                    for call in member.calls
                ],
            }
            for member, temperature in self._by_prompt.values()
        ]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Inverse of `state`."""
        self._by_prompt = {}
        for entry in state:
            calls = tuple(ScoredCall(*(part.numpy() for part in call)) for call in entry["calls"])
            member = TrainMember(entry["trial_id"], calls, 1.0, entry["reward"])
            self._by_prompt[calls[0].prefix.tobytes()] = (member, entry["temperature"])
