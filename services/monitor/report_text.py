"""The report's page: the result first, then how it was measured, then what happened on the way; Markdown."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from services.monitor import measures, report_house
from services.monitor.facts import seconds
from services.monitor.measures import AGE_STAGES, TaskSetResult, Timing
from services.runtime.screen import cell, code, markdown

if TYPE_CHECKING:
    from schemas.policy import TrainingUpdate
    from schemas.record import Record
    from services.runtime.ledger import AuditReport
    from services.runtime.settings import RunSettings

T = TypeVar("T")
NOT_MEASURED = "not measured"
_SHOWN = 24
"""Task sets, reasons, lags and fates that are named: records say how many there are."""


@dataclass(frozen=True)
class Facts:
    """Everything that the page and the figures are made of."""

    folder: Path
    settings: RunSettings
    extra: Mapping[str, Any]
    curve: list[tuple[int, int, int]]
    evaluations: list[TaskSetResult]
    updates: list[TrainingUpdate]
    ages: dict[str, list[float]]
    exclusions: dict[str, tuple[int, int]]
    admitted_groups: int
    lags: Counter[int]
    lengths: dict[str, list[int]]
    timing: Timing | None
    stages: list[tuple[str, int, float | None]]
    audit: AuditReport

    @classmethod
    def of(cls, records: list[Record], folder: Path, settings: RunSettings, extra: Mapping[str, Any]) -> Facts:
        """Measure the records."""
        from schemas.rollout import RolloutCompleted
        from services.runtime.ledger import audit

        train = measures.verdicts_of(records, "train")
        admissions = measures.admissions_of(records)
        updates = measures.updates_of(records)
        rollouts = measures.of_type(records, RolloutCompleted, "trial_id", "attempt")
        judged = [*train, *measures.verdicts_of(records, "eval")]
        return cls(
            folder=folder,
            settings=settings,
            extra=extra,
            curve=measures.pass_rate_by_version(train),
            evaluations=measures.evaluations_of(records),
            updates=updates,
            ages=measures.ages(admissions),
            exclusions=measures.exclusions(admissions),
            admitted_groups=sum(a.decision == "admitted" for a in admissions),
            lags=measures.member_lags(admissions),
            lengths=measures.lengths(train),
            timing=measures.timing(rollouts, judged, updates),
            stages=measures.stage_rates(records),
            audit=extra.get("audit") or audit(records, over=bool(extra.get("finished"))),
        )


def page(facts: Facts, figures: Mapping[str, str], faults: Sequence[str]) -> str:
    """The whole page."""
    parts = [
        f"# Run `{facts.settings.run_id}`",
        result_line(facts.evaluations),
        _standing(facts),
        _measured_how(facts),
        _evaluation_table(facts.evaluations),
        _image(figures, "pass_rate", "pass rate on training tasks by update"),
        _curve_text(facts),
        _image(figures, "held_out", "pass@1 before and after, with paired intervals"),
        "## Cold start",
        report_house.cold_start(facts.extra.get("coldstart")),
        "## Optimizer",
        _image(figures, "optimizer", "entropy, ratio and mismatch by update"),
        _optimizer_text(facts.updates),
        "## Rollouts and time",
        _image(figures, "rollouts", "length by outcome; where the time went"),
        _lengths_table(facts.lengths),
        _time_table(facts.timing),
        _rates_table(facts.stages),
        "## Flow of groups",
        _image(figures, "flow", "age by stage, exclusions by reason, lag"),
        _flow_text(facts),
        "## Audit",
        _audit_text(facts.audit),
        "## This run",
        report_house.this_run(facts.folder, facts.settings, facts.extra),
    ]
    if faults:
        parts.append("Figures that could not be drawn: " + "; ".join(map(markdown, faults)) + ".")
    return "\n\n".join(part for part in parts if part) + "\n"


def result_line(evaluations: Sequence[TaskSetResult]) -> str:
    """One bold line: every task set before -> after with its paired interval."""
    if not evaluations:
        return "**No result: no evaluation was completed.**"
    shown = []
    for r in _first(evaluations):
        name = markdown(measures.set_name(r.task_set))
        if r.after is None or r.paired is None:
            shown.append(f"{name} {r.before:.3f} before, after {NOT_MEASURED}")
        else:
            p = r.paired
            shown.append(
                f"{name} {r.before:.3f} → {r.after:.3f} ({p.difference:+.3f}, 95 % [{p.low:+.3f}, {p.high:+.3f}])"
            )
    return f"**pass@1: {'; '.join(shown)}.**"


def _standing(facts: Facts) -> str:
    planned = facts.settings.dispatch.updates
    done = max((u.policy_version for u in facts.updates), default=0)
    finished = facts.extra.get("finished")
    state = "Finished" if finished else "Stopped before its end" if finished is False else "So far"
    audit = facts.audit
    parts = [f"{state}: {done} of {planned} updates"]
    if facts.timing is not None:
        parts.append(f"{duration(facts.timing.wall_s)} from the first rollout to the last record")
    began, ended = facts.extra.get("began"), facts.extra.get("ended")
    if began is not None and ended is not None:
        parts.append(f"{duration(ended - began)} in this call of the command")
    parts.append(f"{audit.requested:,} trials requested")
    parts.append("the audit balances" if audit.balanced else "**the audit does not balance** (see below)")
    return ", ".join(parts) + "."


def _measured_how(facts: Facts) -> str:
    v, s, e = facts.settings.verifier, facts.settings.sampling, facts.settings.evaluation
    cuts = (f", top-k {s.top_k}" if s.top_k else "") + (f", top-p {s.top_p:g}" if s.top_p < 1 else "")
    return (
        f"How it was measured: fixed tasks, {e.samples} samples each at temperature {s.temperature:g}{cuts}, the same "
        f"tasks before and after; a trial passes when all of {v.trials} verification runs accept it, each in a fresh "
        f"sandbox, on evidence {v.min_evidence} or better. pass@1 is the mean over tasks of passes / samples; "
        f"differences are paired by task, intervals are a percentile bootstrap over tasks (10,000 resamples). One run "
        f"is one seed: the interval covers the choice of tasks and of samples, not the luck of training."
    )


def _evaluation_table(evaluations: Sequence[TaskSetResult]) -> str:
    if not evaluations:
        return ""
    rows = ["| task set | tasks | samples | before | after | difference, 95 % interval | unresolved |"]
    rows.append("|---|---|---|---|---|---|---|")
    for r in _first(evaluations):
        after = NOT_MEASURED if r.after is None else f"{r.after:.3f} (v{r.after_version})"
        p = r.paired
        paired = NOT_MEASURED if p is None else f"{p.difference:+.3f} [{p.low:+.3f}, {p.high:+.3f}], {p.tasks} tasks"
        name = markdown(measures.set_name(r.task_set))
        before = f"{r.before:.3f} (v{r.before_version})"
        rows.append(f"| {name} | {r.tasks} | {r.samples} | {before} | {after} | {paired} | {r.unresolved} |")
    return "\n".join(rows)


def _curve_text(facts: Facts) -> str:
    if not facts.curve:
        return f"Pass rate by update: {NOT_MEASURED} (no training trial was judged)."
    trials = sum(n for _, _, n in facts.curve)
    drawn = facts.settings.dispatch.selection
    bias = ", which favours tasks of middling difficulty" if drawn == "pass_rate" else ""
    return (
        f"Every training trial with a pass or a fail ({trials:,}), by the version that sampled it. Tasks are drawn by "
        f"`{drawn}`{bias}, so the curve shows the course of training; the fixed tasks above are the result."
    )


def _image(figures: Mapping[str, str], name: str, text: str) -> str:
    return f"![{text}]({figures[name]})" if name in figures else f"_Figure: {text}: {NOT_MEASURED}._"


_OPTIMIZER_ROWS: tuple[tuple[str, str, Callable[..., float], Callable[[TrainingUpdate], float]], ...] = (
    ("entropy (nats per token)", ".3f", min, lambda u: u.entropy),
    ("gradient norm", ".3f", max, lambda u: u.gradient_norm),
    ("ratio, 1 % quantile", ".3f", min, lambda u: u.ratio_p01),
    ("ratio, 99 % quantile", ".3f", max, lambda u: u.ratio_p99),
    ("mismatch with the behaviour policy, mean (nats)", ".2e", max, lambda u: u.mismatch_mean),
    ("clipped tokens", ".2%", max, lambda u: u.clip_low_fraction + u.clip_high_fraction),
    ("capped tokens", ".2%", max, lambda u: u.cap_fraction),
)


def _optimizer_text(updates: Sequence[TrainingUpdate]) -> str:
    if not updates:
        return f"Updates: {NOT_MEASURED} (there was none)."
    first, last = updates[0], updates[-1]
    lowest = min(updates, key=lambda u: u.entropy)
    rows = ["| | first update | last update | most extreme |", "|---|---|---|---|"]
    for label, form, extreme, value in _OPTIMIZER_ROWS:
        shown = " | ".join(format(v, form) for v in (value(first), value(last), extreme(map(value, updates))))
        rows.append(f"| {label} | {shown} |")
    scored = f"{sum(u.sequences for u in updates):,} sequences with {sum(u.scored_tokens for u in updates):,} tokens"
    choices = (
        f"Objective: clip [1 − {last.clip_low:g}, 1 + {last.clip_high:g}], reduction {code(last.reduction)}, "
        f"coefficients {code(last.advantage)}, KL {code(last.kl_estimator)} × {last.kl_weight:g}, "
        f"entropy bonus {last.entropy_weight:g}, correction cap "
        f"{last.correction_cap:g}; {last.optimizer_steps} optimizer steps per update; learning rate "
        f"{last.learning_rate:g} at the end. Entropy was lowest at update {lowest.policy_version}. "
        f"{scored} were scored."
    )
    return "\n".join(rows) + "\n\n" + choices


def _lengths_table(lengths: Mapping[str, Sequence[int]]) -> str:
    if not lengths:
        return f"Lengths: {NOT_MEASURED}."
    rows = ["| outcome | training trials | tokens, mean | median | 90 % | longest |", "|---|---|---|---|---|---|"]
    for outcome, values in lengths.items():
        s = measures.summary(values)
        if s is not None:
            rows.append(f"| {outcome} | {s.count:,} | {s.mean:.1f} | {s.median:.0f} | {s.p90:.0f} | {s.largest:.0f} |")
    return "\n".join(rows)


def _time_table(timing: Timing | None) -> str:
    if timing is None:
        return f"Where the time went: {NOT_MEASURED}."
    rows = ["| stage | busy (at least one under way) | share of the run | summed over all | at once, on average |"]
    rows.append("|---|---|---|---|---|")
    for stage in timing.stages:
        share = stage.busy_s / timing.wall_s if timing.wall_s > 0 else 0.0
        at_once = stage.summed_s / stage.busy_s if stage.busy_s > 0 else 0.0
        rows.append(
            f"| {stage.name} | {duration(stage.busy_s)} | {share:.0%} | {duration(stage.summed_s)} | {at_once:.1f} |"
        )
    share = timing.waited_s / timing.wall_s if timing.wall_s > 0 else 0.0
    rows.append(f"| trainer waits for groups | {duration(timing.waited_s)} | {share:.0%} | | |")
    share = timing.idle_s / timing.wall_s if timing.wall_s > 0 else 0.0
    rows.append(f"| nothing under way (pauses of the run included) | {duration(timing.idle_s)} | {share:.0%} | | |")
    split = (
        f"Of the rollouts' summed time, {duration(timing.sampling_s)} were sampling (waiting for a place in the "
        f"engine's batch included) and {duration(timing.tools_s)} tools. Stages overlap, so shares do not add up to "
        f"100 %; evaluation is included, reused verdicts are not."
    )
    return "\n".join(rows) + "\n\n" + split


def _rates_table(stages: Sequence[tuple[str, int, float | None]]) -> str:
    if not stages:
        return f"Rates: {NOT_MEASURED}."
    rows = ["| records | in all | per second, first to last |", "|---|---|---|"]
    for name, count, rate in stages:
        rows.append(f"| {name} | {count:,} | {NOT_MEASURED if rate is None else f'{rate:.2f}'} |")
    return "\n".join(rows)


def _flow_text(facts: Facts) -> str:
    out = []
    summaries = {stage: measures.summary(facts.ages.get(stage, ())) for stage in AGE_STAGES}
    if any(summaries.values()):
        rows = ["| age of groups at their decision | median | 90 % | largest |", "|---|---|---|---|"]
        for stage, s in summaries.items():
            if s is not None:
                values = " | ".join(seconds(1000 * v) for v in (s.median, s.p90, s.largest))
                rows.append(f"| {stage.replace('_', ' ')} | {values} |")
        out.append("\n".join(rows))
    else:
        out.append(f"Age by stage: {NOT_MEASURED} (no group was decided).")
    decided = facts.admitted_groups + sum(groups for groups, _ in facts.exclusions.values())
    lost = ", ".join(
        f"{markdown(reason)} {groups} ({trials} trials)"
        for reason, (groups, trials) in _first(facts.exclusions.items())
    )
    out.append(f"{decided:,} groups decided: {facts.admitted_groups:,} admitted; excluded: {lost or 'none'}.")
    if facts.lags:
        members = sum(facts.lags.values())
        shares = ", ".join(f"{lag}: {count / members:.0%}" for lag, count in _first(sorted(facts.lags.items())))
        out.append(f"Lag of admitted trials (bound {facts.settings.admission.max_lag}): {shares}.")
    else:
        out.append(f"Lag: {NOT_MEASURED} (no group was admitted).")
    consumed = [lag for u in facts.updates for lag in u.group_lags]
    if consumed:
        out.append(f"Largest lag of a group when the trainer used it: {max(consumed)}.")
    return "\n\n".join(out)


def _audit_text(audit: AuditReport) -> str:
    lines = audit.lines()
    head = "Every requested trial has exactly one fate." if audit.balanced else "**It does not balance.**"
    rows = [
        "| fate | trials |",
        "|---|---|",
        *(f"| {markdown(fate)} | {count:,} |" for fate, count in _first(sorted(audit.counts.items()))),
    ]
    quoted = (cell(line).replace("`", "'") for line in lines)
    return "\n".join([head, "", "```", *quoted, "```", "", *rows])


def _first(items: Iterable[T]) -> list[T]:
    return list(itertools.islice(items, _SHOWN))


def duration(value: float) -> str:
    """Seconds for people."""
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.2f} h"
