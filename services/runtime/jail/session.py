"""The trusted side of the pipes: asks a jail's worker call by call and records what came back and how it ended.

Nothing here judges an answer, and nothing that the candidate writes is read as anything but a claimed answer. In an
assessment one message is outstanding at a time, of one question or of a few that differ: what comes next, and whether
it repeats any of them, is not in the jail before the answers are here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.runtime.jail.backend import Jail
from services.runtime.jail.budget import Budget
from services.runtime.jail.channel import Channel, Closed, Ending, boot, request_id
from services.runtime.jail.limits import Limits

__all__ = ["Answer", "Closed", "Conversation", "Ending", "Handle", "Pace", "Program", "Server", "Transcript"]

MAX_HANDLES = 10_000
TOGETHER = 32
"""Calls of an assessment that travel in one message: a message costs as much as twenty small answers to compare."""
_HANDLE = re.compile(r'\{"h":\["([0-9]{1,9})","')  # a quote inside a JSON string is escaped, so this is never in one
_SIGPROF = 27

Packed = tuple[Sequence[Any], Any]
"""Table of linked nodes, and the value with complex numbers in place of them."""


@dataclass(frozen=True)
class Program:
    """What to run: files (relative path -> text), the module to import and the function that calls without a name ask.

    `objects`: classes of linked nodes (name, fields, module or ""), which `pack` takes out of arguments. `handles`:
    names of the module's classes whose objects stay inside and are told as handles ("iterator": whatever has
    `__next__`). `own_exceptions`: names of the module's exception classes that are told by their own name. `messages`:
    what an exception says is told too, as a pair (exception, text or None).
    """

    files: Mapping[str, str]
    module: str
    function: str = ""
    drain: bool = False  # read a returned generator out as a list
    want_args: bool = False  # also tell the arguments after the call
    exception_names: tuple[str, ...] = ()
    objects: tuple[tuple[str, tuple[str, ...], str], ...] = ()
    pack: Callable[[Any], Packed] | None = None
    handles: tuple[str, ...] = ()
    own_exceptions: tuple[str, ...] = ()
    messages: bool = False

    def __post_init__(self) -> None:
        both = set(self.own_exceptions) & set(self.exception_names)
        if both:
            raise ValueError(f"{', '.join(sorted(both))}: a built-in exception's name cannot be the module's own")


@dataclass(frozen=True)
class Answer:
    """One reply: `r` returned, `x` raised, `u` cannot be encoded; `text` is tagged JSON of services/tasks/values.py."""

    kind: str
    text: str


@dataclass
class Transcript:
    """Everything that one conversation showed. `failure` is (exception name, line or 0) when the import failed."""

    booted: bool = False
    ready: bool = False
    failure: tuple[str, int] | None = None
    answers: list[Answer] = field(default_factory=list)
    answered: int = 0
    ending: Ending = "eof"
    boot_s: float = 0.0
    wall_s: float = 0.0
    log: bytes = b""


@dataclass(frozen=True)
class Pace:
    """Seconds: CPU of the import and of each call (the worker's own timer), wall of each call and of the whole run.

    `boot_s`: how long a jail may take to say that it is there (infrastructure).
    """

    call_cpu_s: float
    import_cpu_s: float
    call_wall_s: float
    wall_s: float
    boot_s: float = 15.0


@dataclass(frozen=True)
class Handle:
    """An object that stays in the jail, by the number that the worker gave it there."""

    number: int


class Conversation:
    """One assessment, asked call by call: boot (here), `start`, any number of questions, `end`.

    Every question raises KeyError for a handle that is not in use (and asks nothing), and Closed once the conversation
    cannot go on; `transcript` then says how it ended. Answers are claims of the candidate, and so are handles: the
    number of one that it told may be used until it is released.
    """

    def __init__(self, jail: Jail, limits: Limits, pace: Pace, processes: int = 0) -> None:
        """Boot. `processes` > 0 asks the worker to bound its own processes. Raises JailFault (infrastructure)."""
        self._jail = jail
        self._channel = Channel(jail, limits)
        self._pace = pace
        started = time.monotonic()
        boot(self._channel, False, processes, pace.boot_s)
        self._started = self._channel.now()
        self._deadline = self._started + pace.wall_s
        self._program: Program | None = None
        self._handles: set[int] = set()
        self._last_handle = 0
        self._budget = Budget(jail, pace.import_cpu_s)
        self._channel.patience = self._budget.patience
        self.transcript = Transcript(booted=True, boot_s=time.monotonic() - started)

    def start(self, program: Program) -> bool:
        """Import the candidate; False when that failed (`transcript.failure`). Raises Closed."""
        self._program = program
        ident = request_id()
        pace = self._pace
        timers = {"call_cpu_s": pace.call_cpu_s, "import_cpu_s": pace.import_cpu_s, "calls": ()}
        self._channel.send({**_run(program, ident), **timers})
        kind, text = self._reply(ident, self._deadline, ("y", "e"))
        if kind == "e":
            self.transcript.failure = _failure(text)
            self._close("complete")
            return False
        self.transcript.ready = True
        self._budget.renew(pace.call_cpu_s)
        return True

    def call(self, function: str = "", args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Answer:
        """Call a function of the module by its (dotted) name, or the program's own without one."""
        return self._ask("c", 0, function, args, kwargs)

    def calls(self, calls: Sequence[tuple[Any, ...]]) -> Iterator[Answer]:
        """Call the program's own function with each of these arguments, all asked in one message; answers in order."""
        if not self._open or self._program is None:
            raise Closed(self.transcript.ending)
        idents = [request_id() for _ in calls]
        asked = zip(idents, calls, strict=True)
        self._channel.send([_request(self._program, ident, "c", 0, "", args) for ident, args in asked])
        for number, ident in enumerate(idents, 1):
            deadline = min(self._deadline, self._channel.now() + self._pace.call_wall_s)
            kind, text = self._reply(ident, deadline, ("r", "x", "u"), last=number == len(idents))
            self.transcript.answered += 1
            yield Answer(kind, text)

    def construct(self, kind: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Answer:
        """Make an object of a class of the module; where that is a declared handle class, the answer is its handle."""
        return self._ask("c", 0, kind, args, kwargs)

    def method(
        self, handle: Handle, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Answer:
        """Call a method (also `__enter__`, `__len__`, `__next__`, ...) of the object behind a handle."""
        return self._ask("m", self._number(handle), name, args, kwargs)

    def get(self, handle: Handle | None, name: str) -> Answer:
        """Read an attribute of the object behind a handle, or of the module (None)."""
        return self._ask("g", self._number(handle), name)

    def set(self, handle: Handle | None, name: str, value: Any) -> Answer:
        """Write an attribute of the object behind a handle, or of the module (None)."""
        return self._ask("s", self._number(handle), name, (value,))

    def operator(self, name: str, args: Sequence[Any]) -> Answer:
        """Apply a function of the module `operator` ("eq", "getitem", "contains") or a built-in ("len", "iter")."""
        return self._ask("o", 0, name, args)

    def leave(self, handle: Handle, exception: str = "") -> Answer:
        """End a `with` block on the object by an exception of that name ("": none); the answer: is it swallowed?"""
        return self._ask("x", self._number(handle), exception)

    def release(self, handle: Handle) -> Answer:
        """Let the object behind a handle go; its number is void from now on."""
        number = self._number(handle)
        self._handles.discard(number)
        return self._ask("f", number, "")

    def handle(self, number: str) -> Handle:
        """The handle of a number as an answer told it. Raises KeyError for one that is not in use here."""
        if not number.isascii() or not number.isdigit() or int(number[:9]) not in self._handles:
            raise KeyError("no such handle")
        return Handle(int(number))

    def stop(self) -> None:
        """The caller has heard enough: no more questions, and no clean end is asked for."""
        self._close("stopped")

    def end(self) -> Transcript:
        """Close the requests and expect exactly the end of the replies; the outcome is fixed before anything ends."""
        if self._open:
            self._close(self._channel.finish(self._deadline))
        return self.transcript

    @property
    def _open(self) -> bool:
        return self._program is not None and self._deadline > 0

    def _close(self, ending: Ending) -> None:
        self._deadline = 0.0
        self.transcript.ending = ending
        self.transcript.wall_s = self._channel.now() - self._started
        self.transcript.log = self._channel.log

    def _number(self, handle: Handle | None) -> int:
        if handle is None:
            return 0
        if handle.number not in self._handles:
            raise KeyError("no such handle")
        return handle.number

    def _ask(
        self, operation: str, handle: int, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Answer:
        if not self._open or self._program is None:
            raise Closed(self.transcript.ending)
        ident = request_id()
        self._channel.send(_request(self._program, ident, operation, handle, name, args, kwargs, self._number))
        deadline = min(self._deadline, self._channel.now() + self._pace.call_wall_s)
        kind, text = self._reply(ident, deadline, ("r", "x", "u"))
        if self._program.handles:
            self._register(text)
        self.transcript.answered += 1
        return Answer(kind, text)

    def _reply(self, ident: str, deadline: float, kinds: tuple[str, ...], last: bool = True) -> tuple[str, str]:
        """`last`: of its message; before that the worker may be at work on the next question already."""
        try:
            got, kind, text = self._channel.receive(deadline)
            if got != ident or kind not in (*kinds, "l"):
                raise Closed("protocol")
            if kind == "l" or (last and self._budget.overspent(False)):
                raise Closed("limit")
            if not last:
                self._budget.answered()
        except Closed as closed:
            spent = closed.ending in ("eof", "deadline") and self._budget.overspent(True)
            ending: Ending = "limit" if spent else closed.ending
            self._close(ending)
            raise Closed(ending) from None
        return kind, text

    def _register(self, text: str) -> None:
        """New handles have the next numbers, in the order in which the text tells them."""
        for number in map(int, _HANDLE.findall(text)):
            if number == self._last_handle + 1 and len(self._handles) < MAX_HANDLES:
                self._last_handle = number
                self._handles.add(number)
            elif number not in self._handles:
                self._close("protocol")
                raise Closed("protocol")


def _run(program: Program, ident: str) -> dict[str, Any]:
    return {
        "id": ident,
        "files": {path: text.encode() for path, text in program.files.items()},
        "module": program.module,
        "function": program.function,
        "drain": program.drain,
        "want_args": program.want_args,
        "names": program.exception_names,
        "objects": program.objects,
        "handles": program.handles,
        "errors": program.own_exceptions,
        "messages": program.messages,
        "linked": bool(program.objects or program.handles),
    }


def _request(
    program: Program,
    ident: str,
    operation: str,
    handle: int,
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    number: Callable[[Handle], int] | None = None,
) -> tuple[Any, ...]:
    given: Any = (tuple(args), dict(kwargs or {}))
    table: Sequence[Any] = ()
    if program.pack is not None:
        table, given = program.pack(given)
    if program.handles and number is not None:
        given = _referring(given, number)
    return ident, operation, handle, name, *given, table


def _referring(value: Any, number: Callable[[Handle], int]) -> Any:
    """The value with complex numbers in place of handles, which are met in arguments and plain containers."""
    kind = type(value)
    if kind is Handle:
        return complex(number(value), 2)
    if kind in (list, tuple, set, frozenset):
        return kind(_referring(item, number) for item in value)
    if kind is dict:
        return {_referring(key, number): _referring(item, number) for key, item in value.items()}
    return value


def _failure(text: str) -> tuple[str, int]:
    """Exception name and line of a failed import, as it claims: a word and a number whatever it wrote there."""
    name, _, line = text.partition(" ")
    fits = name.isidentifier() and len(name) <= 64
    return name if fits else "BaseException", int(line) if line.isdigit() and len(line) < 9 else 0


def run_trial(
    jail: Jail,
    limits: Limits,
    program: Program,
    calls: Sequence[tuple[Any, ...]],
    on_answer: Callable[[int, Answer], bool],
    call_cpu_s: float,
    import_cpu_s: float,
    wall_s: float,
    boot_s: float,
    processes: int = 0,
    call_wall_s: float | None = None,
) -> Transcript:
    """One assessment in a fresh jail: boot, import, every call, and a clean end. Raises JailFault before `boot` only.

    `on_answer` says whether to go on. `processes` > 0 asks the worker to bound its own processes (no control group).
    """
    pace = Pace(call_cpu_s, import_cpu_s, call_wall_s or wall_s, wall_s, boot_s)
    asked = Conversation(jail, limits, pace, processes)
    try:
        if asked.start(program):
            together = TOGETHER if program.pack is None else 1  # the text of linked nodes does not tell repeats
            answers = (answer for message in _messages(calls, together) for answer in asked.calls(message))
            for index, answer in enumerate(answers):
                asked.transcript.answers.append(answer)
                if not on_answer(index, answer):
                    asked.stop()
                    break
    except Closed:
        return asked.transcript
    return asked.end()


def _messages(calls: Sequence[tuple[Any, ...]], together: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    """The calls in order, up to `together` at a time, none of them twice in one message."""
    message: list[tuple[Any, ...]] = []
    told: set[str] = set()
    for args in calls:
        text = repr(args)
        if len(message) == together or text in told:
            yield message
            message, told = [], set()
        message.append(args)
        told.add(text)
    if message:
        yield message


class Server:
    """A booted fork server: the parent stays clean, each run is a child of it. Any ending but `complete` closes it.

    It serves exploration, where the checks are public: all calls of a run travel at once.
    """

    def __init__(self, jail: Jail, limits: Limits, boot_s: float, processes: int = 0, proxy: bool = False) -> None:
        """Boot it; `proxy`: the jail was launched with hosts, and each run's environment is to name the way to them.

        Raises JailFault; the jail stays the caller's to close.
        """
        self.jail = jail
        self._proxy = proxy
        self._channel = Channel(jail, limits)
        self.usable = True
        boot(self._channel, True, processes, boot_s)

    @property
    def quiet(self) -> bool:
        """Whether the last run left nothing in the pipes. What it printed late is read first, as no part of a run."""
        self._channel.drain_log()
        return self._channel.quiet

    def run(self, program: Program, calls: Sequence[tuple[Any, ...]], run_cpu_s: float, wall_s: float) -> Transcript:
        """Run all calls in one fresh child. Ending `limit`: the kernel ended it for its CPU time."""
        channel = self._channel
        channel.renew()
        channel.patience = Budget(self.jail, run_cpu_s).patience
        ident, idents = request_id(), [request_id() for _ in calls]
        requests = [_request(program, one, "c", 0, "", args) for one, args in zip(idents, calls, strict=True)]
        channel.send({**_run(program, ident), "run_cpu_s": run_cpu_s, "calls": requests, "proxy": self._proxy})
        transcript = Transcript(booted=True)
        started = time.monotonic()
        try:
            self._converse(transcript, ident, idents, channel.now() + wall_s)
        except Closed as closed:
            transcript.ending = closed.ending
            self.usable = False
        transcript.wall_s = time.monotonic() - started
        transcript.log = channel.log
        return transcript

    def _converse(self, transcript: Transcript, ident: str, idents: list[str], deadline: float) -> None:
        expected = [ident, *idents]
        while True:
            got, kind, text = self._channel.receive(deadline)
            if got == ident and kind == "d":
                break
            if not expected or got != expected.pop(0):
                raise Closed("protocol")
            if kind == "e" and not transcript.ready:
                transcript.failure = _failure(text)
                expected.clear()
            elif kind == "y" and not transcript.ready:
                transcript.ready = True
            elif kind in ("r", "x", "u") and transcript.ready:
                transcript.answers.append(Answer(kind, text))
            else:
                raise Closed("protocol")
        if text == str(_SIGPROF):
            transcript.ending = "limit"
        else:
            transcript.ending = "complete" if not expected else "eof"
