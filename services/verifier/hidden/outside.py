"""Hidden tests outside of the jail: they run in a trusted process and ask the candidate through this one.

Every question goes tests -> verifier -> jail, so that the verifier's own record says how the conversation with the
candidate ended, and which test had asked anything. What the tests' process reports is trusted: it holds no code of the
candidate's, only values that were checked here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from services.runtime.jail.backend import Backend, Options, own_processes
from services.runtime.jail.limits import JailFault, Usage
from services.runtime.jail.session import Answer, Closed, Conversation, Handle, Pace, Program
from services.tasks import api, values
from services.tasks.fixture import CheckSet, HiddenTests
from services.verifier.attribution import Facts
from services.verifier.hidden.interface import ITERATOR, error_class
from services.verifier.hidden.measures import IMPORT_CPU_S, SHARED, Measures
from services.verifier.hidden.trusted import Gone, Late, TestProcess, private_folder
from services.verifier.trial import Bounds, hash_seed

_PHASES = ("setup", "call", "teardown")
_REJECTIONS = {"skipped": "test_skipped", "xfail": "test_skipped"}


class CheckFault(Exception):
    """The tests failed by themselves, without any part of the candidate's: nothing is said about the candidate."""


@dataclass
class Asked:
    """Questions that a test's end may depend on: of collection and set-ups so far, of the present test, in all.

    Set-ups count for every test after them, since what they made may be shared.
    """

    shared: int = 0
    own: int = 0
    phase: int = 0
    total: int = 0

    def question(self) -> None:
        self.phase += 1
        self.total += 1

    @property
    def involved(self) -> bool:
        """Whether the candidate had a part in the present test."""
        return self.shared + self.own + self.phase > 0

    def ended(self, when: str) -> bool:
        """A phase ended; whether the candidate had a part in the test so far."""
        self.own = self.phase if when == "setup" else self.own + self.phase
        self.shared += self.phase if when in ("setup", "collection") else 0
        self.phase = 0
        return self.shared + self.own > 0


class Candidate:
    """The questions of an interface, put to a conversation; answers are checked before they are passed on."""

    def __init__(self, conversation: Conversation, declared: api.Api) -> None:
        self._conversation = conversation
        self._handles = frozenset((*declared.classes, ITERATOR))
        self._errors = frozenset((*declared.exceptions, *values.EXCEPTION_NAMES))
        self._classes = api.exception_classes(declared, "")
        self._with_arguments = bool(declared.mutates)

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any] | str:
        """The answer as the interface wants it, or the word of a rejection. Raises Closed."""
        for number in question.get("release", ()):
            self._conversation.release(self._conversation.handle(number))
        arguments = len(question["args"]["t"]) + len(question["named"]["d"])
        return self._checked(self._put(question), arguments)

    def _put(self, question: Mapping[str, Any]) -> Answer:
        asked = self._conversation
        args = values.decode(question["args"], handle=self._own)
        named = values.decode(question["named"], handle=self._own)
        name = question["name"]
        target = asked.handle(question["target"]) if "target" in question else None
        if question["ask"] == "call":
            return asked.call(name, args, named)
        if question["ask"] == "operator":
            return asked.operator(name, args)
        if question["ask"] == "get":
            return asked.get(target, name)
        if question["ask"] == "set":
            return asked.set(target, name, *args)
        assert target is not None
        if question["ask"] == "leave":
            return asked.leave(target, name)
        return asked.method(target, name, args, named)

    def _own(self, number: str, kind: str) -> Handle:
        return self._conversation.handle(number)

    def _checked(self, answer: Answer, arguments: int) -> Mapping[str, Any] | str:
        if answer.kind == "u":
            return "unencodable"
        more: dict[str, Any] = {}
        try:
            body = values.parse_json(answer.text)
            if self._with_arguments:
                body, more["after"] = _pair(body)
                after = values.decode(more["after"], handle=self._told)
                if type(after) is not tuple or len(after) != arguments:
                    return "undecodable"
            if answer.kind == "x":
                name = body.get("e") if type(body) is dict and len(body) == 1 else None
                return {"x": name, **more} if type(name) is str and self._raisable(name) else "undecodable"
            values.decode(body, handle=self._told)
        except values.ValueCodecError:
            return "undecodable"
        return {"r": body, **more}

    def _raisable(self, names: str) -> bool:
        """Whether there can be an exception of these types."""
        parts = names.split("+")
        if len(set(parts)) < len(parts) or not self._errors.issuperset(parts):
            return False
        try:
            error_class(names, self._classes)
        except TypeError:  # the candidate claims what no class can be
            return False
        return True

    def _told(self, number: str, kind: str) -> Handle:
        if kind not in self._handles:
            raise values.Undecodable("a handle of no declared class")
        try:
            return self._conversation.handle(number)
        except KeyError:
            raise values.Undecodable("a handle that is not in use") from None


