"""The verifier as a process: killed amid check runs it changes no verdict and leaves nothing behind, and what it knows
of its check sets outlives it."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

import pytest

from schemas.topics import ROLLOUT_COMPLETED, VERIFICATION_ALARM, VERIFICATION_CANARY, VERIFICATION_VERDICT
from services.runtime.jail import cgroup
from services.runtime.jail.instance import labelled, lock_folder
from tests.services.jails import ADD_BUG, ADD_DIFF, ADD_FIX, add_check, completed
from tests.services.verifier.test_service import Bus, opened

SLOW = ADD_DIFF.replace("@@ -1,2 +1,2 @@", "@@ -1,2 +1,3 @@").replace(
    "+    return a + b", "+    __import__('time').sleep(0.05)\n+    return a + b"
)


def born(pid: int) -> str:
    """When a process was started, in clock ticks: with its number it names one process; empty once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def descendants(pid: int) -> dict[int, str]:
    """Everything below a process, across namespaces."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            parents[int(entry)] = int(fields[1])
    found: set[int] = set()
    while new := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= new
    return {child: born(child) for child in found}


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def instance_of(pid: int) -> int:
    """Which number of jail owner a process holds."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        target = Path(os.readlink(entry))
        if target.parent == lock_folder() and target.suffix == ".lock":
            return int(target.stem)
    raise AssertionError("the verifier holds no instance")


