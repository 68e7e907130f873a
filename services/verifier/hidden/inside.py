"""Hidden tests in the candidate's own interpreter (evidence E1): a fail is usable, a pass proves nothing.

One fresh jail per trial, one process per test, and in every process two must-fail copies of a test beside the real one
(`canaries.py`): whoever makes tests pass by other means than being right passes these too.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from services.runtime.jail.backend import Backend, Options, own_processes
from services.runtime.jail.limits import JailFault, Usage
from services.runtime.jail.session import Answer, Closed, Conversation, Pace, Program
from services.tasks import values
from services.tasks.fixture import CheckSet, HiddenTests
from services.verifier.attribution import Facts
from services.verifier.hidden import pytest_arguments
from services.verifier.hidden.measures import IMPORT_CPU_S, Measures
from services.verifier.hidden.must_fail import variants
from services.verifier.trial import Bounds, hash_seed

_HOME = "/tmp/tree"  # where a worker lays out what it is sent
_INI_TEXT = pytest_arguments.INI_TEXT + "log_file = /tmp/log\n"  # where nothing is said, it is /dev/null: no such thing
_PREPARE_CPU_S = 5.0
_TEST_CPU_S = 0.5  # what pytest itself may take for a test and its copies
_PHASES = ("setup", "call", "teardown")
_OUTCOMES = ("passed", "failed", "skipped", "xfail")


class Plan:
    """One trial's names and words, all drawn from its secret seed."""

    def __init__(self, tests: HiddenTests, rng: random.Random) -> None:
        self._rng = rng
        self._variants = variants(tests.files, rng, tests.expected)
        self.runner, self.candidate, self.root, self.nothing = (self._word() for _ in range(4))
        self.folders = [self._word() for _ in self._variants.versions]
        self.labels = {folder: self._word() for folder in self.folders}
        self.words = {f"{when}.{outcome}": self._word() for when in _PHASES for outcome in _OUTCOMES}
        self.separator = rng.choice("|;,:!~+")
        self.order = ["label", "word", "test"]
        rng.shuffle(self.order)
        self.expected = list(tests.expected)
        rng.shuffle(self.expected)
        self.processes = [self._process(test) for test in self.expected]

    def _word(self) -> str:
        return "w" + self._rng.randbytes(12).hex()

    def _process(self, test: str) -> tuple[tuple[str, str], list[tuple[str, str]]]:
        """(folder, test) of the real test and of the must-fail copies beside it: its own, where it has any."""
        own = test.partition("[")[0]
        real = self._variants.real
        canary = own if own in real else self._rng.choice(list(real))
        place = self._rng.choice(self.folders) if own not in real else self.folders[real[own]]
        return (place, test), [(one, canary) for number, one in enumerate(self.folders) if number != real[canary]]

    def files(self, tree: Mapping[str, str]) -> dict[str, str]:
        """Everything that is laid out in the jail."""
        found = {f"{self.runner}.py": Path(__file__).with_name("inside_runner.py").read_text()}
        found.update({f"{self.candidate}/{path}": text for path, text in tree.items()})
        found.update({f"{folder}/{pytest_arguments.INI}": _INI_TEXT for folder in (self.root, self.nothing)})
        for folder, files in zip(self.folders, self._variants.versions, strict=True):
            found.update({f"{self.root}/{folder}/{path}": text for path, text in files.items()})
        return found

    def warm_up(self) -> dict[str, Any]:
        """First question: load pytest, on a folder without tests."""
        folder = f"{_HOME}/{self.nothing}"
        return {"environment": pytest_arguments.ENVIRONMENT, "arguments": pytest_arguments.arguments(folder, [folder])}

    def question(self, number: int, cpu_s: float) -> dict[str, Any]:
        """Run one test with its must-fail copies, in a drawn order."""
        root = f"{_HOME}/{self.root}"
        real, copies = self.processes[number]
        nodes = [f"{root}/{folder}/{test}" for folder, test in (real, *copies)]
        self._rng.shuffle(nodes)
        return {
            "arguments": pytest_arguments.arguments(root, []),
            "candidate": f"{_HOME}/{self.candidate}",
            "labels": self.labels,
            "words": self.words,
            "separator": self.separator,
            "order": self.order,
            "nodes": nodes,
            "cpu_s": cpu_s,
        }

    def judge(self, number: int, record: str) -> str | None:
        """What the record of one test's process comes to: the word of a rejection, or None."""
        real, copies = self.processes[number]
        seen = self._read(record)
        if seen is None or any(
            (folder, test) != real and (folder, test.partition("[")[0]) not in copies for folder, test, _ in seen
        ):
            return "test_record"
        phases = [phase for folder, test, phase in seen if (folder, test) == real]
        if phases != [f"{when}.passed" for when in _PHASES]:
            return _rejection(set(phases))
        for copy in copies:
            calls = [
                phase
                for folder, test, phase in seen
                if (folder, test.partition("[")[0]) == copy and phase.startswith("call.")
            ]
            if not calls or set(calls) != {"call.failed"}:  # with parameters there are several
                return "tampered"
        return None

    def _read(self, record: str) -> list[tuple[str, str, str]] | None:
        """(folder, test, phase) of every line; None for what the trial's words do not say."""
        folders = {label: folder for folder, label in self.labels.items()}
        phases = {word: phase for phase, word in self.words.items()}
        found = []
        for line in record.splitlines():
            parts = line.split(self.separator)
            if len(parts) != len(self.order):
                return None
            told = dict(zip(self.order, parts, strict=True))
            try:
                found.append((folders[told["label"]], bytes.fromhex(told["test"]).decode(), phases[told["word"]]))
            except (KeyError, ValueError):
                return None
        return found


