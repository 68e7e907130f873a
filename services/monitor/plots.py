"""The report's figures, drawn from plain numbers; each returns its file, or None where nothing was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")  # files only: a run has no display, and must not look for one

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from services.monitor import measures
from services.monitor.measures import AGE_STAGES, TaskSetResult, Timing, smoothed
from services.runtime.screen import label as text_of

if TYPE_CHECKING:
    from schemas.policy import TrainingUpdate

BLUE, ORANGE, GREEN, RED, GREY, PURPLE = "#2b6cb0", "#dd6b20", "#2f855a", "#c53030", "#718096", "#6b46c1"
SET_COLOURS = {"train": BLUE, "heldout_bugs": ORANGE, "heldout_families": PURPLE}
OUTCOME_COLOURS = {"pass": GREEN, "fail": RED, "unknown": GREY}
DPI = 110
_STYLE = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e2e8f0",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
}
SHOWN = 40
"""Bars, task sets and lags in one figure, at most: records say how many there are."""
Curve = Sequence[tuple[int, int, int]]


def _figure(path: Path, width: float, height: float, columns: int, draw: Callable[..., None]) -> Path:
    """Let `draw` fill `columns` axes and write the file; the figure is closed whatever happens."""
    with matplotlib.rc_context(_STYLE):
        figure, axes = pyplot.subplots(1, columns, figsize=(width, height), layout="constrained")
        try:
            draw(*(axes if columns > 1 else (axes,)))
            figure.savefig(path, dpi=DPI)
        finally:
            pyplot.close(figure)
    return path


def _legend_below(axes: Any) -> None:
    """A legend under the axes, where no curve can run through it."""
    axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.2), ncols=3, borderaxespad=0, columnspacing=1.2)


def set_name(task_set: str) -> str:
    """A task set's name as a figure takes it."""
    return text_of(measures.set_name(task_set))


def _whole(axis: Any) -> None:
    axis.set_major_locator(MaxNLocator(integer=True))


def pass_rate(path: Path, curve: Curve, evaluations: Sequence[TaskSetResult]) -> Path | None:
    """Training pass rate by the version that sampled, smoothed, with the fixed-task measurements as points."""
    if not curve:
        return None

    def draw(axes: Any) -> None:
        versions = [v for v, _, _ in curve]
        rates = [p / n for _, p, n in curve]
        largest = max(n for _, _, n in curve)
        sizes = [12 + 40 * n / largest for _, _, n in curve]
        axes.scatter(versions, rates, s=sizes, color=GREY, alpha=0.55, linewidths=0, label="rollouts of one version")
        window = max(1, len(curve) // 10) | 1  # odd: centred on its version
        pooled = f"pooled over {window} versions" if window > 1 else "from version to version"
        axes.plot(versions, smoothed(curve, window), color=BLUE, lw=2.2, label=pooled)
        for result in evaluations[:SHOWN]:
            colour = SET_COLOURS.get(result.task_set, GREEN)
            xs, ys = [result.before_version], [result.before]
            if result.after is not None and result.after_version is not None:
                xs, ys = [*xs, result.after_version], [*ys, result.after]
            label = f"fixed tasks: {set_name(result.task_set)}"
            axes.plot(xs, ys, "D:", lw=1, ms=8, mec="white", color=colour, label=label, zorder=5, clip_on=False)
        axes.set(title="Pass rate on training tasks, by update", xlabel="policy version (update)", ylabel="pass rate")
        top = max([*rates, *(r.before for r in evaluations), *(r.after or 0 for r in evaluations)])
        axes.set_ylim(0, min(1.0, max(0.2, 1.15 * top)))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        _whole(axes.xaxis)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))

    return _figure(path, 9.5, 4.0, 1, draw)


