"""The cold start: supervised training on repair traces until a measured pass estimate, so that RL has room to work."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from services.agent import model as models
from services.agent.harness import Harness, Limits
from services.runtime.settings import RunSettings
from services.tasks.taskset import TRAIN, TaskSet
from services.trainer.coldstart_recipe import (
    AVERAGING,
    BETAS,
    CALIBRATION,
    CHUNK,
    MEASURED_TASKS,
    REPORT_FILE,
    STATE_FILE,
    TRIES,
    WARMUP_STEPS,
    WRONG_SHARE,
    digest,
)
from services.trainer.packing import ScoredCall, TrainGroup, TrainMember, pack
from services.trainer.scoring import Scorer
from services.trainer.traces import Repair, epochs, reference_action, repairs, trace

Progress = Callable[[dict[str, float]], None]


@dataclass(frozen=True)
class ColdStartReport:
    """What a cold start did. `estimate` is the pass rate measured when it stopped; `reason` says why it did."""

    digest: str
    steps: int
    wall_s: float
    traces: int
    tokens: int
    estimate: float
    reason: str
    curve: tuple[tuple[int, float], ...]


def estimate(model: torch.nn.Module, harness: Harness, found: list[Repair]) -> float:
    """Expected pass rate of a trial with a few tries, from the exact probability of the reference edit in each task.

    One teacher-forced pass, nothing is sampled or run: mean over tasks of 1 − (1 − p)^tries, times a calibration that
    stands for later tries being less independent than that, and for right edits that differ from the reference.
    """
    scorer = Scorer(model)
    groups = []
    for repair in found:
        ids = reference_action(harness, repair)
        call = ScoredCall(harness.prompt_ids(repair.fixture), ids, np.zeros(len(ids), np.float32))
        groups.append(TrainGroup(repair.fixture.task_id, (TrainMember("reference", (call,), 0.0, 0.0),)))
    groups.sort(key=lambda group: len(group.members[0].calls[0].prefix))
    masses: list[float] = []
    with torch.no_grad():
        for start in range(0, len(groups), 64):
            packed = pack(groups[start : start + 64])
            each = np.split(scorer.score(packed)[0].cpu().numpy(), np.cumsum(packed.lengths)[:-1])
            masses += [float(np.exp(logprobs.sum())) for logprobs in each]
    return CALIBRATION * float(np.mean([1 - (1 - mass) ** TRIES for mass in masses])) if masses else 0.0


class _Supervised:
    """Model, its average, optimizer and the endless stream of batches; deterministic in the seed."""

    def __init__(self, model: torch.nn.Module, harness: Harness, settings: RunSettings, tasks: TaskSet) -> None:
        self.model = model.train()
        self.average = copy.deepcopy(model).eval()
        self.harness = harness
        self.steps = self.traces = self.tokens = 0
        self._settings = settings.coldstart
        self._seed = settings.seed
        self.repairs = repairs(tasks)
        rng = Random(f"measure/{settings.seed}")
        self.measured = rng.sample(self.repairs, min(MEASURED_TASKS, len(self.repairs)))
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.coldstart.learning_rate, betas=BETAS, weight_decay=0.0
        )
        self._scorer = Scorer(model)

    def chunk(self, number: int) -> Iterator[list[TrainGroup]]:
        """`CHUNK` batches of groups of like prompt length, in random order."""
        rng = Random(f"traces/{self._seed}/{number}")
        wanted = CHUNK * self._settings.batch
        drawn: list[Repair] = []
        while len(drawn) < wanted:
            drawn += epochs(self.repairs, rng)
        groups = [trace(self.harness, repair, rng, WRONG_SHARE) for repair in drawn[:wanted]]
        groups.sort(key=lambda group: len(group.members[0].calls[0].prefix))
        batches = [groups[start : start + self._settings.batch] for start in range(0, wanted, self._settings.batch)]
        rng.shuffle(batches)
        return iter(batches)

    def step(self, batch: list[TrainGroup]) -> float:
        """One optimizer step on the mean token likelihood; the loss in nats."""
        packed = pack(batch)
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.learning_rate * min(1.0, (self.steps + 1) / WARMUP_STEPS)
        self._optimizer.zero_grad(set_to_none=True)
        loss = -self._scorer.score(packed)[0].mean()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        pace = min(AVERAGING, (self.steps + 1) / (self.steps + 10))
        with torch.no_grad():
            for kept, new in zip(self.average.parameters(), self.model.parameters(), strict=True):
                kept.lerp_(new, 1 - pace)
        self.steps += 1
        self.traces += len(packed.lengths)
        self.tokens += packed.computed_tokens
        return float(loss.detach())

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "counts": [self.steps, self.traces, self.tokens],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.steps, self.traces, self.tokens = state["counts"]


def new_policy(settings: RunSettings, tasks: TaskSet) -> tuple[torch.nn.Module, Harness]:
    """The model and harness before any training: from `settings.model.base`, or made from the settings' shape."""
    if settings.model.base:
        folder = Path(settings.model.base)
        return models.load(folder, settings.trainer.device), Harness.load(folder)
    shape = settings.model
    harness = Harness.train(tasks.split(TRAIN), shape.vocabulary, Limits(context_tokens=shape.context))
    made = models.ModelShape(
        shape.hidden,
        shape.layers,
        shape.heads,
        shape.kv_heads,
        shape.feed_forward,
        harness.tokenizer.size,
        shape.context,
    )
    return models.build(made, settings.seed).to(settings.trainer.device), harness


