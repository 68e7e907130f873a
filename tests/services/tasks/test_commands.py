"""Protects the command line: what is listed and shown, exit codes, and one clear message for a wrong word."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.runtime.errors import UserError
from services.tasks import commands
from services.tasks.build import build_catalogue
from services.tasks.quick_look import QuickLook
from services.tasks.taskset import HELDOUT_BUGS


def invoke(*words: str):
    return CliRunner().invoke(commands.app, list(words))


def test_list_filters_and_counts() -> None:
    tasks = build_catalogue()
    ran = invoke("list", "--split", HELDOUT_BUGS, "--family", "graphs")
    assert ran.exit_code == 0
    wanted = [fixture for fixture in tasks.split(HELDOUT_BUGS) if fixture.family == "graphs"]
    assert f"{len(wanted)} tasks ({len(wanted)} heldout_bugs)" in ran.stdout
    rows = [json.loads(line) for line in invoke("list", "--json").stdout.splitlines()]
    assert [row["task_id"] for row in rows] == [fixture.task_id for fixture in tasks.fixtures]


def test_show_prints_the_public_half_only() -> None:
    fixture = build_catalogue().split(HELDOUT_BUGS)[0]
    shown = invoke("show", fixture.task_id).stdout
    assert " ".join(fixture.domain.split())[:60] in " ".join(shown.split())
    for text in (fixture.digest, fixture.check_digest, fixture.first_failure, "solution.py", "160 tokens"):
        assert text in shown
    reference = build_catalogue().checks.get(fixture.task_id).reference["solution.py"].splitlines()
    missing = [line for line in reference if line.strip() not in shown]
    assert len(missing) == 1  # the repaired line is not there


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "graphs/reach/cmp-999"), "near matches: graphs/reach/"),
        (("check", "nothing-like-it"), "unknown task"),
        (("check",), "one task or all"),
        (("check", "x", "--all"), "one task or all"),
        (("list", "--split", "test"), "unknown split"),
        (("list", "--family", "magic"), "unknown family"),
        (("list", "--source", "/no/such.jsonl"), "cannot read tasks"),
    ],
)
def test_wrong_words_give_one_message(words: tuple[str, ...], message: str) -> None:
    error = invoke(*words).exception
    assert isinstance(error, UserError)
    assert message in str(error)
    assert error.do


def test_bad_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("{}\n")
    error = invoke("list", "--source", str(path)).exception
    assert isinstance(error, UserError)
    assert "bad.jsonl, line 1: 'name' must be text" in str(error)


def test_check_reports_kills() -> None:
    ran = invoke("check", fib(), "--trials", "2")
    assert ran.exit_code == 0
    assert "unrepaired    killed 2 of 2 trials" in ran.stdout
    assert "1 of 1 check sets are sound" in ran.stdout


def fib() -> str:
    return next(fixture.task_id for fixture in build_catalogue().fixtures if fixture.entry == "fib")


def test_check_exits_1_on_a_deviation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen reaches the exit code."""

    def spared(bench, check, trials):
        return QuickLook(check.task_id, trials, trials, (0, trials, trials))

    monkeypatch.setattr("services.tasks.quick_look.look", spared)
    ran = invoke("check", fib())
    assert ran.exit_code == 1
    assert "DEVIATES" in ran.stdout
    assert "the unrepaired base passed 3 of 3 trials" in ran.stdout
