"""CPU is counted and bounded while an answer is awaited, however the processes of a candidate are grouped."""

from __future__ import annotations

import os
import time

import pytest

from services.runtime.jail.backend import Backend, own_processes
from services.runtime.jail.limits import Limits, Usage
from services.runtime.jail.session import Program, Server, Transcript, run_trial
from tests.contract.sandbox.asking import BOOT_S, ask

SPIN = """
import os, signal, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
def f(how):
    for number in range(14):
        if os.fork():
            if how == "daemons": os.wait()
            continue
        if how == "groups": os.setpgid(0, 0)
        if how == "sessions": os.setsid()
        if how == "daemons":
            os.setsid()
            if os.fork(): os._exit(0)
        burn(60)
        os._exit(0)
    time.sleep(30)
def relay():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if os.fork() == 0:
            burn(0.06)
            os._exit(0)
        try: os.wait()
        except ChildProcessError: pass
"""
LIMITS = Limits(processes=16)
CALL_S = 0.15
MOST_S = 2.0
"""Twice a call's limit, and what can be spent until that is seen on a busy machine; 14 spinners took 9.8 s before."""


def run(backend: Backend, source: str, function: str, *args: str) -> tuple[Transcript, Usage, float]:
    jail = backend.launch(LIMITS)
    began = time.monotonic()
    try:
        transcript = run_trial(
            jail, LIMITS, Program({"m.py": source}, "m", function), [args], lambda i, a: True, CALL_S, CALL_S, 8.0,
            BOOT_S, own_processes(backend, LIMITS),
        )  # fmt: skip
    finally:
        usage = jail.close()
    return transcript, usage, time.monotonic() - began


@pytest.mark.parametrize("how", ["one group", "groups", "sessions", "daemons"])
def test_children_that_spin_end_the_run(backend: Backend, how: str) -> None:
    transcript, usage, took_s = run(backend, SPIN, "f", how)
    assert (transcript.ending, transcript.answered) == ("limit", 0)
    assert took_s < 6.0
    assert usage.cpu_s is None or usage.cpu_s < MOST_S


def test_children_that_take_turns_end_it_too(backend: Backend) -> None:
    transcript, usage, _ = run(backend, SPIN, "relay")
    assert transcript.ending == "limit"
    assert usage.cpu_s is None or usage.cpu_s < MOST_S


def test_so_do_those_of_an_import_and_those_left_after_the_last_answer(backend: Backend) -> None:
    for source, function in (
        (SPIN + "f('sessions')", "f"),
        (SPIN + "import threading\ndef g(how): threading.Thread(target=f, args=(how,), daemon=False).start()\n", "g"),
    ):
        transcript, usage, _ = run(backend, source, function, "sessions")
        assert transcript.ending in ("limit", "complete") if function == "g" else transcript.ending == "limit"
        assert usage.cpu_s is None or usage.cpu_s < MOST_S


def test_and_those_of_an_exploration(backend: Backend) -> None:
    jail = backend.launch(LIMITS)
    try:
        server = Server(jail, LIMITS, BOOT_S, own_processes(backend, LIMITS))
        before = jail.cpu_s()
        transcript = server.run(Program({"m.py": SPIN}, "m", "f"), [("sessions",)], CALL_S, 8.0)
        after = jail.cpu_s()
    finally:
        jail.close()
    assert (transcript.ending, server.usable) == ("limit", False)
    assert before is None or after is None or after - before < MOST_S


def test_a_neighbour_gets_its_answers_meanwhile(backend: Backend) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one processor")
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        spinning = pool.submit(run, backend, SPIN, "f", "sessions")
        assert ask(backend, "def f(a): return a", 3).value == 3
        assert spinning.result()[0].ending == "limit"
