"""What a request handler returns: bytes now, nothing, or an answer that comes later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple


class Call(NamedTuple):
    """What a handler needs to know about the request beside its body."""

    version: int
    correlation_id: int
    client_id: str
    client_host: str
    body: int


class Deferred:
    """An answer that comes later. `hurry` asks for it now, `cancel` says that nobody waits for it any more."""

    def __init__(self, pipelined: bool = False) -> None:
        self.pipelined = pipelined  # later requests of the connection may be worked on meanwhile
        self.answer: bytes | None = None
        self._done = False
        self._callback: Callable[[], None] | None = None

    @property
    def done(self) -> bool:
        return self._done

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the answer is there (at once if it is)."""
        if self._done:
            callback()
        else:
            self._callback = callback

    def resolve(self, answer: bytes) -> None:
        """Give the answer; only the first one counts."""
        if self._done:
            return
        self.answer, self._done = answer, True
        if self._callback:
            self._callback()

    def hurry(self) -> None:
        """Another request waits behind this one; answer early if that is allowed."""

    def cancel(self) -> None:
        """The connection is gone."""
        self._callback = None

    @classmethod
    def of(
        cls, future: asyncio.Future[None], encode: Callable[[BaseException | None], bytes], pipelined: bool
    ) -> Deferred:
        """The answer `encode(error)` once `future` is done."""
        out = cls(pipelined)
        future.add_done_callback(lambda done: out.resolve(encode(done.exception())))
        return out


Reply = bytes | Deferred | None
