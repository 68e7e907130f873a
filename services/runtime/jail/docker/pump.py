"""Carries the bytes of one container between the engine's one socket and three plain pipes.

The engine multiplexes output: 8 bytes of head (stream 1 or 2, three zeros, length as big-endian 32 bits), then data.
Nothing is read from the socket while 64 KiB wait for a reader, so a flood stops in the container and not in our memory.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading

_CAP = 65_536
_HEAD = 8


class Demultiplexer:
    """Splits the engine's stream. `waiting` holds, per stream, what no reader took yet."""

    def __init__(self) -> None:
        self.waiting: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        self.broken = False
        self._head = bytearray()
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Take what the socket gave. Sets `broken` at a head that no engine writes."""
        at = 0
        while at < len(data) and not self.broken:
            if self._left:
                part = data[at : at + self._left]
                self.waiting[self._stream] += part
                self._left -= len(part)
                at += len(part)
                continue
            take = _HEAD - len(self._head)
            self._head += data[at : at + take]
            at += take
            if len(self._head) == _HEAD:
                self._stream, self._left = self._head[0], int.from_bytes(self._head[4:], "big")
                self.broken = self._stream not in self.waiting or any(self._head[1:4])
                self._head.clear()


class Pump(threading.Thread):
    """One thread per container. Ends when the container's output has ended and was taken, or nobody wants it any more.

    It owns `sock` and its ends of the pipes: `requests` is read, `replies` and `log` are written.
    """

    def __init__(self, sock: socket.socket, requests: int, replies: int, log: int) -> None:
        super().__init__(name="docker-pump", daemon=True)
        self._sock = sock
        self._requests = requests
        self._sinks = {1: replies, 2: log}
        self._split = Demultiplexer()
        self._out = b""
        self._ended = False
        sock.setblocking(False)
        for fd in (requests, replies, log):
            os.set_blocking(fd, False)

    def run(self) -> None:
        """Until the end of one of the two sides."""
        try:
            while self._sinks and not (self._ended and not any(self._split.waiting[s] for s in self._sinks)):
                self._turn()
        finally:
            self._sock.close()
            for fd in (self._requests, *self._sinks.values()):
                if fd >= 0:
                    os.close(fd)

    def _turn(self) -> None:
        poll = select.poll()
        wanted = 0
        if not self._ended:
            full = any(len(self._split.waiting[stream]) >= _CAP for stream in self._sinks)
            wanted = (0 if full else select.POLLIN) | (select.POLLOUT if self._out else 0)
        if wanted:
            poll.register(self._sock.fileno(), wanted)
        if self._requests >= 0 and not self._out and not self._ended:
            poll.register(self._requests, select.POLLIN)
        for stream, fd in self._sinks.items():  # that its reader has gone is told in any case
            poll.register(fd, select.POLLOUT if self._split.waiting[stream] else 0)
        for fd, event in poll.poll():
            if fd == self._sock.fileno():
                self._exchange(event)
            elif fd == self._requests:
                self._take_request()
            else:
                self._deliver(next(stream for stream, sink in self._sinks.items() if sink == fd))

    def _exchange(self, event: int) -> None:
        try:
            if event & select.POLLOUT and self._out:
                self._out = self._out[self._sock.send(self._out) :]
            if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                data = self._sock.recv(_CAP)
                self._split.feed(data)
                for stream in self._split.waiting.keys() - self._sinks.keys():
                    self._split.waiting[stream].clear()
                self._ended = not data or self._split.broken
        except BlockingIOError:
            pass
        except OSError:
            self._ended = True

    def _take_request(self) -> None:
        self._out = os.read(self._requests, _CAP)
        if not self._out:
            os.close(self._requests)
            self._requests = -1
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)  # the engine closes the container's input

    def _deliver(self, stream: int) -> None:
        waiting = self._split.waiting[stream]
        try:
            if waiting:
                del waiting[: os.write(self._sinks[stream], waiting)]
                return
        except BlockingIOError:
            return
        except OSError:
            waiting.clear()
        os.close(self._sinks.pop(stream))  # nobody reads it any more
