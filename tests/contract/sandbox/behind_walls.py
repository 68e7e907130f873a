"""Run as a script inside the walls of an unprivileged pod: what jails do there, as one JSON document on stdout.

`MEMORY_MB` in its argument: the limit around all of it, which the last case runs into.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import Any

from services.runtime.jail.backend import open_backend
from services.runtime.jail.launcher import JailHost
from services.runtime.settings import Isolation
from services.verifier.attribution import Facts, attribute
from tests.attacks import battery
from tests.attacks.battery import GOOD, fail
from tests.contract.sandbox.channels import heard, places
from tests.contract.sandbox.test_cpu import SPIN
from tests.contract.sandbox.test_cpu import run as spinning

PROGRAMS = {
    "right": GOOD,
    "kills itself": "import os\ndef add(a, b):\n    os.kill(os.getpid(), 9)\n    return a + b\n",
    "kills all that it sees": "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass\n" + GOOD,
    "exits as if killed": "import os\ndef add(a, b): os._exit(137)\n",
    "faults": "import ctypes\ndef add(a, b): ctypes.string_at(0)\n",
    "child killed, parent lies": "import os\ndef add(a, b):\n    if os.fork() == 0: os.kill(os.getpid(), 9)\n    os.wait()\n    return 0\n",  # noqa: E501
    "memory of several": "import os, time\ndef add(a, b):\n    for _ in range(5):\n        if os.fork() == 0:\n            kept = bytearray(60 << 20)\n            time.sleep(9)\n    time.sleep(5)\n    return a + b\n",  # noqa: E501
    "shared memory of several": "import mmap, os, time\ndef add(a, b):\n    for _ in range(5):\n        if os.fork() == 0:\n            kept = mmap.mmap(-1, 60 << 20)\n            for at in range(0, 60 << 20, 4096): kept[at] = 1\n            time.sleep(9)\n    time.sleep(5)\n    return a + b\n",  # noqa: E501
    "memory of several that hide": "import ctypes, os, time\ndef add(a, b):\n    for _ in range(5):\n        if os.fork() == 0:\n            ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n            kept = bytearray(60 << 20)\n            time.sleep(9)\n    time.sleep(5)\n    return a + b\n",  # noqa: E501
    "memory that children share": "import os, time\nkept = bytearray(40 << 20)\ndef add(a, b):\n    pids = []\n    for _ in range(4):\n        pid = os.fork()\n        if pid == 0:\n            time.sleep(0.3)\n            os._exit(0)\n        pids.append(pid)\n    for pid in pids: os.waitpid(pid, 0)\n    return a + b\n",  # noqa: E501
    "forks": "import os, time\ndef add(a, b):\n    try:\n        while True:\n            if os.fork() == 0: time.sleep(30)\n    except OSError: pass\n    return a + b\n",  # noqa: E501
    "as many as it may": "import os, time\ndef add(a, b):\n    for _ in range(8):\n        if os.fork() == 0:\n            time.sleep(0.05)\n            os._exit(0)\n    for _ in range(8): os.wait()\n    return a + b\n",  # noqa: E501
    "spins in C": "import signal\nsignal.signal(signal.SIGPROF, signal.SIG_IGN)\ndef add(a, b):\n    while True: sum(range(10 ** 7))\n",  # noqa: E501
}
SLEEPS = "import time\ndef add(a, b):\n    time.sleep(8)\n    return a + b\n"
WAITS = replace(battery.BOUNDS, wall_s=12.0)


def told(facts: Facts) -> dict[str, Any]:
    """What matters of the facts, and what they are attributed to."""
    outcome, cause = attribute(facts)
    usage = facts.usage
    numbers = {"oom": usage.oom_kills, "processes": usage.pids_denied, "outer": usage.outer_kills, "cpu_s": usage.cpu_s}
    return {"outcome": outcome, "cause": cause, "evidence": facts.evidence, "killed": usage.killed, **numbers}


def unseen(host: JailHost, source: str) -> dict[str, Any]:
    """The same where nothing around counts the kernel's kills for memory."""
    real, host.surroundings.kills = host.surroundings.kills, lambda: None  # type: ignore[method-assign]  # for this one
    try:
        return told(battery.facts(host, fail("", "", source)))
    finally:
        host.surroundings.kills = real  # type: ignore[method-assign]  # as it was


def out_of_memory(host: JailHost, megabytes: int) -> dict[str, Any]:
    """A run during which a neighbour of its jail, in the same pod, takes all memory that is left."""
    found: list[Facts] = []
    run = threading.Thread(target=lambda: found.append(battery.facts(host, fail("", "", SLEEPS, bounds=WAITS))))
    run.start()
    time.sleep(1.0)
    eat = f"kept = [bytearray(1 << 20) for _ in range({megabytes})]\n"
    subprocess.run([sys.executable, "-I", "-S", "-c", eat], timeout=60)
    run.join()
    return told(found[0])


def main(megabytes: int) -> None:
    with open_backend(Isolation(backend="bubblewrap"), 4) as host:
        assert isinstance(host, JailHost)
        host.check()
        found: dict[str, Any] = {"evidence": host.evidence, "weaknesses": host.weaknesses, "user": os.getuid()}
        for function in ("f", "relay"):
            transcript, usage, _ = spinning(host, SPIN, function, *(["sessions"] if function == "f" else []))
            found[f"spinning: {function}"] = [transcript.ending, usage.cpu_s]
        found["wall"] = host.surroundings.memory_limit()
        for name, source in PROGRAMS.items():
            found[name] = told(battery.facts(host, fail("", name, source)))
        for name in ("exits as if killed", "faults", "spins in C"):
            found[f"unseen: {name}"] = unseen(host, PROGRAMS[name])
        if megabytes:
            found["out of memory"] = out_of_memory(host, megabytes)
            found["after"] = told(battery.facts(host, fail("", "", GOOD)))
        with open_backend(Isolation(backend="bubblewrap"), 2) as other:
            found["heard"] = [*heard(host, host), *heard(host, other)]
            found["shared"] = len(set(places(host)) & set(places(other)))
        found["retired"] = host.retired
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))
