"""The trusted side of the pipes: asks a jail's worker and records what came back and how it ended.

Nothing here judges an answer, and nothing that the candidate writes is read as anything but a claimed answer.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import secrets
import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from services.runtime.jail.backend import Jail
from services.runtime.jail.limits import JailFault, Limits

MAX_FRAME = 1024 * 1024
_ID = 32

Ending = Literal["complete", "stopped", "eof", "deadline", "log_flood", "reply_flood", "protocol", "limit", "lingering"]
"""How a conversation ended: `complete` every call was answered; `stopped` the caller had enough; `eof` the worker
closed its pipe early; `limit` it met its CPU limit; `lingering` it did not end after the last answer; else what it
broke."""


@dataclass(frozen=True)
class Program:
    """What to run: files (relative path -> text), the module to import and the function to call."""

    files: Mapping[str, str]
    module: str
    function: str
    drain: bool = False  # read a returned generator out as a list
    want_args: bool = False  # also tell the arguments after the call
    exception_names: tuple[str, ...] = ()


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
    ending: Ending = "eof"
    boot_s: float = 0.0
    wall_s: float = 0.0
    log: bytes = b""


class Closed(Exception):
    """The conversation cannot go on; the argument says why."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending: Ending = ending


class Channel:
    """Framed, capped, deadline-bound exchange with one jail."""

    def __init__(self, jail: Jail, limits: Limits) -> None:
        self._jail = jail
        self._limits = limits
        self._out = b""
        self._in = bytearray()
        self._received = 0
        self._logged = 0
        self.log = b""

    def renew(self) -> None:
        """Another run of a fork server: the caps count anew."""
        self._received = self._logged = 0
        self.log = b""

    def send(self, message: Any) -> None:
        """Queue a request; it is written while replies are awaited."""
        raw = marshal.dumps(message)
        self._out += len(raw).to_bytes(4, "little") + raw

    def receive(self, deadline: float) -> tuple[str, str, str]:
        """Next reply as (id, kind, text). Raises Closed."""
        while True:
            frame = self._take()
            if frame is not None:
                return frame
            self._wait(deadline)

    def _take(self) -> tuple[str, str, str] | None:
        if len(self._in) < 4:
            return None
        size = int.from_bytes(self._in[:4], "little")
        if not _ID < size <= MAX_FRAME:
            raise Closed("protocol")
        if len(self._in) < 4 + size:
            return None
        raw = bytes(self._in[4 : 4 + size])
        del self._in[: 4 + size]
        if not raw.isascii():
            raise Closed("protocol")
        text = raw.decode("ascii")
        return text[:_ID], text[_ID], text[_ID + 1 :]

    def _wait(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._jail.replies, select.POLLIN)
        if self._jail.log >= 0:
            poll.register(self._jail.log, select.POLLIN)
        if self._out and self._jail.requests >= 0:
            poll.register(self._jail.requests, select.POLLOUT)
        left = deadline - time.monotonic()
        events = poll.poll(max(0.0, left) * 1000) if left > 0 else []
        if not events:
            raise Closed("deadline")
        for fd, event in events:
            if fd == self._jail.requests:
                self._write(event)
            elif fd == self._jail.log:
                self._read_log()
            else:
                self._read()

    def _write(self, event: int) -> None:
        if event & select.POLLOUT:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                self._out = self._out[os.write(self._jail.requests, self._out) :]
                return
        if event & (select.POLLERR | select.POLLHUP):
            self._out = b""  # nobody reads any more; what it has said before may still be in the reply pipe

    def _read(self) -> None:
        data = os.read(self._jail.replies, 65_536)
        if not data:
            raise Closed("eof")
        self._received += len(data)
        if self._received > self._limits.reply_bytes:
            raise Closed("reply_flood")
        self._in += data

    def _read_log(self) -> None:
        data = os.read(self._jail.log, 65_536)
        if not data:
            os.close(self._jail.log)
            self._jail.log = -1
            return
        self._logged += len(data)
        self.log = (self.log + data)[-2048:]
        if self._logged > self._limits.log_bytes:
            raise Closed("log_flood")

    def drain_log(self) -> bytes:
        """What stands in the log pipe now, for diagnosis only."""
        if self._jail.log >= 0:
            with contextlib.suppress(BlockingIOError):
                self.log = (self.log + os.read(self._jail.log, 65_536))[-2048:]
        return self.log


