"""Protects: the cold start learns from training repairs only, stops by a measured quantity, and repeats by seed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from services.agent import model as models
from services.agent.harness import Harness
from services.runtime import settings as runtime_settings
from services.runtime.settings import RunSettings
from services.tasks.build import build_catalogue
from services.tasks.taskset import TRAIN, TaskSet
from services.trainer.coldstart import STATE_FILE, coldstart, continue_supervised, digest, estimate, new_policy
from services.trainer.packing import pieces_of
from services.trainer.traces import reference_action, repairs, trace


@pytest.fixture(scope="module")
def tasks() -> TaskSet:
    return build_catalogue(0, bugs_per_problem=4)


def settings(**coldstart_values: float) -> RunSettings:
    return runtime_settings.load(
        None,
        model={"hidden": 32, "layers": 2, "feed_forward": 48},
        coldstart={"max_steps": 8, "batch": 4, "threads": 1, "target_pass_rate": 0.9, **coldstart_values},
    )


def test_traces_hold_only_training_repairs_and_score_only_right_actions(tasks: TaskSet) -> None:
    _, harness = new_policy(settings(), tasks)
    found = repairs(tasks)
    assert [r.fixture.task_id for r in found] == list(tasks.splits[TRAIN])
    rng, recoveries = Random(0), 0
    for repair in found:
        group = trace(harness, repair, rng, wrong_share=1.0)
        for member in group.members:
            (piece,) = pieces_of(member)
            wanted = np.concatenate([reference_action(harness, repair), harness.action_ids("submit")])
            assert np.array_equal(piece.ids[piece.scored], wanted)
            recoveries += member.trial_id == "recovery"
            text = harness.tokenizer.decode(piece.ids)
            assert (text.count("edit") > 1) == (member.trial_id == "recovery")
    assert recoveries > len(found) / 2


def test_the_same_seed_gives_the_same_weights_and_a_report(tasks: TaskSet, tmp_path: Path) -> None:
    seen: list[dict[str, float]] = []
    first = coldstart(settings(), tasks, tmp_path / "a", seen.append)
    again = coldstart(settings(), tasks, tmp_path / "b")
    assert (first.steps, first.reason, first.curve) == (8, "max_steps", again.curve)
    assert first.traces >= 32
    assert [s["step"] for s in seen] == [8]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]
    assert Harness.load(tmp_path / "a").tokenizer.digest == Harness.load(tmp_path / "b").tokenizer.digest


def test_it_stops_when_the_estimate_reaches_the_target(tasks: TaskSet, tmp_path: Path) -> None:
    report = coldstart(settings(target_pass_rate=1e-12, max_steps=100), tasks, tmp_path)
    assert report.reason == "target"
    assert report.steps < 100
    assert len(report.curve) == report.steps // 8


def test_the_estimate_is_a_probability_that_training_raises(tasks: TaskSet, tmp_path: Path) -> None:
    model, harness = new_policy(settings(), tasks)
    found = repairs(tasks)[:24]
    before = estimate(model, harness, found)
    coldstart(settings(max_steps=24, learning_rate=1e-2), tasks, tmp_path)
    after = estimate(models.load(tmp_path), harness, found)
    assert 0 <= before < after < 1


def test_the_digest_covers_what_decides_the_result(tasks: TaskSet) -> None:
    base = digest(settings(), tasks)
    assert digest(settings(max_wall_s=5.0), tasks) == base
    assert digest(settings(target_pass_rate=0.5), tasks) != base
    assert digest(settings(), build_catalogue(0, bugs_per_problem=3)) != base


def test_the_control_goes_on_from_the_saved_state(tasks: TaskSet, tmp_path: Path) -> None:
    coldstart(settings(), tasks, tmp_path / "a")
    report = continue_supervised(settings(), tasks, tmp_path / "a", 0.01, tmp_path / "b")
    assert (report.steps, report.reason) == (16, "max_wall_s")
    straight = coldstart(settings(max_steps=16), tasks, tmp_path / "c")
    assert straight.curve[-1] == report.curve[-1]
    (tmp_path / "a" / STATE_FILE).unlink()
    with pytest.raises(OSError, match=STATE_FILE):
        continue_supervised(settings(), tasks, tmp_path / "a", 0.01, tmp_path / "b")
