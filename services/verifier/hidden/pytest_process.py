"""The trusted process that runs hidden tests: a script started by the verifier, with the interface as its module.

It holds no code of the candidate's and no way to it but the socket on fd 0, whose other end is the verifier. Frames in
both directions: 4 bytes length (little endian) + JSON. It asks, it reports what each test came to in order, it ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import resource
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_PR_SET_PDEATHSIG = 1
_MEMORY = 1 << 30
_FILE_BYTES = 64 << 20
_TEXT = 400


class Line:
    """The socket to the verifier."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def say(self, message: dict[str, Any]) -> None:
        """Send one frame; without a verifier there is nothing left to do."""
        raw = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode()
        data = len(raw).to_bytes(4, "little") + raw
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            os._exit(1)

    def hear(self) -> dict[str, Any]:
        """The next frame; does not return when the verifier has closed its end."""
        found: dict[str, Any] = json.loads(self._exactly(int.from_bytes(self._exactly(4), "little")))
        return found

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = os.read(self._fd, min(count, 1 << 20))
            if not part:
                os._exit(0)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def __call__(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ask the candidate."""
        self.say(question)
        return self.hear()


class Reporter:
    """The pytest plugin: orders the tests by the trial's seed and reports every phase."""

    def __init__(self, line: Line, seed: int) -> None:
        self._line = line
        self._random = random.Random(seed)

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome == "failed":
            self._line.say({"told": "collect", "id": report.nodeid, "text": _last(report.longrepr)})

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        self._random.shuffle(items)

    def pytest_collection_finish(self, session: Any) -> None:
        self._line.say({"told": "items", "ids": [item.nodeid for item in session.items]})

    def pytest_runtest_logreport(self, report: Any) -> None:
        outcome = "xfail" if hasattr(report, "wasxfail") else report.outcome
        told = "part" if hasattr(report, "context") else "phase"  # a subtest reports beside its test
        text = _last(report.longrepr) if outcome != "passed" else ""
        self._line.say({"told": told, "id": report.nodeid, "when": report.when, "outcome": outcome, "text": text})

    def pytest_internalerror(self, excrepr: Any) -> None:
        self._line.say({"told": "internal", "text": _last(excrepr)})


def _last(found: Any) -> str:
    try:
        return str(found)[-_TEXT:].encode("ascii", "replace").decode()
    except Exception as error:
        return type(error).__name__


def _bound(parent: int, cpu_s: int) -> None:
    """Die with the verifier; a runaway test must not take the host with it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    for kind, value in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def _install(module: ModuleType, name: str) -> None:
    """Put the interface where `import` finds it, below empty packages where the name is dotted."""
    package, _, last = name.rpartition(".")
    sys.modules[name] = module
    if package:
        above = sys.modules.get(package) or ModuleType(package)
        above.__path__ = []
        setattr(above, last, module)
        _install(above, package)


def main() -> None:
    """First frame: {"parent", "cpu_s", "module", "api", "seed", "arguments"}; "collect" (a mode): list them only."""
    sys.path.append(str(Path(__file__).resolve().parents[3]))  # last: the tests' own imports go first
    line = Line(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    job = line.hear()
    _bound(job["parent"], job["cpu_s"])
    import pytest

    from services.tasks import api
    from services.verifier.hidden import collector
    from services.verifier.hidden.interface import Interface

    random.seed(job["seed"])
    arguments, nobody = job["arguments"], collector.Nobody()
    plugin: object = Reporter(line, job["seed"])
    if "collect" in job:
        arguments, plugin = [*arguments, "--collect-only"], collector.Collector(line, nobody)
    if job.get("collect") == "inside":
        module = collector.anything(job["module"], nobody)
    else:
        asking = nobody if "collect" in job else line
        module = Interface(api.parse(job["api"]), asking).module(job["module"])
    _install(module, job["module"])
    line.say({"told": "hello"})
    line.hear()  # the candidate is imported, or this process is ended here
    code = pytest.main(arguments, plugins=[plugin])
    line.say({"told": "done", "code": int(code)})
    os._exit(0)


if __name__ == "__main__":
    main()
