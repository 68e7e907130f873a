"""Ask code in a jail of any backend one question; read the answer, the ending and what the kernel counted."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from services.runtime.jail.backend import PLAIN, Backend, Jail, Options, own_processes
from services.runtime.jail.limits import Limits, Usage
from services.runtime.jail.session import Conversation, Pace, Program, Server, Transcript, run_trial

BOOT_S = 60.0
NAMES = ("OSError", "MemoryError", "ImportError", "Exception")


@dataclass
class Asked:
    """The transcript, and the kernel's evidence once the jail is closed."""

    transcript: Transcript
    usage: Usage

    @property
    def ending(self) -> str:
        return self.transcript.ending

    @property
    def value(self) -> Any:
        """The answer: text as it is, a whole number as int."""
        assert self.transcript.answers, self.transcript
        answer = self.transcript.answers[0]
        assert answer.kind == "r", answer
        found = json.loads(answer.text)
        return int(found["i"]) if isinstance(found, dict) else found


LIMITS = Limits()


def ask(
    backend: Backend, source: str, *args: Any, limits: Limits = LIMITS, options: Options = PLAIN, wall_s: float = 60.0
) -> Asked:
    """`f(*args)` of a module in a fresh jail."""
    jail = backend.launch(limits, options)
    try:
        transcript = run_trial(
            jail, limits, Program({"m.py": source}, "m", "f", exception_names=NAMES), [args], lambda i, a: True,
            8.0, 8.0, wall_s, BOOT_S, own_processes(backend, limits),
        )  # fmt: skip
    finally:
        usage = jail.close()
    return Asked(transcript, usage)


def begin(backend: Backend, source: str, limits: Limits = LIMITS) -> Jail:
    """A jail that has imported the module and waits for a question that never comes. The caller closes it."""
    jail = backend.launch(limits)
    processes = own_processes(backend, limits)
    asked = Conversation(jail, limits, Pace(8.0, 8.0, 60.0, 600.0, BOOT_S), processes)
    assert asked.start(Program({"m.py": source + "\ndef f(): pass\n"}, "m", "f")), asked.transcript
    return jail


FETCH = """
import urllib.error, urllib.request
def f(url, body):
    try:
        with urllib.request.urlopen(url, body.encode() or None, timeout=30) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"
    except OSError as error:
        return f"{type(error).__name__} {error}"
    return text if len(text) < 100 else f"{len(text)} {text == body * 3}"
"""


@contextlib.contextmanager
def serving(backend: Backend, options: Options) -> Iterator[Server]:
    """The fork server of a jail, as exploration uses it."""
    jail = backend.launch(LIMITS, options)
    try:
        processes = own_processes(backend, LIMITS)
        yield Server(jail, LIMITS, BOOT_S, processes, proxy=bool(options.hosts))
    finally:
        jail.close()


def ran(server: Server, source: str, *args: Any) -> Transcript:
    """`f(*args)` of a module as one run of the server."""
    return server.run(Program({"m.py": source}, "m", "f", exception_names=NAMES), [args], 20.0, 60.0)


def said(server: Server, source: str, *args: Any) -> Any:
    """The text that it returns, as the one answer of a run without a fault."""
    transcript = ran(server, source, *args)
    assert transcript.ending == "complete", transcript
    assert [answer.kind for answer in transcript.answers] == ["r"], transcript
    return json.loads(transcript.answers[0].text)
