"""Protects the bounded pool: full by count and by bytes, lost partitions discarded, intake stopped before a drain."""

import threading
import time

import pytest

from services.runtime.clock import Deadline, SystemClock
from services.runtime.core import Effects, Job
from services.runtime.workers import Workers


class Results:
    def __init__(self):
        self.seen = []
        self.arrived = threading.Condition()

    def __call__(self, job, epoch, result):
        with self.arrived:
            self.seen.append((job, epoch, result))
            self.arrived.notify_all()

    def wait(self, count):
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.seen) >= count, 5), self.seen


def job(run=lambda: None, **more):
    return Job(run=run, then=lambda result: Effects(), **more)


def make(count=1, results=None, **more):
    return Workers(count, results or Results(), **{"max_jobs": 100, "max_bytes": 1000, **more})


def test_full_by_count_and_by_bytes_and_free_again():
    results, gate = Results(), threading.Event()
    pool = make(1, results, max_jobs=3)
    pool.submit([job(gate.wait), job(gate.wait)])
    assert not pool.full
    pool.submit([job(gate.wait)])
    assert pool.full
    pool.room.clear()
    gate.set()
    results.wait(3)
    assert pool.room.wait(5)
    for _ in range(100):
        if not pool.full:
            break
        time.sleep(0.01)
    assert not pool.full
    pool.submit([job(cost_bytes=1000)])
    results.wait(4)
    blocked = make(0, max_bytes=10)
    assert not blocked.full


def test_bytes_alone_fill_it():
    gate = threading.Event()
    pool = make(1, max_bytes=1000)
    pool.submit([job(gate.wait, cost_bytes=1000)])
    assert pool.full
    assert pool.load == (1, 1000)
    gate.set()


def test_an_exception_is_a_result():
    """Every started job must end in effects, or its inputs would hold the watermark for ever."""
    results = Results()

    def boom():
        raise ValueError("no")

    make(1, results).submit([job(boom)])
    results.wait(1)
    assert isinstance(results.seen[0][2], ValueError)


def test_lost_partition_drops_queued_jobs_and_marks_running_ones():
    results, gate, discarded = Results(), threading.Event(), []
    pool = make(1, results, discarded=lambda: discarded.append(1))
    pool.submit([job(gate.wait, partition=1), job(partition=1, cost_bytes=10), job(partition=2)])
    for _ in range(200):
        if pool.running:
            break
        time.sleep(0.005)
    pool.revoke([1])
    assert len(discarded) == 1, "the queued job of the lost partition never starts"
    gate.set()
    results.wait(2)
    running, other = results.seen
    assert not pool.current(running[0], running[1]), "the running one ends, but its epoch is over"
    assert pool.current(other[0], other[1])
    pool.submit([job(partition=1)])
    results.wait(3)
    assert pool.current(results.seen[2][0], results.seen[2][1]), "owned again: new jobs count"


def test_drain_stops_intake_first():
    """A queued job must not start during a shutdown (a reported eleven-minute surprise); running ones are awaited."""
    results, gate = Results(), threading.Event()
    pool = make(1, results)
    pool.submit([job(gate.wait), job(), job()])
    for _ in range(200):
        if pool.running:
            break
        time.sleep(0.005)
    threading.Timer(0.1, gate.set).start()
    assert pool.drain(Deadline(SystemClock(), 5))
    assert len(results.seen) == 1
    pool.submit([job()])
    time.sleep(0.05)
    assert len(results.seen) == 1


def test_drain_gives_up_at_its_deadline():
    gate = threading.Event()
    pool = make(1)
    pool.submit([job(gate.wait)])
    for _ in range(200):
        if pool.running:
            break
        time.sleep(0.005)
    start = time.monotonic()
    assert not pool.drain(Deadline(SystemClock(), 0.2))
    assert time.monotonic() - start < 2
    gate.set()


def test_hold_starts_nothing_until_release():
    results = Results()
    pool = make(1, results)
    pool.hold()
    pool.submit([job()])
    time.sleep(0.05)
    assert not results.seen
    pool.release()
    results.wait(1)


def test_a_job_without_workers_is_a_clear_error():
    with pytest.raises(RuntimeError, match="workers=0"):
        make(0).submit([job()])