def left_behind(number: int) -> list[str]:
    """What bears the name of a jail owner that is gone; nothing is said where another process has its number by now."""
    with (lock_folder() / f"{number}.lock").open("r+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return []
        label = f"{cgroup.PREFIX}{number}"
        groups = [f"control group {group}" for group in cgroup.leftovers(cgroup.detect(), f"{label}-")]
        return groups + [f"process {pid}" for pid in labelled(label)]


def mounts() -> set[str]:
    """Mount points of this machine that belong to jails."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return {line.split()[1] for line in lines if "rollstream" in line}


def in_a_check_run(bus: Bus, pid: int, seconds: float = 60) -> dict[int, str]:
    """The verifier's processes at a moment when candidates run in jails (deeper than spawner and bubblewrap)."""
    end = time.monotonic() + seconds
    while True:
        found = descendants(pid)
        if len(found) >= 5:
            return found
        assert time.monotonic() < end, [path.read_text()[-2000:] for path in bus.folder.glob("*.log")]
        time.sleep(0.01)


def test_kill_9_amid_check_runs_changes_no_verdict_and_leaves_nothing(tmp_path: Path) -> None:
    before = mounts()
    with opened(tmp_path) as bus:
        verifier = bus.start("verifier")
        wanted = {}
        for member in range(8):
            right = member % 2 == 0
            diff = SLOW.replace("a + b", f"a + b + {member} - {member if right else 0}")
            wanted[f"run/00000000/{member}"] = "pass" if right else "fail"
            bus.send(ROLLOUT_COMPLETED, completed(bus.fixture, member, diff=diff))
        bus.read(VERIFICATION_VERDICT, lambda found: bool(found))
        running = in_a_check_run(bus, verifier.pid)
        numbers = {instance_of(verifier.pid)}
        verifier.kill()
        verifier.wait()
        verifier = bus.start("verifier")
        verdicts = bus.read(VERIFICATION_VERDICT, lambda found: {one.trial_id for one in found} >= wanted.keys())
        assert {one.trial_id: one.verdict for one in verdicts} == wanted
        assert len(verdicts) == len(wanted)  # each attempt was judged once, whatever was read again
        assert [pid for pid, at in running.items() if born(pid) == at] == []
        numbers.add(instance_of(verifier.pid))
        verifier.send_signal(signal.SIGTERM)
        assert verifier.wait(30) == 0
        assert [left for number in numbers for left in left_behind(number)] == []
    assert mounts() <= before


BROKEN = """
from services.runtime.jail import launcher, tree
from services.verifier import main as verifier
made = verifier.check_runner
def check_runner(host, settings):
    tree.WORKER = "/gone.pyc"  # the self-test is over: from here on no jail boots
    return made(host, settings)
verifier.check_runner = check_runner
"""


@pytest.mark.long
def test_a_pending_judgement_is_not_committed_and_is_given_anew_after_a_kill(tmp_path: Path) -> None:
    with opened(tmp_path, retry_backoff_s=600.0) as bus:
        verifier = bus.start("verifier", BROKEN)
        bus.send(ROLLOUT_COMPLETED, completed(bus.fixture, 0))
        bus.send(ROLLOUT_COMPLETED, completed(bus.fixture, 1, diff=None))
        first = bus.read(VERIFICATION_VERDICT, lambda found: len(found) >= 2)
        assert {one.trial_id[-1]: (one.verdict, one.cause, one.retry) for one in first} == {
            "0": ("pending", "no_boot", 1), "1": ("fail", "no_candidate", None)}  # fmt: skip
        time.sleep(1.5)  # commits come twice a second
        verifier.kill()
        verifier.wait()
        bus.start("verifier")
        last = bus.read(VERIFICATION_VERDICT, lambda found: len(found) >= 3)[-1]
        assert (last.trial_id[-1], last.verdict) == ("0", "pass")


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_quarantine_on_the_bus_outlives_the_process(tmp_path: Path) -> None:
    """The check set's reference is wrong: a canary finds it, and from then on nothing is concluded from it."""
    broken = add_check(reference={"solution.py": ADD_BUG}, known_bad=({"solution.py": ADD_BUG},))
    with opened(tmp_path, broken, canary_share=0.5) as bus:
        verifier = bus.start("verifier")
        for member in range(40):
            bus.send(ROLLOUT_COMPLETED, completed(bus.fixture, member, diff=ADD_DIFF.replace("a + b", f"a - {member}")))
        (alarm,) = bus.read(VERIFICATION_ALARM, lambda found: bool(found))
        assert (alarm.kind, alarm.severity, alarm.check_digest) == ("quarantine", "warn", broken.digest)
        verdicts = bus.read(VERIFICATION_VERDICT, lambda found: len({one.trial_id for one in found}) >= 40)
        assert {one.verdict for one in verdicts} <= {"fail", "unknown"}
        verifier.kill()
        verifier.wait()
        bus.start("verifier")
        bus.send(ROLLOUT_COMPLETED, completed(bus.fixture, 99))
        last = bus.read(VERIFICATION_VERDICT, lambda found: found[-1].trial_id.endswith("/99"))[-1]
        assert (last.verdict, last.cause, last.reward) == ("unknown", "quarantined", None)
        canaries = bus.read(VERIFICATION_CANARY, lambda found: bool(found))
        assert any(one.kind == "reference" and one.verdict == "fail" for one in canaries)
        assert len(bus.read(VERIFICATION_ALARM, lambda found: bool(found))) == 1


def test_a_known_bad_that_passes_stops_the_line_on_the_bus(tmp_path: Path) -> None:
    """The known-bad of this check set is right, as it would be if the verifier let anything pass."""
    unsound = add_check(reference={"solution.py": ADD_FIX}, known_bad=({"solution.py": ADD_FIX},))
    with opened(tmp_path, unsound, canary_share=0.5) as bus:
        bus.start("verifier")
        for member in range(40):
            bus.send(ROLLOUT_COMPLETED, completed(bus.fixture, member, diff=ADD_DIFF.replace("a + b", f"a - {member}")))
        alarms = bus.read(VERIFICATION_ALARM, lambda found: bool(found))
        assert {(one.kind, one.severity) for one in alarms} == {("soundness", "stop")}


KILLING = """
import os, signal
from services.verifier import trial
made = trial.run
def run(host, tree, check, seed, bounds):
    if "a + b + 0" in tree["solution.py"]:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when a whole pod runs out of memory
    return made(host, tree, check, seed, bounds)
trial.run = run
"""


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_candidate_that_kills_its_verifier_is_unknown_in_the_end_and_its_neighbour_is_judged(tmp_path: Path) -> None:
    with opened(tmp_path) as bus:
        bus.overrides["runtime"] = {"death_tries": 2}
        bus.send(ROLLOUT_COMPLETED, completed(bus.fixture, 0, diff=ADD_DIFF.replace("a + b", "a + b + 0")))
        bus.send(ROLLOUT_COMPLETED, completed(bus.fixture, 1, diff=SLOW))
        for _ in range(2):
            assert bus.start("verifier", KILLING).wait(60) == -signal.SIGKILL
            bus.running.clear()  # the next one takes its place, and its ready file with it
        bus.start("verifier", KILLING)
        verdicts = bus.read(VERIFICATION_VERDICT, lambda found: len({one.trial_id for one in found}) >= 2)
        assert {one.trial_id[-1]: (one.verdict, one.cause, one.reward is None) for one in verdicts} == {
            "0": ("unknown", "verifier_lost", True), "1": ("pass", "ok", False)}  # fmt: skip
        assert {one.attribution_evidence for one in verdicts} <= {None, "cgroup", "sampled", "rlimit"}
