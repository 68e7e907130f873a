"""What hostile records, files and names can do to a screen, a page or a figure: nothing but be read."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from infra.local.run import Display
from schemas import codec
from schemas.record import Record
from schemas.verification import VerificationAlarm, VerificationCanary
from services.monitor.report import write_report
from services.runtime import screen
from services.runtime.settings import load
from tests.infra.local.finished import ROOT, finished_run, rollstream
from tests.services.monitor.synthetic import Run, time_of

UNSEEN = "\x1b[9;53mX\x9b9mX\x07\x7f\x85\u202e\u2028\u2029\u200b\u2066\ufeff\U000e0041\ufe0f\u3164\u034f"
EVIL = (
    f"{UNSEEN}\r\nALARM (stop): [bold][/x] :bomb: $\\frac{{$ | `b` <script>alert(1)</script> [a](http://evil.example)"
)
HUGE = 2**62
TRIAL = "demo/00000000/0"
KEPT = {"run_id", "group_id", "trial_id", "invocation_id", "parent_id", "operation_id", "member_trials", "group_ids"}
"""Without these a record would belong to no trial, and nobody would look at it."""
LOOKS = [
    "tap all", "tap all --full", "tap all --json", "tap all --json --full", f"trial {TRIAL}", f"trial {TRIAL} --full",
    f"trial {TRIAL} --json", "verdicts", "verdicts --json", "audit", "recorded",
]  # fmt: skip


def hostile(record: Record, text: str, number: int, real: float) -> Record | None:
    """The record with every free field set; None where the contract does not let it through."""
    by_type = {pa.utf8(): text, pa.int64(): number, pa.float64(): real}
    changed: dict[str, object] = {}
    for spec in record.TYPE.fields:
        value = getattr(record, spec.name)
        if spec.name in KEPT or spec.choices is not None:
            continue
        if spec.kind == "scalar" and spec.arrow in by_type:
            changed[spec.name] = by_type[spec.arrow]
        elif spec.kind == "list" and spec.arrow.value_type in by_type:
            aligned = any(spec.name in names for names in record.TYPE.aligned)
            count = len(value) if aligned and value is not None else 3
            changed[spec.name] = None if aligned and value is None else (by_type[spec.arrow.value_type],) * count
    for least in (changed, {k: v for k, v in changed.items() if isinstance(v, str)}):
        made = dataclasses.replace(record, **least)  # type: ignore[type-var]
        try:
            codec.encode(made)
        except codec.ContractViolation:
            continue
        return made
    return None


def hostile_records() -> list[Record]:
    """A run's records, each in several hostile forms, and what the verifier says beside them."""
    canary = VerificationCanary(
        "demo", "c", "known_bad", "t", "c", "v", "d", None, None, "fail", "pass", "ok", 3, None, 1, 2
    )
    alarm = VerificationAlarm("demo", "a", "soundness", "stop", "t", "c", None, 1, 10, None, "why", 5)
    honest = [*Run(updates=1, groups_per_update=2).build(), canary, alarm]
    forms = [(EVIL, 7, 0.5), (EVIL * 20, HUGE, float("nan")), ("x", -HUGE, float("inf")), ("y", -(2**63), 1e308)]
    found = [hostile(record, *form) for form in forms for record in honest]
    assert sum(record is not None for record in found) > len(honest)
    return [record for record in found if record is not None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [*Run(updates=1, groups_per_update=2).build(), *hostile_records()]
    return finished_run(tmp_path_factory.mktemp("screens") / "run", sorted(records, key=lambda r: max(0, time_of(r))))


def unfit(data: bytes, coloured: bool = False) -> set[str]:
    """Characters that are neither printable nor a line's end."""
    text = data.decode()
    if coloured:
        text = re.sub(r"\x1b\[(?!9;53)[0-9;]*m", "", text).replace("\r\n", "\n")
    hidden = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    return {c for c in text if c != "\n" and (unicodedata.category(c) in hidden or c in "\ufe0f\u3164\u034f\U000e0041")}


@pytest.mark.parametrize("look", LOOKS)
def test_no_look_lets_a_record_write_to_the_terminal(folder: Path, look: str) -> None:
    done = rollstream(*look.split(), "--run-dir", folder)
    assert not unfit(done.stdout)
    assert not unfit(done.stderr)
    assert b"Traceback" not in done.stderr, done.stderr
    if look == "recorded":
        return
    assert done.stdout
    assert b"\nALARM (stop): [bold]" not in done.stdout, "a record's line break begins no line"
    if "--json" in look:
        decoder, rest, documents = json.JSONDecoder(), done.stdout.decode(), 0
        while rest.strip():
            _, end = decoder.raw_decode(rest.lstrip())
            rest, documents = rest.lstrip()[end:], documents + 1
        assert documents
    elif "full" not in look:
        assert max(map(len, done.stdout.splitlines())) < 40_000


@pytest.mark.parametrize("look", ["tap all", f"trial {TRIAL}", "verdicts", "audit"])
def test_nor_to_a_terminal_that_shows_colours(folder: Path, look: str) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "services.cli", *look.split(), "--run-dir", str(folder)]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT)
    os.close(slave)
    shown = b"".join(_chunks(master))
    os.close(master)
    assert process.wait(60) in (0, 1)
    assert not unfit(shown, coloured=True)
    assert "\\x1b[9;53m" in re.sub(r"\s", "", shown.decode())


