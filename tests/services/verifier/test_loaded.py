"""Protects honest candidates from the machine: under load no fail and no unknown; in a broken sandbox never a fail."""

from __future__ import annotations

import threading

import pytest

from services.runtime.jail import tree
from services.runtime.jail.launcher import JailHost
from services.tasks.build import build_catalogue
from services.tasks.taskset import TaskSet
from services.verifier.certify.load import busy
from tests.services.verifier.live import Live, references

HOGS = 6
REPETITIONS = 24
"""Each is a verdict of three check runs; `tests/bench/loaded_bench.py` does 200."""


@pytest.fixture(scope="module")
def tasks() -> TaskSet:
    return build_catalogue(0)


@pytest.mark.long
def test_honest_references_on_a_loaded_machine_only_pass(host: JailHost, tasks: TaskSet) -> None:
    live = Live(host, tasks)
    with busy(HOGS):
        for number, (fixture, diff) in enumerate(references(tasks, REPETITIONS)):
            live.give(fixture, number, diff)
        verdicts = live.settle()
    assert verdicts["pass"] == REPETITIONS
    assert verdicts.keys() <= {"pass", "pending"}
    assert live.core.standing.count("stop") == live.core.standing.count("warn") == 0


def test_a_broken_sandbox_gives_pending_and_then_unknown(
    host: JailHost, tasks: TaskSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "WORKER", "/gone.pyc")
    live = Live(host, tasks, infra_retries=2)
    for number, (fixture, diff) in enumerate(references(tasks, 6)):
        live.give(fixture, number, diff)
    assert live.settle() == {"pending": 12, "unknown": 6}
    assert live.core.standing.count("stop") == live.core.standing.count("warn") == 0


def test_a_sandbox_that_keeps_dying_never_makes_a_fail(host: JailHost, tasks: TaskSet) -> None:
    """Its spawner is killed over and over: jails die at every moment of a check run, and honest candidates still pass
    or are unknown."""
    live = Live(host, tasks, infra_retries=3)
    stop = threading.Event()

    def killer() -> None:
        while not stop.wait(0.05):
            host._process.kill()

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        for number, (fixture, diff) in enumerate(references(tasks, 16)):
            live.give(fixture, number, diff)
        verdicts = live.settle()
    finally:
        stop.set()
        thread.join()
    assert verdicts["pass"] + verdicts["unknown"] == 16
    assert verdicts["fail"] == 0
    assert verdicts["pending"] > 0
    assert live.core.standing.count("stop") == 0