def _pair(body: Any) -> list[Any]:
    """[answer, arguments after the call] of an answer with its arguments. Raises values.Undecodable."""
    pair = body.get("t") if type(body) is dict and len(body) == 1 else None
    if type(pair) is not list or len(pair) != 2:
        raise values.Undecodable("an answer with its arguments is a pair")
    return pair


class Relay:
    """One trial: passes questions on and reads the tests' reports until the outcome is fixed."""

    def __init__(self, tests: HiddenTests, process: TestProcess, candidate: Candidate, all_cases: bool = False) -> None:
        self._expected = tests.expected
        self._all_cases = all_cases
        self._process = process
        self._candidate = candidate
        self._asked = Asked()
        self._passed: dict[str, list[str]] = {}
        self._spoiled: set[str] = set()
        self.rejection: str | None = None
        self.finished = False

    @property
    def right(self) -> int:
        """Tests that passed in all their phases."""
        return sum(phases == list(_PHASES) for name, phases in self._passed.items() if name not in self._spoiled)

    @property
    def asked(self) -> bool:
        """Whether the candidate was asked anything."""
        return self._asked.total > 0

    def run(self, deadline: float) -> None:
        """Until the outcome is fixed. Raises Closed, Late, Gone, CheckFault."""
        while not self.finished:
            message = self._process.hear(deadline)
            if "ask" in message:
                self._asked.question()
                answer = self._candidate.ask(message)
                if isinstance(answer, str):
                    self._reject(answer, final=True)
                else:
                    self._process.say(answer)
            else:
                word = self._told(message)
                if word is not None:
                    self._reject(word, final=not self._all_cases or word != "test_failed")

    def _reject(self, word: str, final: bool) -> None:
        """The first rejection counts; where every test is to be counted, a failed one does not end the run."""
        self.rejection = self.rejection or word
        self.finished = self.finished or final

    def _told(self, message: Mapping[str, Any]) -> str | None:
        kind = message["told"]
        if kind == "items":
            found = sorted(message["ids"])
            return self._ended("collection", found == sorted(self._expected), f"other tests were found: {found}")
        if kind == "collect":
            return self._ended("collection", False, message["text"], "test_error")
        if kind == "internal":
            return self._fault(self.asked, message["text"], "test_error")
        if kind in ("phase", "part"):
            return self._phase(message) if kind == "phase" else self._part(message)
        self.finished = True
        return self._fault(self.asked, f"pytest ended with {message['code']}") if self._missing() else None

    def _missing(self) -> bool:
        return self.right != len(self._expected) or self._passed.keys() != set(self._expected)

    def _phase(self, message: Mapping[str, Any]) -> str | None:
        name, when, outcome = message["id"], message["when"], message["outcome"]
        if outcome == "passed":
            self._passed.setdefault(name, []).append(when)
        word = _REJECTIONS.get(outcome, "test_failed" if when == "call" else "test_error")
        return self._ended(when, outcome == "passed", f"{name}: {message['text']}", word)

    def _part(self, message: Mapping[str, Any]) -> str | None:
        """A subtest: its test goes on after it, and passes only when every part did."""
        if message["outcome"] == "passed":
            return None
        self._spoiled.add(message["id"])
        word = _REJECTIONS.get(message["outcome"], "test_failed")
        return self._fault(self._asked.involved, f"{message['id']}: {message['text']}", word)

    def _ended(self, when: str, fine: bool, text: str, word: str = "test_missing") -> str | None:
        involved = self._asked.ended(when)
        return None if fine else self._fault(involved, text, word)

    def _fault(self, involved: bool, text: str, word: str = "test_missing") -> str:
        """What did not pass is the candidate's when it had a part in it. Raises CheckFault where it had none."""
        if not involved:
            raise CheckFault(text)
        return word