def _chunks(fd: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:  # the other end is closed
            return
        if not data:
            return
        yield data


def test_messages_about_hostile_names_are_escaped(tmp_path: Path) -> None:
    place = tmp_path / EVIL.replace("/", "_")[:80]
    place.mkdir()
    (place / "tasks.jsonl").write_text(json.dumps({"name": EVIL, "code": EVIL}) + "\n")
    (place / "certificates.json").write_text(json.dumps({"format": EVIL}))
    (place / "run.toml").write_text(f"[tasks]\n{json.dumps(EVIL)} = 1\n")
    for arguments in (
        ("audit", place), ("tap", EVIL, "--bootstrap", EVIL), ("trial", EVIL), (EVIL,), ("tap", "all", "--limit", EVIL),
        ("tasks", "list", "--source", place / "tasks.jsonl"), ("tasks", "show", EVIL),
        ("tasks", "certificates", "--file", place / "certificates.json"), ("topics", "--config", place / "run.toml"),
        ("restore", place, "--run-dir", tmp_path / "again"), ("run", "--set", EVIL, "--run-dir", place / "run"),
    ):  # fmt: skip
        done = rollstream(*arguments)
        assert done.returncode in (1, 2), arguments
        assert not unfit(done.stdout), arguments
        assert not unfit(done.stderr), arguments
        assert done.stderr.startswith(b"rollstream: "), done.stderr
        assert all(line.startswith("  ") for line in done.stderr.decode().splitlines()[1:]), done.stderr


def test_tasks_of_somebody_else_are_shown_as_text(tmp_path: Path) -> None:
    line = json.loads((ROOT / "tests/infra/local/evil_task.json").read_text())
    source = tmp_path / "tasks.jsonl"
    source.write_text(json.dumps(line) + "\n")
    listed = rollstream("tasks", "list", "--source", source, "--json")
    assert listed.returncode == 0, listed.stderr
    for arguments in (("list",), ("list", "--json"), ("show", json.loads(listed.stdout.splitlines()[0])["task_id"])):
        done = rollstream("tasks", *arguments, "--source", source)
        assert done.returncode == 0, done.stderr
        assert not unfit(done.stdout)


def test_the_panel_and_the_lines_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(load(None))
    for record in hostile_records():
        display.progress.feed(record, 1)
    display.console.print(display.progress.panel())
    display.refresh()
    display.say(display.progress.line())
    display.preparation({"event": EVIL, "text": EVIL})
    shown = capsys.readouterr().out
    assert not unfit(shown.encode())
    assert "[bold]" in shown


def test_the_report_shows_hostile_text_as_text(tmp_path: Path) -> None:
    extra = {"coldstart": {EVIL: EVIL, "steps": [[1, EVIL]]}, "restarts": {EVIL: 2}, "versions": {"git": EVIL}}
    records = [*Run(updates=2).build(), *hostile_records()]
    page = write_report(records, tmp_path, load(None), extra).read_text()
    assert not unfit(page.encode())
    text = re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE))
    assert "<script" not in text
    assert "](http" not in text.replace("\\](http", "")
    assert "http://evil" not in text
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in page.splitlines() if line.startswith("|")]
    assert set(widths) <= {3, 4, 5, 6, 7, 8}
    for figure in re.findall(r"\]\((plots/\w+\.png)\)", page):
        assert (tmp_path / figure).exists()
    assert "ParseFatalException" not in page, "a dollar sign begins no formula"


def test_what_is_shown_is_bounded() -> None:
    assert len(screen.cell("a" * 10**6)) < 1_000
    assert screen.cell("a" * 10**6).endswith("(+999600)")
    assert "\n" not in screen.cell(EVIL)
    assert screen.cell("ü 日本 ж") == "ü 日本 ж"
    assert screen.cell("\ud800") == "\\ud800"
    assert len([c for c in screen.cell("z" + "\u0337" * 50) if c == "\u0337"]) == 2
    assert screen.clock(HUGE) == f"({HUGE} ms)"
