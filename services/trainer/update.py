"""One update of the weights from admitted groups: proximal policy, minibatch steps, and the facts for the log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from services.trainer.imitation import PassedTrials
from services.trainer.objective import Choices, KlEstimator, Reduction, Scored, Terms, terms, token_weights
from services.trainer.packing import Packed, TrainGroup, pack
from services.trainer.scoring import Scorer

BETAS = (0.9, 0.99)
# Share of the learning rate at the end of a run: the weights then settle between the noise of single updates, which is
# worth as much as averaging them.
LAST_RATE = 0.1
# Larger microbatches gain nothing on a CPU (their activations leave the cache) and cost memory.
MICROBATCH_TOKENS = 4096


class UpdateSettings(Protocol):
    """The fields of `services.runtime.settings.Trainer` that decide an update."""

    learning_rate: float
    warmup_updates: int
    decay_updates: int
    optimizer_steps: int
    clip_low: float
    clip_high: float
    reduction: Reduction
    constant_length: int
    kl_estimator: KlEstimator
    kl_weight: float
    entropy_weight: float
    correction_cap: float
    max_grad_norm: float
    imitation_trials: int
    imitation_weight: float


@dataclass(frozen=True)
class UpdateStats:
    """What an update did; names and units as in `schemas.policy.TrainingUpdate`."""

    learning_rate: float
    optimizer_steps: int
    loss: float
    policy_loss: float
    kl_loss: float
    entropy: float
    ratio_p01: float
    ratio_p50: float
    ratio_p99: float
    mismatch_mean: float
    mismatch_max: float
    clip_low_fraction: float
    clip_high_fraction: float
    cap_fraction: float
    gradient_norm: float
    scored_tokens: int
    prompt_tokens: int
    sequences: int
    mean_reward: float
    computed_ms: int


@dataclass
class _Micro:
    """A microbatch with what the update's start policy said about it."""

    packed: Packed
    proximal: Tensor | None = None
    reference: Tensor | None = None


@dataclass
class _Log:
    found: list[Terms] = field(default_factory=list)
    entropy_sum: float = 0.0
    mismatches: list[Tensor] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)