def request_id() -> str:
    """128 random bits as 32 hexadecimal characters."""
    return secrets.token_hex(_ID // 2)


def boot(channel: Channel, serve: bool, processes: int, boot_s: float) -> None:
    """First handshake, before any candidate code. Raises JailFault: whatever goes wrong here is infrastructure."""
    ident = request_id()
    channel.send({"boot": ident, "serve": serve, "processes": processes})
    try:
        reply = channel.receive(time.monotonic() + boot_s)
    except Closed as closed:
        said = channel.drain_log().decode("utf-8", "replace").strip()
        raise JailFault(f"no boot handshake ({closed.ending}){': ' + said if said else ''}") from None
    if reply[:2] != (ident, "b"):
        raise JailFault("a wrong boot handshake")


def _run(program: Program, ident: str) -> dict[str, Any]:
    return {
        "id": ident,
        "files": {path: text.encode() for path, text in program.files.items()},
        "module": program.module,
        "function": program.function,
        "drain": program.drain,
        "want_args": program.want_args,
        "names": program.exception_names,
    }


def _converse(
    channel: Channel,
    transcript: Transcript,
    ident: str,
    idents: Sequence[str],
    deadline: float,
    on_answer: Callable[[int, Answer], bool],
) -> None:
    """Ready handshake and answers in order; raises Closed for every other course."""
    got, kind, text = channel.receive(deadline)
    if got == ident and kind == "l":
        raise Closed("limit")
    if got != ident or kind not in ("y", "e"):
        raise Closed("protocol")
    if kind == "e":
        name, _, line = text.partition(" ")
        transcript.failure = (name[:64], int(line) if line.isdigit() and len(line) < 9 else 0)
        return
    transcript.ready = True
    for index, wanted in enumerate(idents):
        got, kind, text = channel.receive(deadline)
        if got == wanted and kind == "l":
            raise Closed("limit")
        if got != wanted or kind not in ("r", "x", "u"):
            raise Closed("protocol")
        answer = Answer(kind, text)
        transcript.answers.append(answer)
        if not on_answer(index, answer):
            raise Closed("stopped")


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
) -> Transcript:
    """One assessment in a fresh jail: boot, import, every call, and a clean end. Raises JailFault before `boot` only.

    `on_answer` says whether to go on. `processes` > 0 asks the worker to bound its own processes (no control group).
    """
    channel = Channel(jail, limits)
    started = time.monotonic()
    boot(channel, False, processes, boot_s)
    transcript = Transcript(booted=True, boot_s=time.monotonic() - started)
    run = _run(program, request_id())
    idents = [request_id() for _ in calls]
    channel.send({**run, "call_cpu_s": call_cpu_s, "import_cpu_s": import_cpu_s})
    channel.send(list(zip(idents, calls, strict=True)))
    started = time.monotonic()
    deadline = started + wall_s
    try:
        _converse(channel, transcript, run["id"], idents, deadline, on_answer)
        transcript.ending = _end(jail, channel, deadline) if transcript.failure is None else "complete"
    except Closed as closed:
        transcript.ending = closed.ending
    transcript.wall_s = time.monotonic() - started
    transcript.log = channel.log
    return transcript


def _end(jail: Jail, channel: Channel, deadline: float) -> Ending:
    """Close the requests and expect exactly the end of the replies."""
    jail.close_requests()
    try:
        channel.receive(min(deadline, time.monotonic() + 2.0))
    except Closed as closed:
        if closed.ending == "eof":
            return "complete"
        return "lingering" if closed.ending == "deadline" else closed.ending
    return "protocol"


class Server:
    """A booted fork server: the parent stays clean, each run is a child of it. Any ending but `complete` closes it."""

    def __init__(self, jail: Jail, limits: Limits, boot_s: float, processes: int = 0) -> None:
        """Boot it. Raises JailFault; the jail stays the caller's to close."""
        self.jail = jail
        self._channel = Channel(jail, limits)
        self.usable = True
        boot(self._channel, True, processes, boot_s)

    def run(self, program: Program, calls: Sequence[tuple[Any, ...]], run_cpu_s: float, wall_s: float) -> Transcript:
        """Run all calls in one fresh child. Ending `limit`: the kernel ended it for its CPU time."""
        channel = self._channel
        channel.renew()
        run = _run(program, request_id())
        idents = [request_id() for _ in calls]
        channel.send({**run, "run_cpu_s": run_cpu_s, "calls": list(zip(idents, calls, strict=True))})
        transcript = Transcript(booted=True)
        started = time.monotonic()
        try:
            self._converse(transcript, run["id"], idents, started + wall_s)
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
                name, _, line = text.partition(" ")
                transcript.failure = (name[:64], int(line) if line.isdigit() and len(line) < 9 else 0)
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


_SIGPROF = 27