@dataclass
class _Found:
    """How a trial went on this side: the tests' process `late` (its seconds with and without a CPU) or `killed`."""

    rejection: str | None = None
    late: tuple[float, float] | None = None
    killed: bool = False


def run(host: Backend, tree: Mapping[str, str], check: CheckSet, seed: int, bounds: Bounds) -> Facts:
    """One trial of a candidate's tree. Never raises for anything that the candidate does. Raises CheckFault."""
    tests = check.hidden_tests
    assert tests is not None
    declared = api.parse(tests.api)
    rng = random.Random(seed)
    options = Options(hash_seed=hash_seed(seed))
    job = {"module": tests.module, "api": dict(tests.api), "seed": rng.getrandbits(63)}
    measures = Measures(host, bounds, options)
    with private_folder(tests.files) as folder, TestProcess(folder) as process:
        try:
            process.begin(job, bounds.wall_s)
            jail = host.launch(bounds.limits, options)  # it starts while the tests' process does
        except Gone:
            return Facts(fault="no_tests", booted=False)
        except JailFault as fault:
            return Facts(fault="no_start", booted=False, import_error=str(fault))
        usage = Usage()
        try:
            process.hear(time.monotonic() + bounds.boot_s)
            conversation = Conversation(jail, bounds.limits, _pace(check, bounds), own_processes(host, bounds.limits))
            relay = Relay(tests, process, Candidate(conversation, declared), bounds.all_cases)
            found = _converse(conversation, relay, process, _program(tree, tests, declared), bounds.wall_s)
        except (JailFault, Gone, Late) as fault:
            name = "no_boot" if isinstance(fault, JailFault) else "no_tests"
            return Facts(fault=name, booted=False, import_error=str(fault))
        finally:
            usage = jail.close()
    facts = measures.facts(conversation.transcript, usage)
    right = relay.right if bounds.all_cases else None
    facts = replace(facts, rejection=found.rejection, wanted=len(tests.expected), answered=relay.right, right=right)
    facts = replace(facts, boot_s=None)  # the jail booted long before it was asked: this says nothing about the host
    if found.killed:
        return replace(facts, fault="tests_killed")
    return facts if found.late is None else _late(facts, found.late)


def _pace(check: CheckSet, bounds: Bounds) -> Pace:
    call_cpu_s = min(bounds.call_cpu_s, check.call_cpu_s)
    return Pace(call_cpu_s, IMPORT_CPU_S, SHARED * bounds.limits.cpu_s, bounds.wall_s, bounds.boot_s)


def _program(tree: Mapping[str, str], tests: HiddenTests, declared: api.Api) -> Program:
    return Program(
        tree,
        tests.module,
        want_args=bool(declared.mutates),
        exception_names=values.EXCEPTION_NAMES,
        handles=(*declared.classes, ITERATOR),
        own_exceptions=tuple(declared.exceptions),
    )


def _converse(
    conversation: Conversation, relay: Relay, process: TestProcess, program: Program, wall_s: float
) -> _Found:
    """From the import of the candidate to the end of the conversation."""
    found = _Found()
    try:
        if not conversation.start(program):
            return found
        process.say({})
        relay.run(time.monotonic() + wall_s)
        conversation.end() if relay.rejection is None else conversation.stop()
    except Closed:
        return found
    except (Late, Gone) as end:
        if not relay.asked:
            raise CheckFault("the tests ended or hung before they asked anything") from None
        if isinstance(end, Late):
            found.late = process.times() or (0.0, 0.0)
        else:
            found.killed = process.killed_from_outside()
            found.rejection = "test_error"
        conversation.stop()
    found.rejection = found.rejection or relay.rejection
    return found


def _late(facts: Facts, times: tuple[float, float]) -> Facts:
    """The deadline passed between two questions: what the tests' process did and waited counts with the jail's."""
    ran, waited = times
    usage = replace(
        facts.usage, cpu_s=(facts.usage.cpu_s or 0.0) + ran, host_wait_s=max(facts.usage.host_wait_s or 0.0, waited)
    )
    return replace(facts, ending="deadline", usage=usage)
