"""A partition that was lost and comes back: the service first sees what it sent itself, then it goes on."""

import threading
import time

import pytest

from tests.services.runtime.bus import IN, OUT, EchoCore, wait_for

COUNT = 40


class Slow:
    """A producer whose broker takes its time: what is sent stays under way until `go` is set."""

    def __init__(self, producer, go):
        self._producer = producer
        self._go = go
        self._sent = []

    def send(self, *args, **kwargs):
        entry = Later()
        self._sent.append((entry, args, kwargs))
        if len(self._sent) == 1:
            threading.Thread(target=self._deliver, daemon=True).start()
        return entry

    def _deliver(self):
        self._go.wait()
        while self._sent:
            entry, args, kwargs = self._sent[0]
            future = self._producer.send(*args, **kwargs)
            for add, callback in entry.callbacks:
                getattr(future, add)(*callback)
            self._sent.pop(0)

    def close(self, timeout):
        self._producer.close(timeout=timeout)


class Later:
    """What the outbox hangs on a record under way."""

    def __init__(self):
        self.callbacks = []

    def add_callback(self, *callback):
        self.callbacks.append(("add_callback", callback))

    def add_errback(self, *callback):
        self.callbacks.append(("add_errback", callback))


class Reads(EchoCore):
    """Answers commands and reads the answers, its own among them."""

    def handle(self, message, now_ms):
        effects = super().handle(message, now_ms)
        if message.position.topic == OUT.name:
            self.diary.append(("saw", message.record.operation_id))
        else:
            self.diary.append(("answered", message.partition, effects.outputs[0].record.operation_id))
        return effects


@pytest.mark.timeout(120)
def test_what_was_sent_before_a_partition_was_lost_is_seen_before_its_return_counts_as_read(make_bus):
    bus = make_bus(runtime={"revoke_s": 0.5})
    go = threading.Event()
    first = bus.start(Reads, inputs=(IN, OUT)).ready()
    outbox = first.service._outbox
    outbox._producer = Slow(outbox._producer, go)
    try:
        bus.send(range(COUNT))
        wait_for(lambda: len(first.core.numbers) == COUNT, what="all handled, none acknowledged")
        second = bus.start(EchoCore, inputs=(IN, OUT))
        gone = wait_for(lambda: first.core.events("revoked"), what="partitions for the second")[0][1]
        second.ready().finish()
        back = len(first.core.diary)
        wait_for(lambda: first.core.events("assigned")[1:], what="the partitions again")
        time.sleep(1.0)
        assert len(first.core.events("caught_up")) == 1, "read to an end that its own outputs are not in yet"
    finally:
        go.set()
    wait_for(lambda: len(first.core.events("caught_up")) == 2, what="read to the end")
    diary = list(first.core.diary)
    before = diary[: len(diary) - 1 - diary[::-1].index(("caught_up",))]
    own = {entry[2] for entry in diary[:back] if entry[0] == "answered" and entry[1] in gone}
    assert own
    assert own <= {entry[1] for entry in before if entry[0] == "saw"}
