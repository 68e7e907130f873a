"""Lists hidden tests as pytest itself finds them, with our own arguments, in a trusted process without a candidate."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from services.runtime.errors import UserError
from services.tasks.fixture import HiddenTests
from services.verifier.hidden.trusted import Gone, Late, TestProcess, private_folder

_WALL_S = 180.0  # a second of work, on a machine that may be starved
_NAMED = 5


@dataclass(frozen=True)
class Found:
    """Ids of the tests in order; why a test can never pass; why a file does not load; files that ask the module.

    What is in a file that asks the module while it is collected, only a candidate's answers can tell.
    """

    tests: list[str] = field(default_factory=list)
    unsupported: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    asking: set[str] = field(default_factory=set)

    def note(self, message: dict[str, Any]) -> None:
        """Add what the process said. Raises ValueError where pytest itself failed."""
        told = message["told"]
        if told == "test":
            self.tests.append(message["id"])
            if message["why"]:
                self.unsupported[message["id"]] = message["why"]
        elif told == "broken" and message["asked"]:
            self.asking.add(message["id"].partition("::")[0])
        elif told == "broken":
            self.broken[message["id"]] = message["text"]
        elif told == "internal":
            raise ValueError(f"pytest cannot collect them: {message['text']}")


def collect(tests: HiddenTests) -> Found:
    """What pytest finds in the files; `expected` is not looked at. Raises ValueError where it finds no end."""
    found = Found()
    deadline = time.monotonic() + _WALL_S
    job = {"module": tests.module, "api": dict(tests.api), "seed": 0, "collect": tests.mode}
    try:
        with private_folder(tests.files) as folder, TestProcess(folder) as process:
            process.begin(job, _WALL_S)
            process.hear(deadline)
            process.say({})
            while (message := process.hear(deadline))["told"] != "done":
                found.note(message)
    except Late:
        raise ValueError(f"their collection did not end within {_WALL_S:g} s") from None
    except Gone:
        raise ValueError("the process that collects them ended, or needed too much memory") from None
    except OSError as error:
        raise ValueError(f"their files cannot be laid out: {error}") from error
    return found


def expectable(tests: HiddenTests) -> tuple[str, ...]:
    """Every test of the files: what `HiddenTests.expected` can be. Raises UserError naming what cannot be run."""
    found = collect(tests)
    wrong = {**found.broken, **found.unsupported}
    wrong |= dict.fromkeys(found.asking, "it asks the module while it is collected: name its tests by hand")
    if wrong or not found.tests:
        what = _listed(wrong) if wrong else "there is no test in test_*.py or *_test.py"
        raise UserError(f"hidden tests cannot be run: {what}", tests.module, "change or leave out these tests")
    return tuple(found.tests)


def require_expected(tests: HiddenTests) -> None:
    """Every expected test can be run, and no other is found. Raises ValueError that names those for which it is not so.

    In the candidate's own interpreter files may need more than the module under test, and only what is expected runs.
    """
    found = collect(tests)
    outside = tests.mode == "outside"
    unsure = found.asking if outside else {*found.asking, *found.broken}
    if outside and found.broken:
        raise ValueError(f"files cannot be collected: {_listed(found.broken)}")
    wrong = {name: found.unsupported[name] for name in tests.expected if name in found.unsupported}
    if wrong:
        raise ValueError(f"tests that no candidate can pass: {_listed(wrong)}")
    known = set(found.tests)
    missing = [name for name in tests.expected if name not in known and name.partition("::")[0] not in unsure]
    if missing:
        raise ValueError(
            f"expected tests are in no file: {_few(missing)} (pytest looks for them in test_*.py and *_test.py)"
        )
    others = sorted(known - set(tests.expected))
    if outside and others:
        raise ValueError(f"tests are in the files that are not expected: {_few(others)}")


def _few(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _listed(wrong: dict[str, str]) -> str:
    return _few([f"{name}: {why}" for name, why in wrong.items()])
