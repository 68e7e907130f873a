"""The facts that matter of each record type, short enough for one aligned line."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from services.runtime.screen import BLOCK_CHARS, CELL_CHARS, cell

if TYPE_CHECKING:
    import numpy.typing as npt

    from schemas.record import Record

Cell = tuple[str, int]
"""A text and the width it is padded to (0: as long as it is)."""


def shorten(values: Sequence[Any] | npt.NDArray[Any], full: bool = False, head: int = 2) -> str:
    """`[1, 2, … +998]`: the first `head` values and how many more there are; all of them with `full`."""
    shown = [_number(v) for v in (values if full else values[:head])]
    more = len(values) - len(shown)
    return f"[{', '.join([*shown, f'… +{more}'] if more else shown)}]"


def _number(value: Any) -> str:
    if isinstance(value, float) or hasattr(value, "dtype"):
        return f"{value:.4g}"
    return str(value)


def clip(text: str, width: int, full: bool = False) -> str:
    """The text on one line, cut to `width` with an ellipsis unless `full`."""
    if full:
        return cell(text, BLOCK_CHARS)
    line = " ".join(text[: 8 * width].split())
    return cell(line if len(line) <= width else line[: width - 1] + "…")


def seconds(ms: float | None) -> str:
    """A duration given in milliseconds, with the unit that reads best."""
    if ms is None:
        return "-"
    if ms < 1_000:
        return f"{ms:.0f}ms"
    if ms < 120_000:
        return f"{ms / 1000:.1f}s"
    return f"{ms / 60_000:.1f}min"


def ratio(value: float | None, digits: int = 2) -> str:
    """A share or score; `-` when it was not measured."""
    return "-" if value is None else f"{value:.{digits}f}"


def arguments_text(text: str) -> str:
    """A tool's canonical JSON arguments as `name=value` pairs; the text itself when it is no object."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(values, dict):
        return text
    return " ".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in values.items())


def _requested(r: Any, full: bool) -> list[Cell]:
    budget = f"turns≤{r.max_turns} tokens≤{r.max_tokens} wall≤{r.wall_s:g}s"
    return [
        (f"v{r.policy_version}", 4),
        (f"{r.member + 1}/{r.group_size}", 5),
        (r.task_set if r.split == "eval" else "train", 8),
        (r.task_id, 24),
        (f"T={r.temperature:g}", 5),
        (budget, 0),
        (f"seed={r.seed}", 0),
        (f"{r.selection} w={r.selection_weight:.3g}" + (f" {r.selection_inputs}" if full else ""), 0),
    ]


def _invocation(r: Any, full: bool) -> list[Cell]:
    logprobs = f"logp mean {float(r.logprobs.mean()):.2f} min {float(r.logprobs.min()):.2f}" if len(r.logprobs) else "-"
    cells = [
        (f"v{r.policy_version}", 4),
        (f"attempt {r.attempt} turn {r.turn}", 16),
        (f"{r.prefix_length}→+{len(r.sampled_ids)} tok", 14),
        (logprobs, 26),
        (r.stop, 10),
        (seconds(r.ended_ms - r.started_ms), 6),
        (f"in {shorten(r.appended_ids, full)}", 0),
        (f"out {shorten(r.sampled_ids, full)}", 0),
    ]
    if full:
        cells.append((f"logp {shorten(r.logprobs, True)}", 0))
    return cells if r.compaction is None else [*cells, (f"compaction: {r.compaction}", 0)]


def _command(r: Any, full: bool) -> list[Cell]:
    return [(f"#{r.sequence}", 3), (r.tool, 9), (clip(arguments_text(r.arguments), 90, full), 0)]


def _result(r: Any, full: bool) -> list[Cell]:
    checks = {True: "checks pass", False: "checks fail", None: ""}[r.checks_passed]
    return [
        (f"#{r.sequence}", 3),
        (r.tool, 9),
        (r.status, 8),
        (seconds(r.ended_ms - r.started_ms), 6),
        (checks, 11),
        (r.infra_error or "", 0),
        (clip(r.observation, 70, full) + (" (truncated)" if r.truncated else ""), 0),
    ]


def _completed(r: Any, full: bool) -> list[Cell]:
    versions = f"v{r.policy_version}" + (f"…{r.newest_version}" if r.newest_version != r.policy_version else "")
    diff = "claim check" if r.diff_uri else "no diff" if r.diff is None else f"diff {len(r.diff)} B"
    cells = [
        (versions, 4),
        (f"attempt {r.attempt}", 9),
        (r.stop_reason + ("" if r.final_attempt else " (another attempt follows)"), 14),
        (f"{r.invocations} calls", 8),
        (f"{r.policy_tokens} tok", 8),
        (f"gen {seconds(r.generation_ms)}", 10),
        (f"tools {seconds(r.tool_wait_ms)}", 12),
        (diff, 11),
    ]
    if r.malformed_actions:
        cells.append((f"{r.malformed_actions} malformed", 0))
    if r.outstanding_operations:
        cells.append((f"{len(r.outstanding_operations)} outstanding at {r.outstanding_owner}", 0))
    if r.infra_error:
        cells.append((r.infra_error, 0))
    return [*cells, (clip(r.diff, 0, True), 0)] if full and r.diff else cells


def _check_run(r: Any, full: bool) -> list[Cell]:
    del full
    return [
        (f"attempt {r.attempt} run {r.number}" + (f" retry {r.infra_attempt}" if r.infra_attempt else ""), 16),
        (r.outcome, 5),
        (r.cause, 14),
        (r.evidence, 4),
        (f"{r.cases_answered}/{r.cases} cases", 12),
        (seconds(r.ended_ms - r.started_ms), 6),
    ]


