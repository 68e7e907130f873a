"""Writes a run's report, `report.md` and its figures, from its records; what was not measured is said to be so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schemas.record import Record
    from services.monitor.report_text import Facts
    from services.runtime.settings import RunSettings

REPORT = "report.md"
PLOTS = "plots"


def write_report(
    records: Iterable[Record], run_dir: Path | str, settings: RunSettings, extra: Mapping[str, Any] | None = None
) -> Path:
    """Write RUN_DIR/report.md and RUN_DIR/plots/*.png; returns the page's path.

    `records`: the run's records in order of arrival (rollout.requested, rollout.completed, verification.verdict,
    group.closed, group.admission, training.update, evaluation.result; others are ignored). `extra`, all optional:
    `coldstart` (the cold start's report), `began` and `ended` (Unix seconds of the command), `finished` (False when it
    was stopped), `restarts` (service -> count), `audit` (an AuditReport; computed when absent), `versions`.
    A figure that cannot be drawn is left out and named. Raises OSError when the folder cannot be written.
    """
    from services.monitor.report_text import Facts, page

    folder = Path(run_dir)
    plots = folder / PLOTS
    plots.mkdir(parents=True, exist_ok=True)
    facts = Facts.of(list(records), folder, settings, dict(extra or {}))
    figures, faults = _draw(facts, plots)
    text = page(facts, figures, faults)
    path = folder / REPORT
    temporary = folder / f".{REPORT}.new"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return path


def _draw(facts: Facts, folder: Path) -> tuple[dict[str, str], list[str]]:
    """(figure name -> path relative to the report, faults). Figures of an earlier report do not survive."""
    from services.monitor import plots

    settings = facts.settings
    makers: dict[str, Callable[[Path], Path | None]] = {
        "pass_rate": lambda p: plots.pass_rate(p, facts.curve, facts.evaluations),
        "held_out": lambda p: plots.held_out(p, facts.evaluations),
        "optimizer": lambda p: plots.optimizer(p, facts.updates, settings.gate.min_entropy),
        "flow": lambda p: plots.flow(p, facts.ages, facts.exclusions, facts.lags, settings.admission.max_lag),
        "rollouts": lambda p: plots.rollouts(p, facts.lengths, facts.timing),
    }
    figures: dict[str, str] = {}
    faults: list[str] = []
    for name, make in makers.items():
        path = folder / f"{name}.png"
        path.unlink(missing_ok=True)
        try:
            if make(path) is not None:
                figures[name] = f"{PLOTS}/{path.name}"
        except Exception as e:  # a report without one figure is worth more than none
            faults.append(f"figure {name}: {type(e).__name__}: {e}")
    return figures, faults
