"""The report says what the records say, with little data too, and never claims what was not measured."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.group import GroupAdmission
from schemas.policy import EvaluationResult, TrainingUpdate
from schemas.record import Record
from schemas.verification import VerificationVerdict
from services.monitor import measures
from services.monitor.paired import paired_difference
from services.monitor.report import write_report
from services.monitor.report_text import Facts, page
from services.runtime.settings import RunSettings
from tests.services.monitor.synthetic import Run

FULL = Run(updates=12).build()


COLD_START = {"steps": 1000, "curve": [[25 * i, i / 40] for i in range(1, 41)], "reason": None, "eval": {"train": 0.31}}
WATCHED = {"rollout.requested", "rollout.completed", "verification.verdict", "group.closed", "group.admission"}


def renamed(record: Any, run_id: str) -> Any:
    """The record as one of another run."""
    names = {n: v.replace("demo/", f"{run_id}/") for n in ("group_id", "trial_id") if (v := getattr(record, n, None))}
    if hasattr(record, "member_trials"):
        names["member_trials"] = tuple(t.replace("demo/", f"{run_id}/") for t in record.member_trials)
    return replace(record, run_id=run_id, **names)


def configured(updates: int = 12) -> RunSettings:
    base = RunSettings(run_id="demo", seed=3)
    return base.model_copy(update={"dispatch": base.dispatch.model_copy(update={"updates": updates})})


def page_of(records: list[Record], folder: Path, **extra: Any) -> str:
    """The page alone: most tests need no figure, and figures take most of the time."""
    return page(Facts.of(records, folder, configured(), extra), {}, [])


def written(records: list[Record], folder: Path, **extra: Any) -> str:
    return write_report(records, folder, configured(), extra).read_text()


def test_the_result_comes_first_and_is_the_records_own(tmp_path: Path) -> None:
    """The first line that a person reads is the result, with interval, and equals the evaluation records."""
    text = page_of(FULL, tmp_path, finished=True)
    result = next(line for line in text.splitlines() if line.startswith("**"))
    assert text.splitlines().index(result) == 2
    before, after = (
        next(
            r for r in FULL if isinstance(r, EvaluationResult) and (r.policy_version, r.task_set) == (v, "heldout_bugs")
        )
        for v in (0, 12)
    )
    assert f"held-out bugs {before.pass_at_1:.3f} → {after.pass_at_1:.3f}" in result
    assert "training tasks" in result
    assert "held-out families" in result
    assert result.count("95 % [") == 3
    assert "Finished: 12 of 12 updates" in text


def test_every_section_and_figure_is_there(tmp_path: Path) -> None:
    """The issue's list: plots, ages, exclusions, lengths, entropy, cold start apart, audit, configuration, going on."""
    text = written(FULL, tmp_path, coldstart=COLD_START)
    for name in ("pass_rate", "held_out", "optimizer", "rollouts", "flow"):
        assert f"(plots/{name}.png)" in text
        assert (tmp_path / "plots" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    parts = (
        "## Cold start", "| steps | 1000 |", "25: 0.025, 100: 0.1", "1000: 1 |", "| reason | not measured |",
        "| eval: train | 0.31 |", "## Audit", "balanced", "tool wait", "zero_contrast", "stale", "unresolved",
        "| pass | ", "entropy", "trainer waits", "[trainer]", f"rollstream run --run-dir {tmp_path}", "Seeds: run 3",
        "`dispatch.updates=12`", "kafka-python 3.", "policy.gate.v1", "asynchronous (max_lag 2)",
    )  # fmt: skip
    for part in parts:
        assert part in text, part
    assert "not measured |" not in text.split("## Cold start")[0], "everything was measured"
    # A resumed run writes again: a figure of the first report must not stand for the second.
    assert "plots/optimizer.png" not in written(FULL[:40], tmp_path)
    assert not (tmp_path / "plots" / "optimizer.png").exists()


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.05, 0.3])
def test_a_run_stopped_anywhere_has_an_honest_report(tmp_path: Path, share: float) -> None:
    """Any beginning of the records gives a page; what is missing is called not measured, never 0."""
    text = written(FULL[: int(len(FULL) * share)], tmp_path, finished=False)
    assert "Stopped before its end" in text
    if share == 0.0:
        assert "**No result: no evaluation was completed.**" in text
        assert "Where the time went: not measured" in text
        assert "Updates: not measured" in text
        assert not list((tmp_path / "plots").iterdir())
    else:
        assert re.search(r"training tasks 0\.\d{3} before, after not measured", text)
    assert not re.search(r"\bnan\b", text)


def test_redelivered_records_change_no_number(tmp_path: Path) -> None:
    """Delivery is at least once: a record read twice counts once. Only the audit notes the repetition."""
    once, twice = page_of(FULL, tmp_path), page_of([*FULL, *FULL], tmp_path)
    assert once.split("## Audit")[0] == twice.split("## Audit")[0]
    assert "repeated records" in twice


