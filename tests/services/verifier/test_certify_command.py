"""Protects the commands: what is written and when, exit codes, what an interruption keeps, messages for mistakes."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from services.runtime.errors import UserError
from services.tasks import certificates, commands
from services.tasks.build import build_catalogue
from services.tasks.certificates import Certificates
from services.tasks.taskset import CheckSets, TaskSet
from services.verifier.certify import command as certify_command
from tests.services.jails import jail_host


@pytest.fixture(scope="module", autouse=True)
def _sandboxes() -> None:
    for _ in jail_host(1):
        return


@pytest.fixture(scope="module")
def task_ids() -> list[str]:
    """One task of each of two problems."""
    checks = build_catalogue().checks
    return [next(check.task_id for check in checks if check.problem == key) for key in ("numbers/gcd", "numbers/fib")]


def invoke(*words: str):
    app = typer.Typer()
    certify_command.add_to(app)
    return CliRunner().invoke(app, list(words))


def test_what_is_certified_is_written_kept_and_counted(tmp_path: Path, task_ids: list[str]) -> None:
    out = tmp_path / "certificates.json"
    first = invoke("certify", task_ids[0], "--runs", "3", "--out", str(out))
    assert first.exit_code == 0, first.output
    assert "reference     passed 3 of 3 runs" in first.output
    assert "unrepaired    killed 5 of 5 runs" in first.output
    assert f"1 of 1 check-sets are certified: {out}" in first.output
    assert "domain mutants (" in first.output
    assert "survival      at most 0.0" in first.output
    before = out.read_bytes()
    again = invoke("certify", task_ids[0], "--runs", "3", "--out", str(out))
    assert "1 of 1 check-sets are certified, 1 of them before" in again.output
    assert out.read_bytes() == before
    assert invoke("certify", task_ids[0], "--runs", "2", "--out", str(out), "--replace").exit_code == 0
    kept = certificates.load(out.read_bytes())
    assert kept.by_task[task_ids[0]].version == 2
    assert [(change.version, change.why) for change in kept.history] == [(1, "certified again")]
    assert [path.name for path in tmp_path.iterdir()] == ["certificates.json"]


def test_certificates_without_domain_mutants_are_made_anew(tmp_path: Path, task_ids: list[str]) -> None:
    out = tmp_path / "certificates.json"
    assert invoke("certify", task_ids[1], "--runs", "2", "--out", str(out)).exit_code == 0
    (made,) = certificates.load(out.read_bytes()).by_task.values()
    old = dataclasses.replace(made, pool=dataclasses.replace(made.pool, domain=None))
    out.write_bytes(Certificates().updated([old], "").document())
    assert "not tried" in invoke("certificates", "--file", str(out)).output
    again = invoke("certify", task_ids[1], "--runs", "2", "--out", str(out))
    assert again.exit_code == 0, again.output
    (now,) = certificates.load(out.read_bytes()).by_task.values()
    assert (now.version, now.previous) == (2, old.digest)
    assert now.pool.domain is not None
    assert now.pool.domain.killed > 20
    (row,) = map(json.loads, invoke("certificates", "--file", str(out), "--json").output.splitlines())
    assert row["domain_mutants"]["killed"] == now.pool.domain.killed


@pytest.mark.long
def test_a_quarantine_is_printed_listed_and_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = build_catalogue()
    check = next(check for check in tasks.checks if check.problem == "numbers/gcd")
    spared = dataclasses.replace(check, known_bad=(check.reference, *check.known_bad))
    one = TaskSet("one", (), {}, CheckSets("one", {check.task_id: spared}))
    monkeypatch.setattr(certify_command, "load", lambda source: one)
    out = tmp_path / "certificates.json"
    ran = invoke("certify", "--all", "--runs", "2", "--out", str(out))
    assert ran.exit_code == 1
    assert f"QUARANTINED {check.task_id} (version 1): the unrepaired code passed at trial seed" in ran.output
    listed = invoke("certificates", "--file", str(out))
    assert listed.exit_code == 0
    assert f"QUARANTINED {check.task_id}" in listed.output
    assert "0 of 1 check-sets are certified" in listed.output
    (row,) = map(json.loads, invoke("certificates", "--file", str(out), "--json").output.splitlines())
    assert row["state"] == "quarantined"
    assert row["pooled_reference_runs"] == 2
    # The task's check-set is mended: another digest, the next version, and what was said before is kept.
    monkeypatch.setattr(certify_command, "load", commands.load)
    assert invoke("certify", check.task_id, "--runs", "2", "--out", str(out)).exit_code == 0
    kept = certificates.load(out.read_bytes())
    assert (kept.by_task[check.task_id].version, kept.by_task[check.task_id].state) == (2, "certified")
    (change,) = kept.history
    assert (change.state, change.why, change.check_digest) == (
        "quarantined",
        "the check-set changed",
        spared.digest,
    )


def test_a_seed_is_shown_again(tmp_path: Path, task_ids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = invoke("certify", task_ids[0], "--replay", "7")
    assert ran.exit_code == 0
    lines = ran.output.splitlines()
    assert len(lines) == 4
    answered = re.match(rf"{task_ids[0]}: the reference: pass \(ok\), ([0-9]+) of \1 calls answered", lines[0])
    assert answered, lines[0]
    assert int(answered[1]) > 32  # the fresh ones of old, and every stratum of the domain
    assert all(": fail (" in line for line in lines[1:])
    assert not list(tmp_path.iterdir())  # nothing is certified by it


def test_shipped_certificates_are_listed() -> None:
    listed = invoke("certificates")
    assert "644 of 644 check-sets are certified" in listed.output
    assert "numbers/gcd" in listed.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("certify",), "some tasks or all"),
        (("certify", "x", "--all"), "some tasks or all"),
        (("certify", "graphs/reach/cmp-999"), "near matches: graphs/reach/"),
        (("certify", "--all", "--source", "/no/such.jsonl"), "cannot read tasks"),
        (("certify", "--all", "--backend", "paper"), "isolation.backend"),
        (("certificates", "--file", "/no/such.json"), "cannot read certificates"),
        (("certificates", "--file", "/"), "cannot read certificates"),
        (("certify", "graphs/reach/cmp-000", "--out", "/"), "cannot read certificates"),
    ],
)
def test_wrong_words_give_one_message(words: tuple[str, ...], message: str) -> None:
    error = invoke(*words).exception
    assert isinstance(error, UserError), error
    assert message in str(error)
    assert error.do


def test_foreign_files_are_not_overwritten(tmp_path: Path, task_ids: list[str]) -> None:
    out = tmp_path / "notes.json"
    out.write_text("{}")
    assert isinstance(invoke("certify", task_ids[0], "--out", str(out)).exception, UserError)
    assert out.read_text() == "{}"


@pytest.mark.long
@pytest.mark.timeout(180)
def test_interruption_keeps_what_is_done(tmp_path: Path, task_ids: list[str]) -> None:
    out = tmp_path / "certificates.json"
    words = ["tasks", "certify", *task_ids, "--runs", "20", "--out", str(out)]
    ran = subprocess.Popen(
        [sys.executable, "-m", "services.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        while not out.exists() and ran.poll() is None:
            time.sleep(0.02)
        ran.send_signal(signal.SIGINT)
        said, _ = ran.communicate(timeout=60)
    finally:
        ran.kill()
        ran.wait()
    assert ran.returncode == 130, said
    assert list(certificates.load(out.read_bytes()).by_task) == [task_ids[0]]
    assert [path.name for path in tmp_path.iterdir()] == ["certificates.json"]