def _verdict(r: Any, full: bool) -> list[Cell]:
    del full
    return [
        (f"v{r.policy_version}", 4),
        (f"attempt {r.attempt}", 9),
        (r.verdict, 7),
        (f"reward {ratio(r.reward)}", 11),
        (r.cause, 14),
        (r.evidence, 4),
        (f"{r.trials_run}/{r.trials_wanted} runs", 8),
        (f"{r.policy_tokens} tok", 8),
        (seconds(r.verification_ended_ms - r.verification_started_ms), 6),
        ("reused" if r.reused else "", 0),
    ]


def _closed(r: Any, full: bool) -> list[Cell]:
    passes = sum(v == "pass" for v in r.member_verdicts)
    return [
        (r.contrast, 10),
        (f"{passes}/{r.group_size} pass", 9),
        (f"mean {ratio(r.mean)} std {ratio(r.std)}", 19),
        (r.split if r.split == "train" else r.task_set, 8),
        (r.task_id, 24),
        (f"slowest {seconds(r.generation_ms)}", 13),
        (f"A {shorten([None if c is None else round(c, 2) for c in r.member_coefficients], full, 3)}", 0),
    ]


def _admission(r: Any, full: bool) -> list[Cell]:
    ages = (r.age_generation_ms, r.age_tool_wait_ms, r.age_verification_ms, r.age_buffer_ms, r.age_queue_ms)
    return [
        (r.decision if r.reason is None else f"{r.decision}: {r.reason}", 23),
        (f"by {r.stage}", 12),
        (f"trainer v{r.trainer_version}", 12),
        (f"lag {max(r.member_lags, default=0)}≤{r.max_lag}", 8),
        (r.task_id, 24),
        ("gen/tool/verify/buffer/queue " + "/".join(seconds(a) for a in ages), 0),
        (f"lags {shorten(r.member_lags, True)}" if full else "", 0),
    ]


def _published(r: Any, full: bool) -> list[Cell]:
    parent = "cold start" if r.parent_version is None else f"from v{r.parent_version}"
    digest = r.manifest_digest if full else r.manifest_digest[:12]
    return [(f"v{r.policy_version}", 4), (parent, 10), (digest, 12), (r.manifest_uri, 0)]


def _gate(r: Any, full: bool) -> list[Cell]:
    return [(f"v{r.policy_version}", 4), (r.decision, 8), (clip(arguments_text(r.findings), 110, full), 0)]


def _update(r: Any, full: bool) -> list[Cell]:
    return [
        (f"v{r.parent_version}→v{r.policy_version}", 9),
        (f"{len(r.group_ids)} groups {r.sequences} seq {r.scored_tokens} tok", 28),
        (f"reward {ratio(r.mean_reward)}", 11),
        (f"loss {r.loss:+.4f}", 13),
        (f"H {r.entropy:.3f}", 7),
        (f"ratio {r.ratio_p01:.2f}…{r.ratio_p99:.2f}", 16),
        (f"clip {r.clip_low_fraction + r.clip_high_fraction:.1%}", 10),
        (f"|g| {r.gradient_norm:.2f}", 9),
        (f"lag≤{max(r.group_lags, default=0)}", 6),
        (f"waited {seconds(r.waited_ms)} computed {seconds(r.computed_ms)}", 0),
        (f"groups {' '.join(r.group_ids)}" if full else "", 0),
    ]


def _evaluation(r: Any, full: bool) -> list[Cell]:
    paired = ""
    if r.difference is not None:
        interval = f"[{ratio(r.difference_low, 3)}, {ratio(r.difference_high, 3)}]"
        paired = f"{r.difference:+.3f} {interval} against v{r.parent_version}"
    cells = [
        (f"v{r.policy_version}", 4),
        (r.task_set, 16),
        (f"pass@1 {r.pass_at_1:.3f} pass@{r.k} {r.pass_at_k:.3f} pass^{r.k} {r.pass_hat_k:.3f}", 42),
        (f"{len(r.task_ids)} tasks {sum(r.task_samples)} samples", 22),
        (f"{r.unresolved} unresolved", 12),
        (paired, 0),
    ]
    if full:
        cells.append((f"passes {shorten(r.task_passes, True)}", 0))
    return cells


_FACTS: dict[str, Callable[[Any, bool], list[Cell]]] = {
    "rollout.requested": _requested,
    "rollout.invocation": _invocation,
    "sandbox.command": _command,
    "sandbox.result": _result,
    "rollout.completed": _completed,
    "verification.trial": _check_run,
    "verification.verdict": _verdict,
    "group.closed": _closed,
    "group.admission": _admission,
    "policy.published": _published,
    "policy.gate": _gate,
    "training.update": _update,
    "evaluation.result": _evaluation,
}


def facts(record: Record, full: bool = False) -> str:
    """The record's facts in columns that line up with those of its kind; a type without a layout shows every field."""
    layout = _FACTS.get(record.TYPE.name)
    if layout is None:
        return " ".join(f"{f.name}={clip(str(getattr(record, f.name)), 40, full)}" for f in record.TYPE.fields)
    most = BLOCK_CHARS if full else CELL_CHARS
    return "  ".join(cell(text, most).ljust(width) for text, width in layout(record, full) if text or width).rstrip()


def identity(record: Record) -> str:
    """The most specific id that the record carries, for the line's second column."""
    for name in ("operation_id", "invocation_id", "trial_id", "group_id", "update_id", "run_id"):
        value = getattr(record, name, None)
        if value:
            return str(value)
    return ""