def test_an_unbalanced_audit_is_said_at_the_top(tmp_path: Path) -> None:
    """A loss must not hide on the last page."""
    twice = [replace(r, update_id="demo/other") for r in FULL if isinstance(r, TrainingUpdate)][:1]
    text = page_of([*FULL, *twice], tmp_path)
    assert "**the audit does not balance**" in text.split("## Cold start")[0]
    assert "NOT BALANCED" in text


def test_a_figure_that_fails_costs_the_figure_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong while drawing, the numbers are written and the fault is named."""
    from services.monitor import plots

    def broken(*_: object) -> None:
        raise RuntimeError("no canvas")

    monkeypatch.setattr(plots, "flow", broken)
    text = written(FULL[:300], tmp_path)
    assert "figure flow: RuntimeError: no canvas" in text
    assert "## Audit" in text


def test_it_is_quick_enough_for_a_full_quickstart(tmp_path: Path) -> None:
    """A run of some 5,000 trials is measured within seconds (under 1 on an idle core)."""
    records = [
        r for r in Run(updates=60, groups_per_update=12, group_size=8).build() if "invocation" not in r.TYPE.name
    ]
    started = time.process_time()
    written(records, tmp_path)
    assert time.process_time() - started < 20


def test_pass_rate_by_version_counts_each_trial_once() -> None:
    """Pending and unknown verdicts are no rewards; of two attempts the last counts."""
    judged = [r for r in FULL if isinstance(r, VerificationVerdict) and r.verdict == "pass"][:3]
    pending = replace(judged[0], verdict="pending", reward=None)
    again = replace(judged[1], attempt=1, verdict="fail", reward=0.0)
    unknown = replace(judged[2], attempt=1, verdict="unknown", reward=None)
    curve = measures.pass_rate_by_version(measures.verdicts_of([*judged, pending, again, unknown], "train"))
    assert curve == [(judged[0].policy_version, 1, 2)]


def test_the_trainers_exclusion_stands_over_the_admission() -> None:
    """A group that became stale in the queue is excluded once, not counted as admitted too."""
    admitted = next(r for r in FULL if isinstance(r, GroupAdmission) and r.decision == "admitted")
    late = replace(admitted, stage="trainer", decision="excluded", reason="stale")
    standing = measures.admissions_of([late, admitted])
    assert [a.stage for a in standing] == ["trainer"]
    assert measures.exclusions(standing) == {"stale": (1, len(late.member_trials))}
    assert not measures.member_lags(standing)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=12))
def test_covered_time_is_that_of_a_tick_by_tick_count(pairs: list[tuple[int, int]]) -> None:
    """Overlap counts once, gaps not at all."""
    ticks = {t for a, b in pairs for t in range(a, b)}
    assert measures.covered(pairs) == pytest.approx(len(ticks) / 1000)


def test_smoothing_pools_trials_not_rates() -> None:
    """A version with two trials must not weigh as much as one with a hundred."""
    assert measures.smoothed([(0, 2, 2), (1, 0, 98)], 3) == pytest.approx([0.02, 0.02])


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([f"t{i}" for i in range(30)]),
        st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])),
        min_size=1,
    )
)
def test_the_paired_difference_is_antisymmetric_and_holds_its_mean(rates: dict[str, tuple[float, float]]) -> None:
    """Swapping before and after flips the sign; the interval contains the difference; equal inputs give 0 exactly."""
    before = {t: b for t, (b, _) in rates.items()}
    after = {t: a for t, (_, a) in rates.items()}
    there, back = paired_difference(before, after, 500), paired_difference(after, before, 500)
    assert there is not None
    assert back is not None
    assert there.difference == pytest.approx(-back.difference)
    assert there.low - 1e-9 <= there.difference <= there.high + 1e-9
    same = paired_difference(before, before, 500)
    assert same is not None
    assert (same.low, same.difference, same.high) == (0, 0, 0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """95 % intervals of 200 simulated pairs of measurements (130 tasks, 2 samples) hold the true difference."""
    rng = np.random.default_rng(1)
    held = 0
    for trial in range(200):
        p = rng.uniform(0, 0.6, 130)
        truth = 0.15
        before = dict(zip(map(str, range(130)), rng.binomial(2, p) / 2, strict=True))
        after = dict(zip(map(str, range(130)), rng.binomial(2, p + truth) / 2, strict=True))
        paired = paired_difference(before, after, 1000, seed=trial)
        assert paired is not None
        held += paired.low <= truth <= paired.high
    assert 180 <= held <= 199


def test_tasks_that_were_measured_once_are_left_out() -> None:
    """Pairs only: a task missing on one side cannot be compared."""
    paired = paired_difference({"a": 0.0, "b": 1.0}, {"b": 1.0, "c": 1.0})
    assert paired is not None
    assert (paired.tasks, paired.difference) == (1, 0.0)
    assert paired_difference({"a": 0.0}, {"b": 0.0}) is None
