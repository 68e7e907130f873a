"""Protects the verdict against who wants to be called infrastructure: on a loaded machine, where a starved host is
believable, every way to look like one's victim is still the candidate's fail."""

from dataclasses import replace

import pytest

from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, Limits
from services.verifier import trial
from services.verifier.attribution import attribute
from services.verifier.certify.load import busy
from tests.services.jails import add_check

LIMITS = Limits(128 * MIB, 12, cpu_s=3)
IDLE_S, BUSY_S = 1.0, 6.0
"""Wall clock of a check run: who does nothing is late at any deadline, who spins must have had its share by then."""
CHECK = add_check()
TRY = """
import os, signal, sys, threading, time
def attempt(f, *args):
    try:
        f(*args)
    except BaseException:
        pass
def spin():
    while True:
        pass
def spinners(count):
    for _ in range(count):
        if os.fork() == 0:
            spin()
def add(a, b):
"""
TRICKS = {
    "comes last on purpose, then spins": "attempt(os.nice, 19); spin()",
    "asks for the idle scheduler, then spins": """
    attempt(os.sched_setscheduler, 0, os.SCHED_IDLE, os.sched_param(0)); spin()""",
    "is idle, and only its children spin": """
    attempt(spinners, 4)
    while True: os.sched_yield()""",
    "yields for ever": "\n    while True: os.sched_yield()",
    "stops itself": "os.kill(0, signal.SIGSTOP); time.sleep(60)",
    "sleeps": "time.sleep(60)",
    "threads fight for the interpreter": """
    for _ in range(6): threading.Thread(target=spin, daemon=True).start()
    time.sleep(60)""",
    "says what a broken engine would say": """
    sys.stderr.write("error response from daemon: no space left on device\\n"); os._exit(137)""",
    "kills everybody it can see": "os.kill(-1, signal.SIGKILL); os.kill(os.getppid(), signal.SIGKILL)",
    "closes everything": "os.closerange(0, 256); time.sleep(60)",
}


TRIES = 4


@pytest.mark.parametrize("name", TRICKS)
def test_no_trick_is_taken_for_infrastructure(host: JailHost, name: str) -> None:
    body = TRICKS[name] if TRICKS[name].startswith("\n") else f"    {TRICKS[name]}"
    bounds = trial.Bounds(LIMITS, 0.1, IDLE_S if body.endswith("time.sleep(60)") and "spin" not in body else BUSY_S)
    for _ in range(TRIES):  # what a loaded host starves has no verdict, and is asked again with more time
        with busy(4):
            facts = trial.run(host, {"solution.py": f"{TRY}{body}\n"}, CHECK, 1, bounds)
        outcome, cause = attribute(facts)
        if cause != "host_starved":
            break
        bounds = replace(bounds, wall_s=2 * bounds.wall_s)
    assert outcome == "fail", facts
    assert cause not in ("import_error", "syntax_error", "no_ready"), facts