def _rejection(phases: set[str]) -> str:
    if "call.failed" in phases:
        return "test_failed"
    if phases & {"setup.failed", "teardown.failed"}:
        return "test_error"
    if any(phase.endswith((".skipped", ".xfail")) for phase in phases):
        return "test_skipped"
    return "test_missing"


class _Asked:
    """The questions of a trial and what they gave."""

    def __init__(self, plan: Plan, cpu_s: float) -> None:
        self._plan = plan
        self._cpu_s = cpu_s
        self.rejection: str | None = None
        self.passed = 0

    def converse(self, conversation: Conversation, program: Program) -> None:
        """From boot to end. Raises JailFault for everything before the candidate's code can run."""
        try:
            if not conversation.start(program):
                raise JailFault(f"the runner does not load: {conversation.transcript.failure}")
            answer = conversation.call("answer", (self._plan.warm_up(),))
        except Closed as closed:
            raise JailFault(f"pytest did not start in the jail ({closed.ending})") from None
        if (answer.kind, answer.text) != ("r", '"ready"'):
            raise JailFault(f"pytest is not ready in the jail: {answer.kind} {answer.text[:200]}")
        with contextlib.suppress(Closed):
            for number in range(len(self._plan.processes)):
                answer = conversation.call("answer", (self._plan.question(number, self._cpu_s),))
                self.rejection = self._judge(number, answer)
                if self.rejection is not None:
                    conversation.stop()
                    return
                self.passed += 1
            conversation.end()

    def _judge(self, number: int, answer: Answer) -> str | None:
        try:
            record = values.loads(answer.text) if answer.kind == "r" else None
        except values.ValueCodecError:
            record = None
        return self._plan.judge(number, record) if type(record) is str else "test_record"


def run(host: Backend, tree: Mapping[str, str], check: CheckSet, seed: int, bounds: Bounds) -> Facts:
    """One trial. Never raises for anything that the candidate does; raises NoCanary or SyntaxError for the check."""
    tests = check.hidden_tests
    assert tests is not None
    rng = random.Random(seed)
    options = Options(hash_seed=hash_seed(seed), runtime="pytest")
    plan = Plan(tests, rng)
    program = Program(plan.files(tree), plan.runner, exception_names=values.EXCEPTION_NAMES)
    pace = Pace(_PREPARE_CPU_S, IMPORT_CPU_S, bounds.wall_s, bounds.boot_s + 2 * bounds.wall_s, bounds.boot_s)
    measures = Measures(host, bounds, options)
    try:
        jail = host.launch(bounds.limits, options)
    except JailFault as fault:
        return Facts(fault="no_start", booted=False, import_error=str(fault))
    asked = _Asked(plan, _TEST_CPU_S + 3 * min(bounds.call_cpu_s, check.call_cpu_s))
    usage = Usage()
    try:
        conversation = Conversation(jail, bounds.limits, pace, own_processes(host, bounds.limits))
        asked.converse(conversation, program)
    except JailFault as fault:
        return Facts(fault="no_boot", booted=False, import_error=str(fault))
    finally:
        usage = jail.close()
    facts = measures.facts(conversation.transcript, usage)
    wanted = len(tests.expected)
    # Never `right`, which partial credit is given for: what passes here proves nothing.
    return replace(facts, rejection=asked.rejection, wanted=wanted, answered=asked.passed)
