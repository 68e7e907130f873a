"""The panel of a running run: stages, learning, losses, evaluation; drawn from the state, which knows nothing of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from services.monitor.facts import ratio
from services.monitor.progress import RATE_S, STAGES, duration, percent
from services.runtime.screen import cell

if TYPE_CHECKING:
    from services.monitor.progress import Progress
    from services.runtime.settings import RunSettings

_BARS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 40
_SETS = 8
"""Task sets of one evaluation that are shown."""


def panel(state: Progress, settings: RunSettings, now: float) -> Panel:
    """A panel of about ten lines. `now` is Unix seconds."""
    body = Table.grid(padding=(0, 1))
    body.add_column(style="bold", no_wrap=True)
    body.add_column()
    if state.trouble:
        body.add_row("trouble", Text(state.trouble, style="bold red"))
    body.add_row("progress", _progress(state, settings))
    body.add_row("stages", _stages(state))
    body.add_row("pass rate", _learning(state))
    body.add_row("lag", _lag(state, settings))
    body.add_row("lost", _losses(state))
    body.add_row("update", _last_update(state))
    if state.evaluations:
        body.add_row("evaluated", _evaluations(state))
    title = f"run {settings.run_id} · {state.phase()} · {duration(now - state.began)} so far"
    return Panel(body, title=Text(title), title_align="left", border_style="cyan", padding=(0, 1))


def _progress(state: Progress, settings: RunSettings) -> Text:
    total = settings.dispatch.updates
    filled = 0 if total == 0 else round(30 * min(1.0, state.updates / total))
    bar = "━" * filled + "╌" * (30 - filled)
    version = "no policy yet" if state.version is None else f"policy v{state.version}"
    left = (
        f"about {duration(state.seconds_left())} left" if state.seconds_left() is not None else "time left unknown yet"
    )
    text = Text(f"{bar} update {state.updates} of {total} · {version} · {left}")
    text.stylize("green", 0, filled)
    return text


def _stages(state: Progress) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=False)
    table.add_column("", style="dim")
    for stage in STAGES:
        table.add_column(stage if stage in STAGES[:3] else f"{stage} groups", justify="right")
    table.add_row(f"per s ({RATE_S:.0f} s)", *(f"{state.rate(stage):.1f}" for stage in STAGES))
    table.add_row("in all", *(f"{state.totals[stage]:,}" for stage in STAGES))
    return table


def _learning(state: Progress) -> str:
    first = "" if state.first_pass_rate is None else f" (first trials {ratio(state.first_pass_rate)})"
    curve = sparkline(state.curve(), _CURVE_WIDTH)
    return f"{ratio(state.pass_rate)}{first}  {curve}  contrast {percent(state.contrast)} of recent groups"


def _lag(state: Progress, settings: RunSettings) -> str:
    lag = state.lag
    shown = "-" if lag is None else f"mean {lag[0]:.2f}, largest {lag[1]}"
    speed = f"in flight {state.in_flight} · {state.token_rate():,.0f} tokens/s"
    return f"{shown}, bound {settings.admission.max_lag} · {speed}"


def _losses(state: Progress) -> str:
    return f"unresolved {state.unresolved} · excluded groups: {state.excluded_text()}"


def _last_update(state: Progress) -> str:
    u = state.last_update
    if u is None:
        return f"none yet{f' · gate: {state.gate}' if state.gate else ''}"
    clips = f"clipped {u.clip_low_fraction + u.clip_high_fraction:.1%}"
    sizes = f"reward {u.mean_reward:.2f} · entropy {u.entropy:.3f} · |g| {u.gradient_norm:.2f} · {clips}"
    return f"{sizes} · waited {u.waited_ms / 1000:.1f} s, computed {u.computed_ms / 1000:.1f} s · gate: {state.gate}"


def _evaluations(state: Progress) -> str:
    shown = []
    for version in sorted(state.evaluations):
        sets = ", ".join(
            f"{cell(name, 40)} {value:.3f}" for name, value in _in_order(state.evaluations[version])[:_SETS]
        )
        shown.append(f"v{version}: {sets}")
    return "\n".join(shown[:1] + shown[-1:] if len(shown) > 1 else shown)


def _in_order(sets: dict[str, float]) -> list[tuple[str, float]]:
    """Training tasks first, then held-out ones by name."""
    return sorted(sets.items(), key=lambda item: (item[0] != "train", item[0]))


def sparkline(values: Sequence[float], width: int) -> str:
    """Block characters for values in [0, 1], averaged into at most `width` columns, scaled to their own range."""
    if not values:
        return ""
    columns = min(width, len(values))
    edges = [round(i * len(values) / columns) for i in range(columns + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((m - low) * scale)] for m in means)
