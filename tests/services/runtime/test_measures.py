"""Protects what alerts go by: lag while a service has no room for more, and calls that no store answered."""

import threading
import time

import pytest

from services.runtime.core import Effects, Job
from services.runtime.store import StoreUnavailable
from tests.services.runtime.bus import EchoCore, wait_for


@pytest.mark.timeout(90)
def test_a_service_without_room_does_not_say_that_it_is_at_the_end(bus):
    """Everything is paused then, so polls bring nothing; what waits is as old as it is."""
    go_on = threading.Event()

    class Stuck(EchoCore):
        def handle(self, message, now_ms):
            answer = super().handle(message, now_ms)
            return Effects(jobs=[Job(lambda: go_on.wait(60), lambda result: answer, partition=message.partition)])

    bus.send(range(1))
    time.sleep(0.3)
    running = bus.start(Stuck, workers=1, max_jobs=1)
    lag = running.service.metrics.lag
    try:
        wait_for(lambda: lag._value.get() > 0.25, what="the lag of a record that is 0.3 s old")
        seen = [lag._value.get() for _ in range(20) if not time.sleep(0.1)]
        assert min(seen) > 0.25, "two seconds of polls without room"
    finally:
        go_on.set()
    wait_for(lambda: lag._value.get() == 0, what="the end")


def test_calls_that_no_store_answers_are_counted(bus):
    service = bus.start().ready().service
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            service._store_down(StoreUnavailable("nobody answers"))
    assert 'rlvr_store_unavailable_total{service="sandbox"} 2.0' in service.metrics.text().decode()
