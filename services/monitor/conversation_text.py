"""A gathered trial as lines for a terminal: what was asked, every turn, the checks, the group, the fate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from services.monitor.facts import arguments_text, ratio, seconds, shorten
from services.runtime.screen import BLOCK_CHARS, CELL_CHARS, cell, clock

if TYPE_CHECKING:
    from schemas.group import GroupAdmission, GroupClosed
    from schemas.policy import TrainingUpdate
    from schemas.rollout import Invocation, RolloutCompleted, RolloutRequested
    from schemas.verification import VerificationTrial, VerificationVerdict
    from services.monitor.conversation import Attempt, Operation, Trial, Turn
    from services.monitor.texts import Texts

Line = tuple[str, str]
"""A text and its style on a terminal ('' for none)."""
_TAIL_LINES = 12
"""Lines of a prompt or observation that are shown unless `full`."""
_IDS = 16
"""Ids shown of a long list that has no text, unless `full`."""
_HEAD, _SAID, _TOOL, _QUIET, _GOOD, _BAD = "bold", "cyan", "yellow", "dim", "bold green", "bold red"


def render(trial: Trial, texts: Texts, full: bool = False) -> Iterator[Line]:
    """Lines of the whole trial, first to last; `full` adds ids, log-probabilities, digests and whole texts."""
    good = trial.fate.name in ("trained", "evaluated")
    yield f"trial {trial.trial_id}", _HEAD
    yield f"fate: {trial.fate.sentence}", _GOOD if good else _BAD if trial.fate.name == "excluded" else _QUIET
    if texts.note:
        yield f"note: {texts.note}", _QUIET
    if trial.duplicates:
        yield f"note: {trial.duplicates} records were delivered twice and are shown once", _QUIET
    yield from _request(trial.request, full)
    for attempt in trial.attempts:
        yield from _attempt(attempt, texts, full)
    if trial.group is not None:
        yield from _group(trial.group, trial.admissions, trial.trial_id)
    for admission in trial.admissions:
        yield from _admission(admission)
    for update in trial.updates:
        yield from _update(update)


def _request(r: RolloutRequested | None, full: bool) -> Iterator[Line]:
    if r is None:
        yield "request: its record is not on the topics (retention may have ended)", _BAD
        return
    kind = "training" if r.split == "train" else f"evaluation on {r.task_set}"
    yield f"task {r.task_id} (family {r.family}), {kind}, member {r.member} of a group of {r.group_size}", ""
    yield f"asked {clock(r.requested_ms, '%Y-%m-%d %H:%M:%S.%f')} at policy v{r.policy_version}, seed {r.seed}", ""
    cuts = (f", top-k {r.top_k}" if r.top_k else "") + (f", top-p {r.top_p:g}" if r.top_p < 1 else "")
    budget = f"at most {r.max_turns} turns, {r.max_tokens} sampled tokens, {r.wall_s:g} s"
    yield f"sampling: temperature {r.temperature:g}{cuts}; budget: {budget}", ""
    seen = arguments_text(r.selection_inputs)
    yield f"chosen by {r.selection} with probability {r.selection_weight:.4g}, which looked at {seen}", ""
    if full:
        yield f"fixture {r.fixture_digest}, task set {r.taskset_digest}", _QUIET


def _attempt(attempt: Attempt, texts: Texts, full: bool) -> Iterator[Line]:
    yield "", ""
    yield f"attempt {attempt.number}", _HEAD
    for turn in attempt.turns:
        yield from _turn(turn, texts, full)
    for operation in attempt.loose_operations:
        yield "  operation without its model call on the topics:", _BAD
        yield from _operation(operation, full)
    if attempt.completed is not None:
        yield from _completed(attempt.completed, full)
    for check in attempt.checks:
        yield _check(check), _GOOD if check.outcome == "pass" else _BAD if check.outcome == "fail" else _QUIET
    for verdict in attempt.verdicts:
        yield from _verdict(verdict, full)


def _turn(turn: Turn, texts: Texts, full: bool) -> Iterator[Line]:
    call = turn.invocation
    when = f"{clock(call.started_ms)} + {seconds(call.ended_ms - call.started_ms)}"
    yield f"  turn {call.turn} · policy v{call.policy_version} ({call.engine}) · {when}", _HEAD
    whole = "the whole prefix" if call.parent_id is None else f"appended; the prefix is {call.prefix_length} tokens"
    yield f"    given {len(call.appended_ids)} tokens ({whole}{_compaction(call)})", _QUIET
    yield from _tokens(call.appended_ids, texts, full, "", tail=True)
    yield f"    sampled {len(call.sampled_ids)} tokens, stop: {call.stop}{_logprobs(call, texts)}", _QUIET
    yield from _tokens(call.sampled_ids, texts, full, _SAID, tail=False)
    if full:
        yield f"      logp {shorten(call.logprobs, True)}", _QUIET
        yield f"      support {shorten(call.support_sizes, True)}; seed {call.seed}", _QUIET
        yield f"      prefix {call.prefix_digest}, tokenizer {call.tokenizer_digest}", _QUIET
        yield f"      template {call.template_digest}", _QUIET
    for operation in turn.operations:
        yield from _operation(operation, full)


def _compaction(call: Invocation) -> str:
    return "" if call.compaction is None else f"; compacted: {call.compaction}"


def _logprobs(call: Invocation, texts: Texts) -> str:
    if len(call.logprobs) == 0:
        return ""
    worst = int(call.logprobs.argmin())
    token = texts.decode([int(call.sampled_ids[worst])])
    named = f"id {int(call.sampled_ids[worst])}" if token is None else repr(token)
    return f", logp mean {float(call.logprobs.mean()):.3f}, min {float(call.logprobs[worst]):.3f} at {named}"


def _tokens(ids: Any, texts: Texts, full: bool, style: str, tail: bool) -> Iterator[Line]:
    text = texts.decode(ids)
    if text is not None:
        yield from _block(text, full, style, tail)
    if text is None or full:
        yield f"      ids {shorten(ids, full or len(ids) <= 2 * _IDS, _IDS)}", style if text is None else _QUIET


def _block(text: str, full: bool, style: str, tail: bool = False) -> Iterator[Line]:
    """Lines behind a bar; without `full` only the last (`tail`) or first lines, saying how many are left out."""
    rows = [row.expandtabs(4) for row in text.split("\n")]
    left_out = 0 if full else max(0, len(rows) - _TAIL_LINES)
    shown = rows if not left_out else rows[left_out:] if tail else rows[:_TAIL_LINES]
    if left_out and tail:
        yield f"    │ … {left_out} lines above (--full shows them)", _QUIET
    for row in shown:
        yield f"    │ {cell(row, BLOCK_CHARS if full else CELL_CHARS)}", style
    if left_out and not tail:
        yield f"    │ … {left_out} more lines (--full shows them)", _QUIET


def _operation(operation: Operation, full: bool) -> Iterator[Line]:
    command, result = operation.command, operation.result
    if command is not None:
        arguments = cell(arguments_text(command.arguments), BLOCK_CHARS if full else CELL_CHARS)
        yield f"    → {command.tool} {arguments}".rstrip(), _TOOL
        if command.history is not None:
            yield f"      asked again in a workspace made anew: {len(command.history)} earlier operations first", _QUIET
    if result is None:
        yield "    ← no answer yet", _QUIET
        return
    notes = [result.status, seconds(result.ended_ms - result.started_ms)]
    if result.checks_passed is not None:
        notes.append("public checks pass" if result.checks_passed else "public checks fail")
    if result.truncated:
        notes.append("observation cut")
    if result.infra_error:
        notes.append(f"infrastructure: {result.infra_error}")
    if full:
        notes.append(f"workspace {result.workspace_generation}")
    yield f"    ← {', '.join(notes)}", _TOOL if result.status == "ok" else _BAD
    if result.observation:
        yield from _block(result.observation, full, "")


def _completed(r: RolloutCompleted, full: bool) -> Iterator[Line]:
    span = f"v{r.policy_version}" + (f" to v{r.newest_version}" if r.newest_version != r.policy_version else "")
    times = f"sampling {seconds(r.generation_ms)}, tools {seconds(r.tool_wait_ms)}"
    facts = f"{r.invocations} calls, {r.policy_tokens} sampled tokens, {r.malformed_actions} malformed, versions {span}"
    yield f"  ended as {r.stop_reason} after {seconds(r.ended_ms - r.started_ms)} ({times}); {facts}", _HEAD
    if r.infra_error:
        yield f"    infrastructure: {r.infra_error}", _BAD
    if not r.final_attempt:
        yield "    another attempt follows", _QUIET
    if r.outstanding_operations:
        yield f"    outstanding at {r.outstanding_owner}: {', '.join(r.outstanding_operations)}", _BAD
    if r.diff is not None:
        yield f"    candidate ({len(r.diff)} characters, {(r.diff_digest or '')[:12]})", _QUIET
        yield from _block(r.diff.rstrip("\n"), full, "")
    elif r.diff_uri is not None:
        yield f"    candidate in the object store: {r.diff_uri}", _QUIET


def _check(c: VerificationTrial) -> str:
    retry = f" (infrastructure retry {c.infra_attempt})" if c.infra_attempt else ""
    used = [seconds(c.ended_ms - c.started_ms)]
    if c.cpu_s is not None:
        used.append(f"{c.cpu_s * 1000:.0f} ms CPU")
    if c.memory_bytes is not None:
        used.append(f"{c.memory_bytes / 2**20:.0f} MiB")
    answered = f"{c.cases_answered} of {c.cases} cases answered"
    return f"  check run {c.number}{retry}: {c.outcome} ({c.cause}), {c.evidence}, {answered}, {', '.join(used)}"


def _verdict(v: VerificationVerdict, full: bool) -> Iterator[Line]:
    parts = f"correctness {ratio(v.correctness)}, format {ratio(v.format_score)}, length {ratio(v.length_score)}"
    runs = "judged before, verdict reused" if v.reused else f"{v.trials_run} of {v.trials_wanted} check runs"
    if v.earlier_trial is not None:
        runs += f" (of {v.earlier_trial})" if v.reused else f", afresh after {v.earlier_trial}"
    took = seconds(v.verification_ended_ms - v.verification_started_ms)
    style = {"pass": _GOOD, "fail": _BAD}.get(v.verdict, _QUIET)
    yield f"  verdict: {v.verdict} ({v.cause}), reward {ratio(v.reward)} ({parts}); {v.evidence}, {runs}, {took}", style
    if full:
        yield f"    verifier {v.verifier_digest}, checks {v.check_digest}, candidate {v.candidate_digest}", _QUIET


def _group(group: GroupClosed, admissions: Sequence[GroupAdmission], trial_id: str) -> Iterator[Line]:
    yield "", ""
    spread = f"mean {ratio(group.mean, 3)}, population std {ratio(group.std, 3)}, coefficients {group.advantage}"
    closed = f"rule {group.rule}, closed {clock(group.closed_ms)}"
    yield f"group {group.group_id}: {group.contrast}, {spread}, {closed}", _HEAD
    lags = dict(zip(admissions[-1].member_trials, admissions[-1].member_lags, strict=True)) if admissions else {}
    yield "    member  verdict   reward  coefficient  version  calls  tokens  lag", _QUIET
    for i, trial in enumerate(group.member_trials):
        mark = "▸" if trial == trial_id else " "
        coefficient = group.member_coefficients[i]
        weight = "-" if coefficient is None else f"{coefficient:+.3f}"
        number, reward = trial.rpartition("/")[2], ratio(group.member_rewards[i])
        row = (
            f"  {mark} {number:>6}  {group.member_verdicts[i]:<8}  {reward:>6}"
            f"  {weight:>11}  {group.member_versions[i]:>7}  {group.member_invocations[i]:>5}"
            f"  {group.member_tokens[i]:>6}  {lags.get(trial, '-'):>3}"
        )
        yield row, "bold" if trial == trial_id else ""


def _admission(a: GroupAdmission) -> Iterator[Line]:
    stages = ("generation", "tool_wait", "verification", "buffer", "queue")
    ages = ", ".join(f"{s.replace('_', ' ')} {seconds(getattr(a, f'age_{s}_ms'))}" for s in stages)
    reason = "" if a.reason is None else f" as {a.reason}"
    lag = f"largest lag {max(a.member_lags, default=0)}, bound {a.max_lag}"
    style = _GOOD if a.decision == "admitted" else _BAD
    yield f"{a.decision}{reason} by {a.stage} at trainer v{a.trainer_version} ({clock(a.decided_ms)}): {lag}", style
    yield f"    age by stage: {ages}", ""


def _update(u: TrainingUpdate) -> Iterator[Line]:
    yield f"trained in {u.update_id}: v{u.parent_version} → v{u.policy_version} ({clock(u.finished_ms)})", _GOOD
    sizes = f"{len(u.group_ids)} groups, {u.sequences} sequences, {u.scored_tokens} scored tokens"
    clips = f"clipped {u.clip_low_fraction + u.clip_high_fraction:.1%}, capped {u.cap_fraction:.1%}"
    ratios = f"ratio {u.ratio_p01:.3f} … {u.ratio_p50:.3f} … {u.ratio_p99:.3f} (1, 50, 99 %)"
    yield f"    {sizes}; {ratios}, {clips}; entropy {u.entropy:.3f}, gradient norm {u.gradient_norm:.3f}", ""
