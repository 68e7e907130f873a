"""A process that may have lost its partitions without having heard of it takes nothing in and lets nothing out."""

import threading
import time
from types import SimpleNamespace

from services.runtime.core import Effects, Job
from services.runtime.driver import Driver
from services.runtime.ownership import Lease


class Heartbeat:
    """The client's bookkeeping of its heartbeats."""

    last_send = 0.0

    def received_heartbeat(self):
        pass


class Group:
    def __init__(self, session_s=6.0):
        self.now = 100.0
        self.heartbeat = Heartbeat()
        consumer = SimpleNamespace(_coordinator=SimpleNamespace(heartbeat=self.heartbeat))
        self.lease = Lease(consumer, SimpleNamespace(monotonic=lambda: self.now), session_s)

    def beat(self, takes_s=0.0):
        self.heartbeat.last_send = self.now
        self.now += takes_s
        self.heartbeat.received_heartbeat()


def test_nothing_is_held_before_the_group_handed_it_out():
    group = Group()
    assert group.lease.lapsed
    group.lease.renew()
    assert not group.lease.lapsed


def test_each_heartbeat_holds_for_one_session():
    group = Group()
    group.lease.renew()
    group.now += 5
    group.beat()
    group.now += 5.9
    assert not group.lease.lapsed
    group.now += 0.2
    assert group.lease.lapsed
    group.beat()
    assert not group.lease.lapsed


def test_an_answer_that_was_read_late_holds_from_when_it_was_asked_for():
    group = Group()
    group.lease.renew()
    group.beat(takes_s=60.0)  # stopped between request and answer
    assert group.lease.lapsed


def a_driver(stop):
    workers = SimpleNamespace(current=lambda job, epoch: epoch == 0, submit=lambda jobs: None)
    nothing = SimpleNamespace(discarded=lambda: None, finish_now=lambda done: None, wait_for_room=lambda s: True)
    driver = Driver(
        service="s", raw=False, outbox=nothing, watermarks=nothing, crashes=None, limit=None, clock=None, log=None,
        metrics=nothing, stop=stop, fail=lambda error: None,
    )  # fmt: skip
    driver.workers = workers
    return driver


def test_results_wait_until_ownership_is_certain_and_those_of_lost_partitions_are_dropped():
    stop, certain, seen = threading.Event(), threading.Event(), []
    driver = a_driver(stop)
    driver.certain = certain.is_set

    def then(result):
        seen.append(result)
        return Effects()

    kept = threading.Thread(target=driver.job_done, args=(Job(lambda: 1, then), 0, "kept"))
    lost = threading.Thread(target=driver.job_done, args=(Job(lambda: 1, then), 1, "lost"))
    sampled = threading.Thread(target=driver.emit, args=(lambda: then("sampled"),))
    for thread in (kept, lost, sampled):
        thread.start()
    time.sleep(0.1)
    assert seen == []
    certain.set()
    for thread in (kept, lost, sampled):
        thread.join(10)
        assert not thread.is_alive()
    assert sorted(seen) == ["kept", "sampled"]


def test_a_service_that_ends_while_it_is_not_certain_lets_nothing_out():
    stop, seen = threading.Event(), []
    driver = a_driver(stop)
    driver.certain = lambda: False
    waiting = threading.Thread(target=driver.emit, args=(lambda: seen.append(1) or Effects(),))
    waiting.start()
    stop.set()
    waiting.join(10)
    assert not waiting.is_alive()
    assert seen == []
