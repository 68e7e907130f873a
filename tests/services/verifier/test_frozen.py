"""A verifier that was stopped in a check run (SIGSTOP, a paused machine) does not hold that against the candidate."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUN = """
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, Limits
from services.tasks.fixture import Example
from services.verifier import trial
from services.verifier.attribution import attribute
from tests.services.jails import add_check

cases = tuple(Example((n, 1), n + 1) for n in range(20))
check = add_check(fixed_cases=cases, cases_per_trial=20)
bounds = trial.Bounds(Limits(memory_bytes=96 * MIB, processes=12, cpu_s=2), call_cpu_s=0.2, wall_s=WALL)
source = "import time\\ndef add(a, b):\\n    time.sleep(PAUSE)\\n    return a + b\\n"
with JailHost(2) as host:
    print("begins", flush=True)
    facts = trial.run(host, {"solution.py": source}, check, 1, bounds)
    print(*attribute(facts), f"{facts.answered}/{facts.wanted}", round(facts.wall_s), flush=True)
"""


def judged(wall_s: float, pause_s: float, frozen_s: float) -> str:
    """Outcome of a check run of 20 calls of `pause_s`, whose verifier is stopped early on for `frozen_s`."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap (bwrap) is not installed: apt-get install bubblewrap")
    script = RUN.replace("WALL", str(wall_s)).replace("PAUSE", str(pause_s))
    child = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "begins\n"
        time.sleep(0.7)  # the jail boots in a tenth of that and the calls take seconds
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(frozen_s)
        os.kill(child.pid, signal.SIGCONT)
        return child.communicate(timeout=60)[0].strip()
    finally:
        child.kill()
        child.wait()


def test_frozen_past_its_deadline_a_verifier_still_hears_the_right_answers():
    assert judged(wall_s=4.0, pause_s=0.1, frozen_s=4.5).startswith("pass ok ")


def test_a_candidate_that_takes_its_time_meets_the_deadline_all_the_same():
    outcome = judged(wall_s=2.0, pause_s=0.3, frozen_s=0.5)
    assert outcome.startswith("fail timeout")
    assert outcome.endswith(" 2"), "seconds waited"
