"""Frames over the pipes of one jail: capped, bound by deadlines, one request at a time."""

from __future__ import annotations

import contextlib
import marshal
import os
import secrets
import select
import time
from collections.abc import Callable
from typing import Any, Literal

from services.runtime.jail.backend import Jail
from services.runtime.jail.limits import JailFault, Limits

MAX_FRAME = 1024 * 1024
_SLICE_S = 0.25
"""A wait for a jail is made of waits of this length. One that takes longer counts as this long: then it was this side
that did not run (stopped, or on a machine that was), and the answer may lie in the pipe meanwhile."""
_ID = 32

Ending = Literal["complete", "stopped", "eof", "deadline", "log_flood", "reply_flood", "protocol", "limit", "lingering"]
"""How a conversation ended: `complete` every call was answered; `stopped` the caller had enough; `eof` the worker
closed its pipe early; `limit` it met its CPU limit; `lingering` it did not end after the last answer; else what it
broke."""


class Closed(Exception):
    """The conversation cannot go on; the argument says why."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending: Ending = ending


class Channel:
    """Exchange with one jail. Every reply counts against the caps of its limits.

    Deadlines are times of `now`, which only goes on while this side waits: what it was stopped for, or busy with, is
    not the candidate's time. A candidate that sleeps or drips is waited for, second by second.
    """

    def __init__(self, jail: Jail, limits: Limits) -> None:
        self._jail = jail
        self._limits = limits
        self._out = b""
        self._in = bytearray()
        self._received = 0
        self._logged = 0
        self._writing = False
        self._waited = 0.0
        self._poll = select.poll()
        self._poll.register(jail.replies, select.POLLIN)
        if jail.log >= 0:
            self._poll.register(jail.log, select.POLLIN)
        self.log = b""
        self.patience: Callable[[], float] | None = None
        """Asked before every wait for how long it may be; 0 ends the conversation: the jail used too much CPU."""

    def now(self) -> float:
        """Seconds for which the jail was waited for."""
        return self._waited

    @property
    def clean(self) -> bool:
        """Whether every byte so far belonged to a whole reply."""
        return not self._in

    def renew(self) -> None:
        """Another run of a fork server: the caps count anew."""
        self._received = self._logged = 0
        self.log = b""

    def send(self, message: Any) -> None:
        """Write a request, as far as the pipe takes it; the rest is written while replies are awaited."""
        # Made twice: what else holds these objects here leaves marks in marshal's bytes, in its own copy nothing does.
        raw = marshal.dumps(marshal.loads(marshal.dumps(message)))
        self._out += len(raw).to_bytes(4, "little") + raw
        self._write()

    def receive(self, deadline: float) -> tuple[str, str, str]:
        """Next reply as (id, kind, text). `deadline` is a time of `now`. Raises Closed."""
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
        left = min(deadline - self._waited, _SLICE_S)
        if left <= 0:
            raise Closed("deadline")
        if self.patience is not None:
            left = min(left, self.patience())
            if left <= 0:
                # Answers of one message may lie here unread, while this side was not on a processor.
                if not self._answered():
                    raise Closed("limit")
                return self._read()
        began = time.monotonic()
        events = self._poll.poll(left * 1000)
        self._waited += min(left, time.monotonic() - began) if events else left
        for fd, _ in events:
            if fd == self._jail.requests:
                self._write()
            elif fd == self._jail.log:
                self._read_log()
            else:
                self._read()
        return None

    def _answered(self) -> bool:
        poll = select.poll()
        poll.register(self._jail.replies, select.POLLIN)
        return bool(poll.poll(0))

    def _write(self) -> None:
        try:
            self._out = self._out[os.write(self._jail.requests, self._out) :]
        except BlockingIOError:
            pass
        except ConnectionError:
            self._out = b""  # nobody reads any more; what it has said before may still be in the reply pipe
        if self._writing != bool(self._out):
            self._writing = not self._writing
            if self._writing:
                self._poll.register(self._jail.requests, select.POLLOUT)
            else:
                self._poll.unregister(self._jail.requests)

    def _read(self) -> None:
        try:
            data = os.read(self._jail.replies, 65_536)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            raise Closed("eof")
        self._received += len(data)
        if self._received > self._limits.reply_bytes:
            raise Closed("reply_flood")
        self._in += data

    def _read_log(self) -> None:
        data = os.read(self._jail.log, 65_536)
        if not data:
            self._poll.unregister(self._jail.log)
            os.close(self._jail.log)
            self._jail.log = -1
            return
        self._logged += len(data)
        self.log = (self.log + data)[-2048:]
        if self._logged > self._limits.log_bytes:
            raise Closed("log_flood")

    @property
    def quiet(self) -> bool:
        """Whether nothing is on its way in either direction: no byte that a later run could take for its own."""
        if self._out or self._in or self._jail.requests < 0 or self._jail.log < 0:
            return False
        poll = select.poll()
        poll.register(self._jail.replies, select.POLLIN)
        poll.register(self._jail.log, select.POLLIN)
        return not poll.poll(0)

    def drain_log(self) -> bytes:
        """What stands in the log pipe now, for diagnosis only."""
        if self._jail.log >= 0:
            with contextlib.suppress(BlockingIOError):
                self.log = (self.log + os.read(self._jail.log, 65_536))[-2048:]
        return self.log

    def finish(self, deadline: float) -> Ending:
        """Close the requests and expect exactly the end of the replies."""
        if self._writing:
            self._poll.unregister(self._jail.requests)
            self._writing = False
        self._jail.close_requests()
        try:
            self.receive(min(deadline, self._waited + 2.0))
        except Closed as closed:
            if closed.ending == "eof":
                return "complete" if self.clean else "protocol"
            return "lingering" if closed.ending == "deadline" else closed.ending
        return "protocol"


def request_id() -> str:
    """128 random bits as 32 hexadecimal characters."""
    return secrets.token_hex(_ID // 2)


def boot(channel: Channel, serve: bool, processes: int, boot_s: float) -> None:
    """First handshake, before any candidate code. Raises JailFault: whatever goes wrong here is infrastructure."""
    ident = request_id()
    channel.send({"boot": ident, "serve": serve, "processes": processes})
    try:
        reply = channel.receive(channel.now() + boot_s)
    except Closed as closed:
        said = channel.drain_log().decode("utf-8", "replace").strip()
        raise JailFault(f"no boot handshake ({closed.ending}){': ' + said if said else ''}") from None
    if reply[:2] != (ident, "b"):
        raise JailFault("a wrong boot handshake")
