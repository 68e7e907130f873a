"""The command line of task sets: `rollstream tasks list`, `show` and `check`."""

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from services.runtime.errors import UserError
from services.runtime.screen import block, cell, console, grid, say, say_json
from services.tasks import feedback, values
from services.tasks.fixture import CheckSet, Fixture
from services.tasks.quick_look import TRIALS, QuickLook
from services.tasks.taskset import SPLITS, TaskSet, UnknownTask

app = typer.Typer(help="Look at the repair tasks, and certify how they are judged.", no_args_is_help=True)

Source = Annotated[
    str,
    typer.Option("--source", metavar="catalogue|PATH.jsonl", help="The shipped catalogue, or a QuixBugs-style file."),
]
# Shorter work needs no progress display.
_PATIENCE_S = 2.0


@app.command("list")
def list_tasks(
    split: Annotated[str | None, typer.Option(help=f"Only one split: {', '.join(SPLITS)}.")] = None,
    family: Annotated[str | None, typer.Option(help="Only one family.")] = None,
    source: Source = "catalogue",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List tasks with their split and what the unrepaired code does."""
    tasks = load(source)
    families = sorted({fixture.family for fixture in tasks.fixtures})
    if split is not None and split not in tasks.splits:
        raise UserError(f"unknown split {split!r}", f"tasks of {source}", f"choose one of: {', '.join(tasks.splits)}")
    if family is not None and family not in families:
        raise UserError(f"unknown family {family!r}", f"tasks of {source}", f"choose one of: {', '.join(families)}")
    chosen = [
        fixture
        for fixture in tasks.fixtures
        if split in (None, tasks.split_of(fixture.task_id)) and family in (None, fixture.family)
    ]
    if as_json:
        for fixture in chosen:
            say_json(_summary(tasks, fixture))
    else:
        _print_table(tasks, chosen)


def _summary(tasks: TaskSet, fixture: Fixture) -> dict[str, str]:
    return {
        "task_id": fixture.task_id,
        "split": tasks.split_of(fixture.task_id),
        "family": fixture.family,
        "problem": fixture.problem,
        "bug_kind": fixture.bug_kind,
        "first_failure": fixture.first_failure,
        "digest": fixture.digest,
    }


def _print_table(tasks: TaskSet, chosen: list[Fixture]) -> None:
    table = grid((), (), box=None, pad_edge=False)
    for heading in ("task", "split", "the unrepaired code"):
        table.add_column(heading, no_wrap=heading != "the unrepaired code", overflow="ellipsis")
    for fixture in chosen:
        table.add_row(*map(cell, (fixture.task_id, tasks.split_of(fixture.task_id), fixture.first_failure)))
    console().print(table)
    counts = {name: sum(tasks.split_of(fixture.task_id) == name for fixture in chosen) for name in tasks.splits}
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    say(f"{len(chosen)} tasks ({shown or 'none'}), {len({fixture.problem for fixture in chosen})} functions")


@app.command("show")
def show_task(
    task_id: Annotated[str, typer.Argument(help="A task id as `list` prints it.")], source: Source = "catalogue"
) -> None:
    """Show the public half of one task: code, visible checks, tools, budgets, digests."""
    from rich.syntax import Syntax
    from rich.text import Text

    tasks = load(source)
    fixture = _get(tasks, task_id, source)
    screen = console()
    head = f"{fixture.task_id}  ({tasks.split_of(task_id)}; kind of bug: {fixture.bug_kind})"
    screen.print(Text(cell(head), style="bold"))
    for path, text in fixture.base_tree.items():
        screen.print(Text(cell(path), style="dim"))
        screen.print(Syntax(block(text.expandtabs(4)), "python", line_numbers=True, background_color="default"))
    if fixture.domain:
        say(fixture.domain, lines=True)
    say(fixture.first_failure)
    for example in fixture.public_checks:
        say(f"  {fixture.entry}({feedback.arguments(example.args)}) -> {_answer(example.expected)}")
    budgets = fixture.budgets
    editable = ", ".join(fixture.allowed_globs)
    say(f"comparator {fixture.comparator}; tools {', '.join(fixture.tools)}; may edit {editable}")
    say(f"budgets: {budgets.turns} turns, {budgets.tokens} tokens, {budgets.wall_s:g} s of wall clock")
    say(f"fixture {fixture.digest}")
    say(f"checks  {fixture.check_digest}")


def _answer(expected: object) -> str:
    if isinstance(expected, values.ExceptionName):
        return f"raises {expected.name}"
    return feedback.compact(expected)


@app.command("check")
def check_tasks(
    task_id: Annotated[str | None, typer.Argument(help="A task id as `list` prints it.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every task of the source.")] = False,
    trials: Annotated[int, typer.Option(min=1, help="Seeded trials of every tree.")] = TRIALS,
    source: Source = "catalogue",
) -> None:
    """A quick look without sandboxes: the reference passes, unrepaired, known-bad and narrow programs fail.

    Narrow ones (domain mutants) are right up to a size, a value, for one sign and the like: what lives is shown with an
    input that would kill it. See also `certify`.
    """
    if (task_id is None) is not everything:
        raise UserError("one task or all of them?", "rollstream tasks check", "name a task id, or give --all")
    tasks = load(source)
    if task_id is not None:
        _get(tasks, task_id, source)
        checks = [tasks.checks.get(task_id)]
    else:
        checks = list(tasks.checks)
    found = _look(checks, trials)
    _report(found, trials)
    if not all(one.sound for one in found):
        raise typer.Exit(1)


def _look(checks: Iterable[CheckSet], trials: int) -> list[QuickLook]:
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from services.tasks.bench import Bench
    from services.tasks.certificates import judging_key
    from services.tasks.quick_look import look
    from services.tasks.survival import Survey, survey

    waiting = list(checks)
    surveys: dict[str, Survey] = {}
    began = time.monotonic()
    found: list[QuickLook] = []
    columns = (
        TextColumn("looking"),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
        TimeRemainingColumn(),
    )
    screen = console(error=True)
    hidden = not screen.is_terminal
    with Bench() as bench, Progress(*columns, console=screen, transient=True, disable=hidden) as progress:
        bar = progress.add_task("", total=len(waiting), visible=False)
        for check in waiting:
            progress.update(bar, description=cell(check.task_id, 60), visible=time.monotonic() - began > _PATIENCE_S)
            key = judging_key(check)
            if key not in surveys:
                surveys[key] = survey(check)
            found.append(replace(look(bench, check, trials), domain=surveys[key]))
            progress.advance(bar)
    return found


def _report(found: list[QuickLook], trials: int) -> None:
    for one in found:
        if not one.sound:
            say(f"DEVIATES {one.task_id}: {one.deviation()}")
        first = {living.mutant.kind: living for living in reversed(one.domain.living)}
        for kind, living in reversed(first.items()):
            more = sum(other.mutant.kind == kind for other in one.domain.living) - 1
            say(f"  LIVES {living.told}" + (f"; {more} more of this kind" if more else ""))
    passed = sum(one.reference_passes for one in found)
    base = sum(one.kills[0] for one in found)
    known = [kills for one in found for kills in one.kills[1:]]
    asked = len(found) * trials
    say(f"reference     passed {passed} of {asked} trials")
    say(f"unrepaired    killed {base} of {asked} trials")
    say(f"known-bad     killed {sum(known)} of {len(known) * trials} trials")
    domains = [one.domain for one in found]
    alive = sum(len(survey.living) for survey in domains)
    killed, alike = sum(survey.killed for survey in domains), sum(survey.equivalent for survey in domains)
    undecided = sum(survey.undecided for survey in domains)
    say(
        f"domain        killed {killed} of {killed + alive} domain mutants "
        f"({alike} more are equivalent, {undecided} undecided)"
    )
    sound = sum(one.sound for one in found)
    say(f"{sound} of {len(found)} check sets are sound")


def load(source: str) -> TaskSet:
    """The task set of a `--source`: "catalogue", or the path of a JSON-lines file. Raises UserError."""
    if source == "catalogue":
        from services.tasks.build import build_catalogue

        return build_catalogue()
    from services.tasks.quixbugs import load_quixbugs

    return load_quixbugs(Path(source))


def _get(tasks: TaskSet, task_id: str, source: str) -> Fixture:
    try:
        return tasks.get(task_id)
    except UnknownTask as error:
        raise UserError(str(error), f"tasks of {source}", "see `rollstream tasks list`") from error
