"""Protects what probes are told: a slow start is alive, a dead loop is not, work that is over is no reason to end."""

import threading
import time
import urllib.error
import urllib.request

import pytest

from services.runtime.core import BaseCore, Effects, finished
from services.runtime.process import MAIN, ServiceProcess, Stopped
from services.runtime.settings import load
from tests.services.runtime.bus import IN, wait_for

STUCK_S, START_S = 10.0, 600.0


class HandClock:
    """Monotonic seconds that a test moves; nothing else of a clock is asked for."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def process():
    settings = load(runtime={"stuck_s": STUCK_S, "start_s": START_S, "drain_s": 60.0})
    return ServiceProcess("closure", settings, clock=HandClock())


def status(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as e:
        return e.code


def test_a_start_without_turns_has_its_own_bound(process):
    process.clock.now += START_S - 1
    assert process.live, "liveness must not kill what reads a large checkpoint"
    process.clock.now += 2
    assert not process.live, "a start that hangs is ended at last"


def test_a_loop_that_does_not_turn_is_dead(process):
    process.started()
    process.clock.now += STUCK_S - 1
    assert process.live
    process.clock.now += 2
    assert not process.live
    process.beat()
    assert process.live


def test_work_that_takes_no_turns_is_allowed_for(process):
    process.started()
    with process.unturned():
        process.clock.now += START_S - 1
        assert process.live
    assert process.live
    process.clock.now += STUCK_S + 1
    assert not process.live, "afterwards turns are owed again"


def test_a_dead_follower_is_seen_behind_a_main_thread_that_turns(process):
    process.started()
    process.beat("broadcast")
    process.clock.now += STUCK_S + 1
    process.beat(MAIN)
    assert not process.live


def test_a_long_drain_is_not_cut_by_liveness(process):
    """Ended threads owe nothing, and the shutdown has a watchdog of its own."""
    process.started()
    process.beat("broadcast")
    process.ending()
    process.clock.now += process.settings.runtime.drain_s
    assert process.live


def test_the_grace_period_is_longer_than_all_it_covers():
    usual, long = load().runtime, load(runtime={"drain_s": 300.0, "revoke_s": 30.0}).runtime
    assert usual.grace_s > usual.revoke_s + usual.drain_s + 15.0, "the shutdown's own watchdog comes first"
    assert long.grace_s - usual.grace_s == (300.0 - usual.drain_s) + (30.0 - usual.revoke_s)


def test_a_wait_ends_when_the_process_is_asked_to(process):
    process.turn()
    process.stop.set()
    with pytest.raises(Stopped):
        process.turn()
    with pytest.raises(Stopped), process.unturned():
        pytest.fail("begun after the end was asked for")


class Ends(BaseCore):
    """Its work is over with the first record."""

    def __init__(self, context):
        self._context = context

    def handle(self, message, now_ms):
        self._context.stop.set()
        return finished(message)

    def tick(self, now_ms):
        return Effects()


def test_a_service_whose_work_is_over_stays_and_is_well(bus):
    """Else a Deployment would start it for ever. What it has finished is committed, and it has left its group."""
    bus.send([0])
    running = bus.start(Ends, stay=True)
    wait_for(lambda: running.said("the work is over"), what="rest")
    process = running.service.process
    port = process.health.port
    assert running.thread.is_alive()
    assert [status(port, path) for path in ("/healthz/live", "/healthz/ready", "/metrics")] == [200, 200, 200]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    assert 'rlvr_finished{service="sandbox"} 1.0' in text
    assert bus.committed() == 1
    process.asked.set()
    assert running.ended(5) == 0


def test_without_it_the_end_is_the_end(bus):
    bus.send([0])
    assert bus.start(Ends).ended() == 0


def test_a_service_that_is_asked_to_end_does_not_stay(bus):
    running = bus.start(stay=True).ready()
    running.service.process.asked.set()
    assert running.finish(20) == 0


def test_readiness_is_logged_with_what_is_owned(bus):
    running = bus.start().ready()
    wait_for(lambda: running.said("ready"), what="the line")
    (assignment,) = running.said("assignment")
    assert assignment["partitions"] == [0, 1, 2, 3]
    assert running.finish() == 0
    assert [entry["event"] for entry in running.log()][-2:] == ["draining", "stopped"]


def test_a_make_core_that_takes_long_is_alive_and_not_ready(bus):
    """Restoring a checkpoint: seconds without a turn, though `stuck_s` is shorter than that."""
    go = threading.Event()
    settings = bus.settings.model_copy(
        update={"runtime": bus.settings.runtime.model_copy(update={"stuck_s": 0.5, "start_s": 60.0})}
    )

    class Slow(BaseCore):
        def __init__(self, context):
            go.wait(20)

        def handle(self, message, now_ms):
            return finished(message)

    running = bus.start(Slow, settings=settings, inputs=(IN,))
    process = running.service.process
    wait_for(lambda: process.health is not None, what="health")
    time.sleep(1.5)
    assert status(process.health.port, "/healthz/live") == 200
    assert status(process.health.port, "/healthz/ready") == 503
    go.set()
    running.ready()
    assert running.finish() == 0
