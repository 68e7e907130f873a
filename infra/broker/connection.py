"""One client connection: frames in, answers out in the order of the requests, and no way to hurt the broker."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from infra.broker import wire
from infra.broker.errors import ProtocolViolation
from infra.broker.reply import Call, Deferred, Reply

logger = logging.getLogger(__name__)

BUFFER = 64 * 1024
MAX_QUEUED = 64  # answers that may wait on a sync before the connection is read no further

Handler = Callable[[wire.RequestHead, Call, memoryview], Reply]


class Connection(asyncio.BufferedProtocol):
    """Reads frames into one reused buffer and works on them in place; nothing keeps a view past its request."""

    def __init__(self, handler: Handler, max_request: int, opened: set[Connection]) -> None:
        self._handler = handler
        self._max_request = max_request
        self._opened = opened
        self._transport: asyncio.Transport | None = None
        self._host = ""
        self._buffer = bytearray(BUFFER)
        self._start = self._end = 0
        self._queue: deque[Deferred] = deque()
        self._blocking: Deferred | None = None
        self._reading = self._writable = True
        self._working = False
        self._used = True

    # -- asyncio ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._host = f"/{peer[0]}" if peer else ""
        self._opened.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._opened.discard(self)
        for deferred in self._queue:
            deferred.cancel()
        self._queue.clear()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, count: int) -> None:
        self._end += count
        self._used = True
        self._work()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._work()

    # -- frames ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection after what was written has left."""
        if self._transport is not None:
            self._transport.close()

    def trim(self) -> None:
        """Give back an oversized buffer after a quiet period; called by housekeeping."""
        if not self._used and self._start == self._end and len(self._buffer) > BUFFER:
            self._buffer = bytearray(BUFFER)
            self._start = self._end = 0
        self._used = False

    def _work(self) -> None:
        if self._working:
            return
        self._working = True
        try:
            while self._transport is not None and not self._transport.is_closing():
                frame = self._next_frame()
                if frame is None:
                    break
                self._serve(frame)
        except ProtocolViolation as error:
            self._reject(error)
        except Exception:
            logger.exception("request from %s failed; its connection is closed", self._host)
            self.close()
        finally:
            self._working = False
        self._make_room()

    def _reject(self, error: Exception) -> None:
        logger.warning("closing the connection of %s: %s", self._host, error)
        if self._transport is not None:
            self._transport.close()

    def _next_frame(self) -> memoryview | None:
        available = self._end - self._start
        if available < 4:
            return None
        size = int.from_bytes(self._buffer[self._start : self._start + 4], "big", signed=True)
        if size < 8 or size > self._max_request:
            raise ProtocolViolation(f"frame of {size} bytes; accepted are 8 to {self._max_request}")
        if available < 4 + size:
            return None
        if self._blocking is not None:
            self._blocking.hurry()
        if self._blocking is not None or not self._writable or len(self._queue) >= MAX_QUEUED:
            return None
        begin = self._start + 4
        self._start = begin + size
        return memoryview(self._buffer)[begin : begin + size]

    def _serve(self, frame: memoryview) -> None:
        head = wire.request_head(frame)
        call = Call(head.version, head.correlation_id, head.client_id, self._host, head.body)
        reply = self._handler(head, call, frame)
        if reply is None:
            return
        if isinstance(reply, Deferred):
            self._queue.append(reply)
            if not reply.pipelined:
                self._blocking = reply
            reply.when_done(self._answered)
        elif self._queue:
            done = Deferred()
            done.resolve(reply)
            self._queue.append(done)
        elif self._transport is not None:
            self._transport.write(reply)

    def _answered(self) -> None:
        while self._queue and self._queue[0].done:
            deferred = self._queue.popleft()
            if deferred is self._blocking:
                self._blocking = None
            if self._transport is not None and deferred.answer is not None:
                self._transport.write(deferred.answer)
        self._work()

    def _make_room(self) -> None:
        """Leave space to read into; stop reading while a whole frame already waits."""
        if self._start == self._end:
            self._start = self._end = 0
        waiting = self._end - self._start
        needed = BUFFER
        if waiting >= 4:
            needed = max(needed, 4 + int.from_bytes(self._buffer[self._start : self._start + 4], "big"))
        if self._start and (self._start + needed > len(self._buffer) or self._end == len(self._buffer)):
            self._buffer[:waiting] = self._buffer[self._start : self._end]
            self._start, self._end = 0, waiting
        if needed > len(self._buffer) and needed <= self._max_request + 4:
            grown = bytearray(needed)
            grown[:waiting] = memoryview(self._buffer)[self._start : self._end]
            self._buffer, self._start, self._end = grown, 0, waiting
        full = self._end == len(self._buffer)
        if full == self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = not full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
