"""Fetch: records out of the log, waiting (without polling) until there are enough."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infra.broker import wire
from infra.broker.errors import Code, Rejected
from infra.broker.reply import Call, Deferred, Reply

if TYPE_CHECKING:
    from infra.broker.broker import Broker

Answers = list[tuple[str, list[wire.Fetched]]]
MAX_WAIT_MS = 60_000


def fetch(broker: Broker, call: Call, frame: memoryview) -> Reply:
    """Answer at once when there is enough to read (or an error to tell), else park."""
    request = wire.fetch_request(frame, call.body, call.version)
    if request.session:
        return wire.fetch_response(call.correlation_id, call.version, [], Code.FETCH_SESSION_ID_NOT_FOUND)
    answers, size, failed = read_all(broker, request)
    if failed or size >= request.min_bytes or request.max_wait_ms <= 0:
        return wire.fetch_response(call.correlation_id, call.version, answers)
    return ParkedFetch(broker, call, request, size)


def read_all(broker: Broker, request: wire.FetchRequest) -> tuple[Answers, int, bool]:
    """Read every partition within the request's limits; returns (answers, bytes, any error)."""
    limit = min(request.max_bytes, broker.settings.max_fetch_bytes)
    total, failed, answers = 0, False, []
    for topic, partitions in request.topics:
        out = []
        for part in partitions:
            fetched = _read(broker, topic, part, limit - total, total == 0)
            total += len(fetched.records)
            failed = failed or bool(fetched.code)
            out.append(fetched)
        answers.append((topic, out))
    return answers, total, failed


def _read(broker: Broker, topic: str, part: wire.FetchPartition, budget: int, first: bool) -> wire.Fetched:
    log = broker.topics.log(topic, part.partition)
    if log is None:
        return wire.Fetched(part.partition, Code.UNKNOWN_TOPIC_OR_PARTITION)
    if 0 <= part.epoch != log.epoch:
        behind = part.epoch < log.epoch
        return wire.Fetched(part.partition, Code.FENCED_LEADER_EPOCH if behind else Code.UNKNOWN_LEADER_EPOCH)
    end = log.log_end
    if part.offset == end:
        return wire.Fetched(part.partition, Code.NONE, end, log.log_start)
    if budget <= 0 and not first and log.log_start <= part.offset < end:
        return wire.Fetched(part.partition, Code.NONE, end, log.log_start)
    try:
        data = log.read(part.offset, min(part.max_bytes, budget), first)
    except Rejected as rejected:
        return wire.Fetched(part.partition, rejected.code, end, log.log_start)
    except OSError as error:
        broker.storage_trouble(f"read of {topic}-{part.partition}", error)
        return wire.Fetched(part.partition, Code.KAFKA_STORAGE_ERROR, end, log.log_start)
    return wire.Fetched(part.partition, Code.NONE, end, log.log_start, data)


class ParkedFetch(Deferred):
    """A fetch that waits for `min_bytes` or its deadline; every log it reads knows it."""

    def __init__(self, broker: Broker, call: Call, request: wire.FetchRequest, size: int) -> None:
        super().__init__()
        self._broker, self._call, self._request = broker, call, request
        self._missing = request.min_bytes - size
        self._logs = [
            log
            for topic, partitions in request.topics
            for part in partitions
            if (log := broker.topics.log(topic, part.partition)) is not None
        ]
        for log in self._logs:
            log.waiters.add(self)
        loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._timer = loop.call_later(min(request.max_wait_ms, MAX_WAIT_MS) / 1000, self._finish)

    def grew(self, count: int) -> None:
        """A log got `count` more bytes; several appends of one loop turn are answered together."""
        self._missing -= count
        if self._missing <= 0 and self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._finish)

    def hurry(self) -> None:
        self._finish()

    def cancel(self) -> None:
        super().cancel()
        self._release()

    def _release(self) -> None:
        for log in self._logs:
            log.waiters.discard(self)
        self._timer.cancel()
        if self._soon:
            self._soon.cancel()

    def _finish(self) -> None:
        if self.done:
            return
        self._release()
        answers, _, _ = read_all(self._broker, self._request)
        self.resolve(wire.fetch_response(self._call.correlation_id, self._call.version, answers))
