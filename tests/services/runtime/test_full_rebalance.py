"""A service with more work than room lets a rebalance through and goes on: its workers are not held for ever."""

import threading
import time
from dataclasses import replace

import pytest

from services.runtime.core import Effects, Job
from tests.services.runtime.bus import IN, EchoCore, wait_for

COUNT = 60


class Slow(EchoCore):
    """Answers each command after a little work; never has room for all of them."""

    def handle(self, message, now_ms):
        if message.position.topic != IN.name:
            return super().handle(message, now_ms)
        answer = EchoCore.handle

        def then(result):
            del result
            return answer(self, message, now_ms)

        return Effects(jobs=[Job(lambda: time.sleep(0.05), then, partition=message.partition)])


@pytest.mark.timeout(120)
def test_a_full_service_shares_its_partitions_with_one_that_comes(bus):
    first = bus.start(Slow, workers=1, max_jobs=2).ready()
    sender = threading.Thread(target=bus.send, args=(range(COUNT),))
    sender.start()
    wait_for(lambda: first.core.numbers, what="work")
    bus.start(Slow, workers=1, max_jobs=2).ready()
    sender.join(30)
    wait_for(lambda: len(set(bus.answered())) >= COUNT, 60, "every answer")


@pytest.mark.timeout(120)
def test_what_was_read_but_not_handed_out_yet_is_read_again_after_a_rebalance(make_bus):
    """Of some kept partition not one record had its turn: the place to go back to is where its records began."""
    bus = make_bus(runtime={"revoke_s": 1.0})
    bus.send(range(COUNT))
    gate, begun = threading.Event(), []

    class Held(Slow):
        def handle(self, message, now_ms):
            effects = super().handle(message, now_ms)
            begun.extend(effects.jobs)
            effects.jobs = [replace(job, run=gate.wait) for job in effects.jobs]
            return effects

    try:
        bus.start(Held, workers=1, max_jobs=2)
        wait_for(lambda: len(begun) == 2, what="two of sixty")
        second = bus.start(Slow, workers=1, max_jobs=2)
        wait_for(lambda: second.said("assignment"), what="the second's partitions")
    finally:
        gate.set()
    wait_for(lambda: len(set(bus.answered())) >= COUNT, 40, "every answer")