def held_out(path: Path, evaluations: Sequence[TaskSetResult]) -> Path | None:
    """pass@1 before and after per task set, and the paired differences with their intervals."""
    both = [r for r in evaluations if r.after is not None and r.paired is not None][:SHOWN]
    if not both:
        return None

    def draw(left: Any, right: Any) -> None:
        names = [f"{set_name(r.task_set)}\n({r.tasks} tasks)" for r in both]
        places = range(len(both))
        before = left.bar([x - 0.19 for x in places], [r.before for r in both], 0.36, color=GREY, label="before")
        after = left.bar([x + 0.19 for x in places], [r.after or 0.0 for r in both], 0.36, color=BLUE, label="after")
        for bars in (before, after):
            left.bar_label(bars, fmt="{:.3f}", padding=2, fontsize=9)
        left.set_xticks(list(places), names)
        left.set(title="pass@1 on fixed tasks", ylabel="pass rate")
        left.set_ylim(0, min(1.1, 1.25 * max(0.1, *(max(r.before, r.after or 0.0) for r in both))))
        left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        left.grid(axis="x", visible=False)
        left.legend(loc="upper right")
        for y, r in enumerate(both):
            p = r.paired
            assert p is not None
            colour = GREEN if p.low > 0 else RED if p.high < 0 else GREY
            right.plot([p.low, p.high], [y, y], color=colour, lw=2.5, solid_capstyle="butt")
            right.plot(p.difference, y, "o", color=colour, ms=8)
            text = f"{p.difference:+.3f} [{p.low:+.3f}, {p.high:+.3f}]"
            right.annotate(text, (p.difference, y), xytext=(0, 9), textcoords="offset points", ha="center", fontsize=9)
        right.axvline(0, color="black", lw=0.8)
        right.set_yticks(list(places), [set_name(r.task_set) for r in both])
        right.set_ylim(len(both) - 0.4, -0.6)
        right.set(title="after − before, paired by task, 95 % interval", xlabel="difference of pass@1")
        right.margins(x=0.25)
        right.grid(axis="y", visible=False)

    return _figure(path, 10.5, 3.6, 2, draw)


def optimizer(path: Path, updates: Sequence[TrainingUpdate], min_entropy: float | None) -> Path | None:
    """Entropy, importance-ratio quantiles and mismatch with the behaviour policy, by update."""
    if not updates:
        return None

    def draw(entropy: Any, ratio: Any, mismatch: Any) -> None:
        x = [u.policy_version for u in updates]
        mark = "o" if len(x) < 30 else ""
        entropy.plot(x, [u.entropy for u in updates], color=BLUE, marker=mark, ms=3)
        if min_entropy is not None:
            entropy.axhline(min_entropy, color=RED, ls="--", lw=1, label="gate's floor")
            _legend_below(entropy)
        entropy.set(title="Entropy", ylabel="nats per token")
        entropy.set_ylim(bottom=0)
        low, high = [u.ratio_p01 for u in updates], [u.ratio_p99 for u in updates]
        ratio.fill_between(x, low, high, color=BLUE, alpha=0.25, label="1 to 99 %")
        ratio.plot(x, [u.ratio_p50 for u in updates], color=BLUE, marker=mark, ms=3, label="median")
        ratio.axhline(1 - updates[-1].clip_low, color=RED, ls="--", lw=1, label="clip bounds")
        ratio.axhline(1 + updates[-1].clip_high, color=RED, ls="--", lw=1)
        ratio.set(title="Ratio to the start of the update", ylabel="π / π_prox")
        _legend_below(ratio)
        mismatch.plot(x, [u.mismatch_mean for u in updates], color=ORANGE, marker=mark, ms=3, label="mean")
        mismatch.plot(x, [u.mismatch_max for u in updates], color=GREY, marker=mark, ms=3, label="largest")
        mismatch.set_yscale("symlog", linthresh=1e-3)
        mismatch.set_ylim(bottom=0)
        mismatch.set(title="Mismatch with the behaviour policy", ylabel="|log π_prox − log μ| (nats)")
        _legend_below(mismatch)
        for axes in (entropy, ratio, mismatch):
            axes.set_xlabel("update")
            _whole(axes.xaxis)

    return _figure(path, 12.5, 3.5, 3, draw)


