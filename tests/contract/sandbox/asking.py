"""Ask code in a jail of any backend one question; read the answer, the ending and what the kernel counted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from services.runtime.jail.backend import PLAIN, Backend, Jail, Options
from services.runtime.jail.limits import Limits, Usage
from services.runtime.jail.session import Conversation, Pace, Program, Transcript, run_trial

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
            8.0, 8.0, wall_s, BOOT_S, 0 if backend.counts_processes else limits.processes,
        )  # fmt: skip
    finally:
        usage = jail.close()
    return Asked(transcript, usage)


def begin(backend: Backend, source: str, limits: Limits = LIMITS) -> Jail:
    """A jail that has imported the module and waits for a question that never comes. The caller closes it."""
    jail = backend.launch(limits)
    processes = 0 if backend.counts_processes else limits.processes
    asked = Conversation(jail, limits, Pace(8.0, 8.0, 60.0, 600.0, BOOT_S), processes)
    assert asked.start(Program({"m.py": source + "\ndef f(): pass\n"}, "m", "f")), asked.transcript
    return jail
