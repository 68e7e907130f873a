"""No death of a jail owner, at any moment, leaves a process, mount, control group or folder behind the next start."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from services.runtime.jail import tree
from services.runtime.jail.instance import Instance, labelled, lock_folder
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import Limits
from services.runtime.scratch import Scratch

ROOT = Path(__file__).parents[3]

# Three jails at work for good, of which one runs candidates that outlive their call; two threads that start, use, reset
# and end jails as fast as they can, so that a random moment finds every stage of a jail's life.
OWNER = """
import json, sys, threading, time
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import Limits
from services.runtime.jail.session import Program, Server
from services.sandbox.pool import Pool
host = JailHost(8)
source = (
    "import os, time\\nfor _ in range(3):\\n    if os.fork() == 0:\\n        os.setsid()\\n        time.sleep(600)\\n"
    "time.sleep(600)\\n"
)
hangs = Program({"m.py": source}, "m", "f")
jails = [host.launch(Limits()) for _ in range(3)]
servers = [Server(jail, Limits(), 15.0) for jail in jails]
threading.Thread(target=lambda: servers[0].run(hangs, [(1,)], 5.0, 60.0), daemon=True).start()
pool = Pool(host, Limits(), 1)
writes = Program({"m.py": "def f(x): open('/tmp/left', 'w').write('x')\\n"}, "m", "f")
def churn(number):
    while True:
        files = {f"p/f{index}.py": f"{number}\\n" for index in range(12)} if number else {}
        warm = pool.take(files, f"tree-{number}" if number else "")
        warm.server.run(writes, [(1,)], 5.0, 60.0)
        warm.runs += 1
        pool.give(warm)
        number += 1 if number else 0
for number in (0, 1):
    threading.Thread(target=churn, args=(number,), daemon=True).start()
while len(host.instance.label) and sum(len(jail.members()) for jail in jails) < 6 and host.layout.version:
    time.sleep(0.01)
time.sleep(float(sys.argv[1]))
members = sorted(set().union(*[jail.members() for jail in jails]))
print(json.dumps({"label": host.instance.label, "members": members, "spawner": host.spawner_pid}), flush=True)
time.sleep(600)
"""


def _gone(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    return True


def _held(number: int) -> bool:
    """Whether a living process has the instance number: other jail owners run on this machine too."""
    with (lock_folder() / f"{number}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _stages(label: str) -> list[int]:
    """Processes of this label that see a jail's private mount."""
    found = []
    for pid in labelled(label):
        with contextlib.suppress(OSError):
            if f"{tree.cache_folder()}/stage " in Path(f"/proc/{pid}/mountinfo").read_text():
                found.append(pid)
    return found


def _until(what: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(
    ("victim", "after_s"), [("service", 0.0), ("service", 0.13), ("service", 0.31), ("spawner", 0.2)]
)
def test_kill_9_leaves_nothing_behind_the_next_start(host: JailHost, victim: str, after_s: float) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER), str(after_s)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        told = json.loads(owner.stdout.readline())
        label, number = told["label"], int(told["label"].rpartition("-")[2])
        if host.layout.version:
            assert len(told["members"]) >= 6
        if host.private_mounts:
            assert _stages(label), "the jails have mounts that must go"
        os.kill(owner.pid if victim == "service" else told["spawner"], signal.SIGKILL)
        processes = [*told["members"], told["spawner"]]
        assert _until(lambda: all(map(_gone, processes))), [pid for pid in processes if not _gone(pid)]
    finally:
        owner.kill()
        owner.wait()
    assert str(tree.cache_folder() / "stage") not in Path("/proc/self/mountinfo").read_text()
    with JailHost(1) as after:
        if after.instance.number != number and _held(number):
            return  # somebody else took the number, and swept at its own start
        assert labelled(label) == []
        prefix, mine = f"{label}-", f"{after.instance.label}-"
        groups = [path.name for parent in after.layout.parents.values() for path in parent.iterdir()]
        assert [name for name in groups if name.startswith(prefix) and not name.startswith(mine)] == []
        folder = tree.cache_folder() / f"trees-{number}"
        assert list(folder.iterdir()) == [] if after.instance.number == number else not folder.exists()
        if after.layout.version:
            assert any("control group" in found for found in after.swept)
        if host.shows_files:
            assert f"folder trees-{number}" in after.swept


def test_a_half_staged_interpreter_of_a_dead_process_is_removed() -> None:
    """Known by its lock and not by a number, which comes again and which another container has, too."""
    program = "import os, sys\nfrom pathlib import Path\nfrom services.runtime.scratch import Scratch\n"
    program += "made = Scratch('building', Path(sys.argv[1]))\nprint(made.path, flush=True)\nos.kill(os.getpid(), 9)\n"
    line = [sys.executable, "-c", program, str(tree.cache_folder())]
    with Scratch("building", tree.cache_folder()) as ours:
        left = Path(subprocess.run(line, stdout=subprocess.PIPE, text=True, timeout=60).stdout.strip())
        assert left.is_dir()
        with JailHost(1):
            assert not left.exists()
            assert ours.exists(), "its process is alive"


def test_a_jail_that_is_killed_takes_its_mounts_along(host: JailHost) -> None:
    if not host.private_mounts:
        pytest.skip("only root's jails have mounts of their own")
    jail = host.launch(Limits())
    assert _until(lambda: bool(_stages(host.label)))
    os.kill(jail.pid, signal.SIGKILL)
    assert _until(lambda: jail.pid not in _stages(host.label))
    jail.close()
    assert isinstance(host.instance, Instance)
    assert str(tree.cache_folder() / "stage") not in Path("/proc/self/mountinfo").read_text()
