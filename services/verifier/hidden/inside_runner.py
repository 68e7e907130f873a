"""Shipped into a jail: runs hidden tests beside the candidate, each in a process of its own (evidence E1).

The jail's worker imports this file under a random name and calls `answer`: once before any code of the candidate can
run (a failure there is infrastructure), then once per test. This process never imports the candidate; what a test's
process writes about itself is a claim, in a format drawn anew for every trial. Standard library and pytest only.
"""

import sys

sys.path.pop(0)  # the folder of the shipped files: whatever a candidate calls its modules, this process finds its own

import contextlib
import io
import os
import signal
from typing import Any

MAX_RECORD = 64 * 1024


class Silence(io.TextIOBase):
    """Where pytest reports to: the log is capped, and what the copies' failures fill it with is nobody's flood."""

    def write(self, text: str) -> int:
        return len(text)


class Recorder:
    """A pytest plugin that writes what each phase came to, in the words of one trial."""

    def __init__(self, job: "dict[str, Any]") -> None:
        self._job = job
        self._spoiled: set[str] = set()
        self.lines: list[str] = []

    def pytest_runtest_logreport(self, report: "Any") -> None:
        word = "xfail" if hasattr(report, "wasxfail") else report.outcome
        if hasattr(report, "context"):  # a subtest reports beside its test, which passes only when every part did
            if word == "passed":
                return
            if word == "failed":
                self._spoiled.add(report.nodeid)
        elif report.when == "call" and word == "passed" and report.nodeid in self._spoiled:
            word = "failed"
        folder, _, test = report.nodeid.partition("/")
        fields = {
            "label": self._job["labels"].get(folder, "?"),
            "word": self._job["words"].get(f"{report.when}.{word}", "?"),
            "test": test.encode().hex(),
        }
        self.lines.append(self._job["separator"].join(fields[name] for name in self._job["order"]))


def warm(job: "dict[str, Any]") -> str:
    """Import everything that pytest needs, while nothing of the candidate can be imported."""
    os.environ.update(job["environment"])
    sys.stdout = sys.stderr = Silence()
    import pytest

    code = pytest.main(job["arguments"])
    return "ready" if code == pytest.ExitCode.NO_TESTS_COLLECTED else f"pytest ended with {int(code)}"


def one(job: "dict[str, Any]", out: int) -> None:
    """In a test's own process: from here on everything is the candidate's to change."""
    import pytest

    os.closerange(3, out)
    os.closerange(out + 1, 4096)
    signal.setitimer(signal.ITIMER_PROF, job["cpu_s"])  # default action: the kernel ends the process
    sys.path.insert(0, job["candidate"])
    recorder = Recorder(job)
    pytest.main([*job["arguments"], *job["nodes"]], plugins=[recorder])
    with open(out, "w") as file:
        file.write("\n".join(recorder.lines))


def run(job: "dict[str, Any]") -> str:
    """What the process of one test wrote."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            one(job, write)
        finally:
            os._exit(0)
    os.close(write)
    found = b""
    while len(found) <= MAX_RECORD and (part := os.read(read, 65_536)):
        found += part
    os.close(read)
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, 9)  # this process is number 1 here: everything else that runs belongs to the test
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass
    return found[:MAX_RECORD].decode("ascii", "replace")


def answer(job: "dict[str, Any]") -> str:
    """The record of the test whose `nodes` are told; without them: warm up."""
    return run(job) if "nodes" in job else warm(job)