class Updater:
    """Owns the optimizer. The same groups, weights and optimizer state give the same weights, byte for byte (CPU)."""

    def __init__(
        self,
        model: torch.nn.Module,
        settings: UpdateSettings,
        seed: int,
        reference: torch.nn.Module | None = None,
        lean: bool = True,
        microbatch_tokens: int = MICROBATCH_TOKENS,
        total_updates: int = 0,
    ) -> None:
        self.model = model
        self.updates = 0
        self._settings = settings
        self._seed = seed
        self._microbatch_tokens = microbatch_tokens
        self._scorer = Scorer(model, lean)
        self._reference = Scorer(reference, lean) if reference is not None else None
        if settings.kl_estimator != "none" and reference is None:
            raise ValueError(f"kl_estimator {settings.kl_estimator!r} needs a frozen reference model")
        self._choices = Choices(
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            correction_cap=settings.correction_cap,
            reduction=settings.reduction,
            constant_length=settings.constant_length,
            kl_estimator=settings.kl_estimator,
            kl_weight=settings.kl_weight,
            entropy_weight=settings.entropy_weight,
        )
        self._total_updates = total_updates
        self._passed = PassedTrials()
        self.imitation_loss: float | None = None
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.learning_rate, betas=BETAS, weight_decay=0.0, eps=1e-8
        )

    def update(self, groups: Sequence[TrainGroup], version: int) -> UpdateStats:
        """Change the weights by these groups. `version` names the weights that result and seeds the groups' order.

        Raises ValueError when there is nothing to score, FloatingPointError when a gradient is not finite (the weights
        are then as they were at the last complete step).
        """
        started = time.perf_counter()
        order = np.random.Generator(np.random.PCG64([self._seed, version])).permutation(len(groups))
        steps = max(1, min(self._settings.optimizer_steps, len(groups)))
        batches = [[groups[i] for i in part] for part in np.array_split(order, steps)]
        micros = [[_Micro(pack(part)) for part in self._split(batch)] for batch in batches]
        if sum(len(m.packed.source) for batch in micros for m in batch) == 0:
            raise ValueError("these groups hold no sampled token")
        rate = self._rate()
        for setting in self._optimizer.param_groups:
            setting["lr"] = rate
        # The first step's own forward pass *is* the start policy; only what later steps use must be scored beforehand.
        self._look_ahead([m for batch in micros[1:] for m in batch])
        log = _Log()
        for batch in micros:
            self._step(batch, log)
        self._imitate(groups, version)
        self.updates += 1
        return self._stats(groups, micros, log, rate, steps, started)

    def _split(self, groups: Sequence[TrainGroup]) -> list[list[TrainGroup]]:
        """Whole groups, up to the token limit; groups of like length together, so that little padding is attended."""
        sizes = {id(group): _tokens(group) for group in groups}
        parts: list[list[TrainGroup]] = []
        filled = 0
        for group in sorted(groups, key=lambda g: sizes[id(g)]):
            if not parts or filled + sizes[id(group)] > self._microbatch_tokens:
                parts.append([])
                filled = 0
            parts[-1].append(group)
            filled += sizes[id(group)]
        return parts

    def _rate(self) -> float:
        """Linear warm-up, then constant, then linear down to `LAST_RATE` over the last `decay_updates` of the run."""
        warm = self._settings.warmup_updates
        share = min(1.0, (self.updates + 1) / warm) if warm else 1.0
        falling = self._settings.decay_updates
        if falling and self._total_updates:
            share *= min(1.0, max(LAST_RATE, (self._total_updates - self.updates) / falling))
        return self._settings.learning_rate * share

    @torch.no_grad()
    def _look_ahead(self, later: Sequence[_Micro]) -> None:
        for micro in later:
            micro.proximal = self._scorer.score(micro.packed)[0]

    def _step(self, batch: Sequence[_Micro], log: _Log) -> None:
        sequences = sum(len(m.packed.lengths) for m in batch)
        tokens = sum(len(m.packed.source) for m in batch)
        self._optimizer.zero_grad(set_to_none=True)
        for micro in batch:
            if len(micro.packed.source):
                found = self._terms(micro, sequences, tokens, log)
                torch.autograd.backward(found.loss)
                log.found.append(found)
        log.norms.append(self._apply_gradient())

    def _imitate(self, groups: Sequence[TrainGroup], version: int) -> None:
        """One step on the mean likelihood of earlier passed trials, which keeps other tasks from being unlearned."""
        trials, weight = self._settings.imitation_trials, self._settings.imitation_weight
        self._passed.add(groups)
        self.imitation_loss = None
        if not trials or not weight or not len(self._passed):
            return
        chosen = self._passed.draw(trials, np.random.Generator(np.random.PCG64([self._seed, version, 1])))
        micros = [pack(part) for part in self._split(chosen)]
        tokens = sum(len(packed.source) for packed in micros)
        self._optimizer.zero_grad(set_to_none=True)
        self.imitation_loss = 0.0
        for packed in micros:
            logprobs = self._scorer.score(packed)[0]
            loss = -weight * logprobs.sum() / tokens
            torch.autograd.backward(loss)
            self.imitation_loss += float(loss.detach())
        self._apply_gradient()

    def _apply_gradient(self) -> float:
        """Clip and step; the norm before clipping."""
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._settings.max_grad_norm))
        if not np.isfinite(norm):
            raise FloatingPointError(f"the gradient norm is {norm}")
        self._optimizer.step()
        return norm

    def _terms(self, micro: _Micro, sequences: int, tokens: int, log: _Log) -> Terms:
        packed = micro.packed
        device = next(self.model.parameters()).device
        logprobs, entropy = self._scorer.score(packed)
        if not self._choices.entropy_weight:
            entropy = entropy.detach()
        if micro.proximal is None:
            micro.proximal = logprobs.detach()
        if self._reference is not None and self._choices.kl_estimator != "none":
            with torch.no_grad():
                micro.reference = self._reference.score(packed)[0]
        source = torch.from_numpy(packed.source).to(device)
        scored = Scored(
            logprobs[source],
            micro.proximal[source],
            torch.from_numpy(packed.behaviour).to(device),
            torch.from_numpy(packed.coefficients).to(device),
            token_weights(
                torch.from_numpy(packed.lengths).to(device),
                self._choices.reduction,
                sequences,
                tokens,
                self._choices.constant_length,
            ),
            entropy[source],
            micro.reference[source] if micro.reference is not None else None,
        )
        log.entropy_sum += float(scored.entropy.detach().sum())
        log.mismatches.append((scored.proximal - scored.behaviour).abs())
        return terms(scored, self._choices)

    def _stats(
        self,
        groups: Sequence[TrainGroup],
        micros: Sequence[Sequence[_Micro]],
        log: _Log,
        rate: float,
        steps: int,
        started: float,
    ) -> UpdateStats:
        ratios = torch.cat([t.ratios for t in log.found])
        mismatch = torch.cat(log.mismatches)
        low, middle, high = (float(v) for v in np.quantile(ratios.cpu().numpy(), (0.01, 0.5, 0.99)))
        members = [m for g in groups for m in g.members]
        count = len(ratios)
        return UpdateStats(
            learning_rate=rate,
            optimizer_steps=steps,
            loss=sum(float(t.loss.detach()) for t in log.found) / steps,
            policy_loss=sum(float(t.policy) for t in log.found) / steps,
            kl_loss=sum(float(t.kl) for t in log.found) / steps,
            entropy=log.entropy_sum / count,
            ratio_p01=low,
            ratio_p50=middle,
            ratio_p99=high,
            mismatch_mean=float(mismatch.mean()),
            mismatch_max=float(mismatch.max()),
            clip_low_fraction=sum(float(t.clipped_low.sum()) for t in log.found) / count,
            clip_high_fraction=sum(float(t.clipped_high.sum()) for t in log.found) / count,
            cap_fraction=sum(float(t.capped.sum()) for t in log.found) / count,
            gradient_norm=float(np.mean(log.norms)),
            scored_tokens=count,
            prompt_tokens=sum(len(m.calls[0].prefix) for m in members if m.calls),
            sequences=len(members),
            mean_reward=float(np.mean([m.reward for m in members])) if members else 0.0,
            computed_ms=round((time.perf_counter() - started) * 1000),
        )

    def save_state(self, path: Path) -> None:
        """Optimizer moments, passed trials and the update count, exactly."""
        state: dict[str, Any] = {
            "updates": self.updates,
            "optimizer": self._optimizer.state_dict(),
            "passed": self._passed.state(),
        }
        torch.save(state, path)

    def load_state(self, path: Path) -> None:
        """Inverse of `save_state`. Raises OSError, or ValueError for a state of another model."""
        try:
            state = torch.load(path, weights_only=True)
            self._optimizer.load_state_dict(state["optimizer"])
            self._passed.restore(state["passed"])
            self.updates = int(state["updates"])
        except OSError:
            raise
        except Exception as error:  # torch answers a torn file with almost any exception
            raise ValueError(f"{path}: no optimizer state for this model: {error}") from error


def _tokens(group: TrainGroup) -> int:
    """Tokens that a group costs at most: its prompt once, everything behind it for each member."""
    called = [member.calls for member in group.members if member.calls]
    if not called:
        return 0
    prompt = len(called[0][0].prefix)
    return prompt + sum(max(0, len(c[-1].prefix) + len(c[-1].sampled) - prompt) for c in called)