def flow(
    path: Path,
    ages: dict[str, list[float]],
    exclusions: dict[str, tuple[int, int]],
    lags: dict[int, int],
    bound: int | None,
) -> Path | None:
    """Age of groups by stage, exclusions by reason, and lag of admitted members."""
    if not any(ages.values()):
        return None

    def draw(age: Any, excluded: Any, lag: Any) -> None:
        stages = [s for s in AGE_STAGES if ages.get(s)]
        floor = 1e-3  # a log axis has no zero: less than a millisecond counts as one
        data = [[max(floor, value) for value in ages[s]] for s in stages]
        boxes = age.boxplot(
            data, orientation="horizontal", whis=(5, 95), showfliers=False, patch_artist=True, widths=0.6
        )
        for box in boxes["boxes"]:
            box.set(facecolor="#bee3f8", edgecolor=BLUE)
        for median in boxes["medians"]:
            median.set(color=BLUE, lw=2)
        age.set_yticks(range(1, len(stages) + 1), [s.replace("_", " ") for s in stages])
        age.invert_yaxis()
        age.set_xscale("log")
        age.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        age.set(title="Age of groups by stage", xlabel="seconds (box: quartiles, whiskers: 5 to 95 %)")
        reasons = list(exclusions)[:SHOWN] or ["none"]
        counts = [exclusions[r][0] if r in exclusions else 0 for r in reasons]
        bars = excluded.barh([text_of(r.replace("_", " ")) for r in reasons], counts, color=ORANGE, height=0.6)
        excluded.bar_label(bars, padding=3, fontsize=9)
        excluded.invert_yaxis()
        excluded.margins(x=0.15)
        excluded.set(title="Excluded groups by reason", xlabel="groups")
        _whole(excluded.xaxis)
        excluded.grid(axis="y", visible=False)
        if lags:
            most = dict(sorted(lags.items(), key=lambda found: -found[1])[:SHOWN])
            lag.bar(list(most), list(most.values()), color=BLUE, width=0.7)
        else:
            lag.text(0.5, 0.5, "no group was admitted", ha="center", va="center", transform=lag.transAxes)
        if bound is not None:
            lag.axvline(bound + 0.5, color=RED, ls="--", lw=1, label=f"bound {bound}")
            _legend_below(lag)
        lag.set(title="Lag of admitted trials", xlabel="versions behind the trainer", ylabel="trials")
        _whole(lag.xaxis)

    return _figure(path, 12.5, 3.4, 3, draw)


def rollouts(path: Path, lengths: dict[str, list[int]], timing: Timing | None) -> Path | None:
    """Sampled tokens per trial by outcome, and where the wall-clock went."""
    if not lengths and timing is None:
        return None

    def draw(length: Any, time: Any) -> None:
        _lengths(length, lengths)
        if timing is None:
            time.text(0.5, 0.5, "not measured", ha="center", va="center", transform=time.transAxes)
        else:
            names = [*(s.name for s in timing.stages), "trainer waits", "nothing under way"]
            values = [*(s.busy_s for s in timing.stages), timing.waited_s, timing.idle_s]
            bars = time.barh(names, values, color=[BLUE, GREEN, PURPLE, GREY, GREY], height=0.6)
            shares = [f"{v:.0f} s ({v / timing.wall_s:.0%})" if timing.wall_s > 0 else f"{v:.0f} s" for v in values]
            time.bar_label(bars, shares, padding=3, fontsize=9)
            time.invert_yaxis()
            time.margins(x=0.25)
        time.set(title="Where the time went (stages overlap)", xlabel="seconds with at least one under way")
        time.grid(axis="y", visible=False)

    return _figure(path, 10.5, 3.4, 2, draw)


def _lengths(axes: Any, lengths: dict[str, list[int]]) -> None:
    longest = max((max(values) for values in lengths.values() if values), default=1)
    width = max(1, -(-longest // 40))
    edges = list(range(0, longest + 2 * width, width))
    for outcome, values in lengths.items():
        label = f"{outcome} ({len(values):,}, median {sorted(values)[len(values) // 2]})"
        axes.hist(values, bins=edges, color=OUTCOME_COLOURS[outcome], alpha=0.5, label=label)
    axes.set(title="Length of trials by outcome", xlabel="sampled tokens per trial", ylabel="trials")
    if lengths:
        axes.legend()
