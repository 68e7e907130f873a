"""A small model of the loop and the log: delivery, acknowledgement, commit and kill -9 in any order, in one thread."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from random import Random

from schemas.record import Record
from schemas.topics import Topic
from services.runtime.core import Core, Effects, Message, Position
from tests.services.closure.records import TOPIC_OF, message


class Log:
    """Records of every topic, one partition each, in order; committed offsets of one group."""

    def __init__(self) -> None:
        self.records: dict[str, list[Record]] = defaultdict(list)
        self.committed: dict[str, int] = defaultdict(int)

    def append(self, record: Record) -> None:
        self.records[TOPIC_OF[type(record)].name].append(record)

    def of(self, topic: Topic) -> list[Record]:
        return self.records[topic.name]


class Simulation:
    """One service on one partition. An output is first on its way, then in the log, then acknowledged, when its `done`
    counts. Time stands still until everything that is in the log is acknowledged, as `SETTLE_MS` assumes."""

    def __init__(
        self, log: Log, make_core: Callable[[], Core], inputs: tuple[Topic, ...], broadcast: tuple[Topic, ...] = ()
    ) -> None:
        self.log = log
        self.make_core = make_core
        self.inputs = [topic.name for topic in inputs]
        self.broadcast = [topic.name for topic in broadcast]
        self.now_ms = 10_000
        self.start()

    def start(self) -> None:
        """A new process: all memory gone, reading from the committed offsets."""
        self.core = self.make_core()
        self.next = {name: self.log.committed[name] for name in self.inputs} | dict.fromkeys(self.broadcast, 0)
        self.unfinished: dict[str, set[int]] = defaultdict(set)
        self.sent: deque[Effects] = deque()
        self.written: deque[Effects] = deque()
        self.caught_up = False
        for name in self.broadcast:
            while self.deliver(name):
                pass
        self.core.assigned(frozenset({0}))
        self.ends = {name: len(self.log.records[name]) for name in self.inputs}

    def _apply(self, effects: Effects) -> None:
        if effects.outputs:
            self.sent.append(effects)
        else:
            self._finish(effects.done)

    def _finish(self, done: list[Position]) -> None:
        for position in done:
            self.unfinished[position.topic].discard(position.offset)

    def deliver(self, name: str) -> Message | None:
        offset = self.next[name]
        if offset >= len(self.log.records[name]):
            return None
        self.next[name] = offset + 1
        if name in self.inputs:
            self.unfinished[name].add(offset)
        given = message(self.log.records[name][offset], offset)
        self._apply(self.core.handle(given, self.now_ms))
        return given

    def look(self) -> None:
        """Say once when everything that stood there at the start was handled."""
        if not self.caught_up and all(self.next[name] >= end for name, end in self.ends.items()):
            self.caught_up = True
            self._apply(self.core.caught_up(self.now_ms))

    def write(self) -> None:
        """The broker stores the oldest outputs that are on their way."""
        if self.sent:
            effects = self.sent.popleft()
            for output in effects.outputs:
                self.log.append(output.record)
            self.written.append(effects)

    def acknowledge(self) -> None:
        if self.written:
            self._finish(self.written.popleft().done)

    def tick(self, passed_ms: int) -> None:
        while passed_ms and (self.sent or self.written):
            self.write()
            self.acknowledge()
        self.now_ms += passed_ms
        if self.caught_up:
            self._apply(self.core.tick(self.now_ms))

    def commit(self) -> None:
        for name in self.inputs:
            self.log.committed[name] = min(self.unfinished[name], default=self.next[name])

    def step(self, random: Random) -> None:
        """Any one thing that a live loop could do next."""
        choice = random.randrange(10)
        if choice < 5:
            self.deliver(random.choice(self.inputs + self.broadcast))
            self.look()
        elif choice == 5:
            self.write()
        elif choice == 6:
            self.acknowledge()
        elif choice == 7:
            self.tick(random.choice((0, 250, 3000)))
        elif choice == 8:
            self.commit()
        elif random.random() < 0.3:
            self.commit()
            self.start()

    def drain(self) -> None:
        """Everything that can happen happens, until nothing more does."""
        for _ in range(3):
            for name in (self.inputs + self.broadcast) * 2:
                while self.deliver(name):
                    pass
            self.look()
            self.tick(3000)
            self.tick(0)
        self.commit()
