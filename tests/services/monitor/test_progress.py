"""The live display counts what the records say, whatever their order, and never needs more than they give."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace
from typing import Any

import pytest

from services.monitor.progress import RATE_S, Progress
from services.monitor.progress_panel import sparkline
from services.runtime.settings import RunSettings
from tests.services.monitor.synthetic import START_MS, Run, time_of


class Clock:
    """A clock that tests move by hand (Unix seconds)."""

    def __init__(self) -> None:
        self.now = START_MS / 1000

    def __call__(self) -> float:
        return self.now


def fed(updates: int = 6, planned: int = 10) -> tuple[Progress, Clock, list[Any]]:
    settings = RunSettings(run_id="demo")
    settings = settings.model_copy(update={"dispatch": settings.dispatch.model_copy(update={"updates": planned})})
    clock = Clock()
    progress = Progress(settings, clock)
    records = Run(updates=updates).build(evaluate_after=False)
    for record in records:
        clock.now = time_of(record) / 1000
        progress.feed(record, time_of(record))
    return progress, clock, list(records)


def shown(progress: Progress, width: int = 120) -> str:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(progress.panel())
    return out.getvalue()


def test_counts_are_those_of_the_records() -> None:
    """A person trusts the numbers: they must be the records' own."""
    progress, _, records = fed()
    by = {}
    for record in records:
        by.setdefault(record.TYPE.name, []).append(record)
    assert progress.updates == 6
    assert progress.version == 6
    assert progress.totals["requested"] == len(by["rollout.requested"])
    assert progress.totals["closed"] == len(by["group.closed"])
    excluded = [a for a in by["group.admission"] if a.decision == "excluded"]
    assert sum(progress.excluded.values()) == len(excluded)
    assert progress.excluded["stale"] == sum(a.reason == "stale" for a in excluded)
    assert progress.unresolved == sum(v.verdict == "unknown" for v in by["verification.verdict"])
    assert progress.in_flight == 0
    last = [v.verdict == "pass" for v in by["verification.verdict"] if v.verdict != "unknown"][-256:]
    assert progress.pass_rate == pytest.approx(sum(last) / len(last))


def test_time_left_follows_the_updates_and_ignores_a_pause() -> None:
    """Four of ten updates are left: four average intervals; a night in which the run stood still is no interval."""
    progress, _, records = fed()
    finishes = [r.finished_ms / 1000 for r in records if r.TYPE.name == "training.update"]
    steps = [b - a for a, b in itertools.pairwise(finishes)]
    left = progress.seconds_left()
    assert left is not None
    assert 4 * min(steps) <= left <= 4 * max(steps)
    late = next(r for r in Run(updates=7).build() if r.TYPE.name == "training.update" and r.policy_version == 7)
    progress.feed(replace(late, finished_ms=late.finished_ms + 10**8), late.finished_ms + 10**8)
    after = progress.seconds_left()
    assert after is not None
    assert after == pytest.approx(left * 3 / 4)


def test_rates_cover_only_the_last_seconds() -> None:
    """A stage that stopped shows 0 after half a minute, however much it did before."""
    progress, clock, _ = fed()
    assert progress.rate("sampled") > 0
    assert progress.token_rate() > 0
    clock.now += RATE_S + 1
    assert progress.rate("sampled") == 0
    assert progress.token_rate() == 0


def test_panel_and_line_show_every_fact() -> None:
    """Both displays carry the issue's list: rates, pass rate, lag, contrast, unresolved, exclusions, time left."""
    progress, _, _ = fed()
    panel, line = shown(progress), progress.line()
    for word in ("update 6 of 10", "policy v6", "tokens/s", "contrast", "unresolved", "stale", "bound 2", "in flight"):
        assert word in panel, word
    for word in ("update 6/10", "v6", "pass 0.", "lag ", "contrast", "trials/s", "unresolved", "zero_contrast", "left"):
        assert word in line, word
    assert "\n" not in line


@pytest.mark.parametrize("width", [40, 80, 200])
def test_an_empty_run_is_shown_on_any_width(width: int) -> None:
    """Before the first record there is nothing to show, and that must show too."""
    progress = Progress(RunSettings(), Clock())
    assert "starting" in shown(progress, max(width, 60))
    assert shown(progress, width)
    assert "pass -" in progress.line()


def test_an_evaluation_under_way_says_how_far_it_is() -> None:
    """The first minute of a run is its evaluation: a silent minute looks like a hang."""
    progress, clock, records = fed(updates=1)
    now = int(clock() * 1000)
    request = next(r for r in records if r.TYPE.name == "rollout.requested")
    verdict = next(r for r in records if r.TYPE.name == "verification.verdict" and r.trial_id == request.trial_id)
    asked = {"split": "eval", "trial_id": "demo/00009999/0"}
    progress.feed(replace(request, **asked, task_set="heldout_bugs", policy_version=9), now)
    assert progress.phase() == "evaluating v9: 0 of 560 trials"
    progress.feed(replace(verdict, **asked, policy_version=8), now)  # the sampler had not swapped yet
    assert progress.phase() == "evaluating v9: 1 of 560 trials"


def test_sparkline_keeps_its_width_and_range() -> None:
    """The curve on the panel neither overflows nor divides by nothing."""
    assert sparkline([], 10) == ""
    assert sparkline([0.4, 0.4], 10) == "▁▁"
    line = sparkline([i / 99 for i in range(100)], 10)
    assert len(line) == 10
    assert (line[0], line[-1]) == ("▁", "█")