def coldstart(settings: RunSettings, tasks: TaskSet, out: Path, progress: Progress | None = None) -> ColdStartReport:
    """Train until the estimate reaches the target (or a limit), save policy folder, training state and report to `out`.

    `progress` gets step, wall seconds, loss and estimate once a chunk. Deterministic by seed while no wall limit cuts.
    """
    torch.set_num_threads(settings.coldstart.threads)
    model, harness = new_policy(settings, tasks)
    training = _Supervised(model, harness, settings, tasks)

    def target_reached(value: float) -> bool:
        return value >= settings.coldstart.target_pass_rate

    limits = (settings.coldstart.max_steps, settings.coldstart.max_wall_s)
    return _train(training, digest(settings, tasks), limits, target_reached, out, progress)


def continue_supervised(
    settings: RunSettings, tasks: TaskSet, start: Path, wall_s: float, out: Path, progress: Progress | None = None
) -> ColdStartReport:
    """The control of an RL run: `wall_s` more seconds of the same supervised training from the cold start in `start`.

    Raises OSError when `start` holds no training state.
    """
    torch.set_num_threads(settings.coldstart.threads)
    training = _Supervised(models.load(start), Harness.load(start), settings, tasks)
    training.restore(torch.load(start / STATE_FILE, weights_only=True))
    name = f"{digest(settings, tasks)}+{wall_s:g}s"
    return _train(training, name, (1 << 30, wall_s), lambda _: False, out, progress)


def _train(
    training: _Supervised,
    name: str,
    limits: tuple[int, float],
    enough: Callable[[float], bool],
    out: Path,
    progress: Progress | None,
) -> ColdStartReport:
    started = time.monotonic()
    max_steps, max_wall_s = limits
    curve: list[tuple[int, float]] = []
    reason = "" if max_steps else "max_steps"
    if reason:
        curve.append((training.steps, round(estimate(training.average, training.harness, training.measured), 4)))
    while not reason:
        loss = 0.0
        for batch in training.chunk(training.steps // CHUNK):
            loss = training.step(batch)
        value = estimate(training.average, training.harness, training.measured)
        curve.append((training.steps, round(value, 4)))
        wall_s = time.monotonic() - started
        if progress:
            progress({"step": training.steps, "wall_s": wall_s, "loss": loss, "estimate": value})
        if enough(value):
            reason = "target"
        elif training.steps >= max_steps:
            reason = "max_steps"
        elif wall_s >= max_wall_s:
            reason = "max_wall_s"
    models.save(out, training.average, training.harness)
    torch.save(training.state(), out / STATE_FILE)
    report = ColdStartReport(
        name,
        training.steps,
        round(time.monotonic() - started, 3),
        training.traces,
        training.tokens,
        curve[-1][1],
        reason,
        tuple(curve),
    )
    (out / REPORT_FILE).write_text(json.dumps(asdict(report), indent=1))
    return report
