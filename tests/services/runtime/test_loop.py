"""Protects the loop's promises on a real broker: nothing lost, commits behind acknowledged work, poison set aside."""

import threading
import time

import pytest

from schemas import codec, topics
from schemas.policy import PolicyGate
from services.runtime import lifecycle
from services.runtime.core import BaseCore, Effects, Job, Output, finished
from tests.bench.loop_bench import result
from tests.services.runtime.bus import IN, OUT, RUN, SHORT_SESSION_MS, EchoCore, command, wait_for


def gate_record(version):
    return PolicyGate(
        run_id=RUN, policy_version=version, manifest_uri="u", manifest_digest="d", decision="promoted",
        findings="{}", decided_ms=0,
    )  # fmt: skip


def send_gate(bus, version):
    record = gate_record(version)
    bus.send_raw(topics.POLICY_GATE.name, codec.encode(record), RUN.encode(), codec.headers(record))


def test_every_record_is_answered_once_and_committed(bus):
    """The plain case, over a restart: what was committed is not handled again."""
    bus.send(range(200))
    first = bus.start().ready()
    wait_for(lambda: len(first.core.numbers) == 200)
    assert first.finish() == lifecycle.EXIT_OK
    assert bus.answered() == list(range(200))
    assert bus.committed() == 200
    bus.send(range(200, 250))
    second = bus.start().ready()
    wait_for(lambda: len(second.core.numbers) == 50)
    assert second.finish() == lifecycle.EXIT_OK
    assert sorted(second.core.numbers) == list(range(200, 250))
    assert bus.answered() == list(range(250))


def test_order_of_events(bus):
    """Broadcast to its end, then assigned, the records that stood there, caught_up, and only then ticks."""

    class Core(EchoCore):
        def tick(self, now_ms):
            self.diary.append(("tick",))
            return Effects()

    for version in range(5):
        send_gate(bus, version)
    bus.send(range(30))
    running = bus.start(Core, broadcast=(topics.POLICY_GATE,)).ready()
    wait_for(lambda: len(running.core.events("tick")) >= 2)
    names = [entry[1] if entry[0] == "handle" else entry[0] for entry in running.core.diary]
    start = [topics.POLICY_GATE.name] * 5 + ["assigned"] + [IN.name] * 30 + ["caught_up"]
    assert names[: len(start)] == start
    assert names.count("caught_up") == 1
    assert running.core.events("assigned") == [("assigned", {0, 1, 2, 3})]
    send_gate(bus, 5)
    wait_for(lambda: len(running.core.events("handle")) == 36)
    assert running.finish() == 0
    assert bus.committed(topic=topics.POLICY_GATE.name) == 0, "broadcast topics are never committed"


def test_a_single_instance_service_rebuilds_by_full_replay(bus):
    """Broadcast only: everything again after every start, nothing committed, caught_up at the end."""
    bus.send(range(40))
    for _ in range(2):
        running = bus.start(inputs=(), broadcast=(IN,), name="gate").ready()
        assert sorted(running.core.numbers) == list(range(40))
        assert running.core.diary[-1] == ("caught_up",)
        assert running.finish() == 0
    assert bus.committed("gate") == 0


def test_a_held_record_holds_the_commit(bus):
    """A position that is not reported done is read again after a restart; finished ones below it are not."""

    class Holds(EchoCore):
        def handle(self, message, now_ms):
            self.numbers.append(message.record.issued_ms)
            return Effects() if message.record.issued_ms >= 97 * 3 else finished(message)

    numbers = [97 * i for i in range(6)]  # one group, so one partition and one order
    bus.send(numbers)
    running = bus.start(Holds).ready()
    wait_for(lambda: len(running.core.numbers) == 6)
    assert running.finish() == 0
    assert bus.committed() == 3
    again = bus.start().ready()
    wait_for(lambda: len(again.core.numbers) == 3)
    assert again.core.numbers == numbers[3:]
    assert again.finish() == 0


def test_poison_goes_to_dead_letters_byte_for_byte(bus):
    """Undecodable bytes, a legal record under a wrong key, and a record that the core refuses; then work goes on."""

    class Refuses(EchoCore):
        def handle(self, message, now_ms):
            if message.record.issued_ms == 97:
                raise codec.ContractViolation("value", "the core refuses this one")
            return super().handle(message, now_ms)

    good = command(0)
    bus.send_raw(IN.name, b"\x00not arrow", b"bench/00000000", [("content-type", b"text/plain"), ("x", b"\xff")])
    bus.send_raw(IN.name, codec.encode(good), b"bench/00000042", codec.headers(good))
    bus.send_raw(IN.name, codec.encode(good), None, codec.headers(good))
    bus.send([97, 194])
    running = bus.start(Refuses).ready()
    wait_for(lambda: 194 in running.core.numbers)
    assert running.finish() == 0
    assert bus.committed() == 5
    letters = {dict(r.headers)["dlq.reason"].decode(): r for r in bus.raw(IN.name + ".dlq")}
    assert set(letters) == {"content-type", "key", "value"}
    assert len(bus.raw(IN.name + ".dlq")) == 4
    raw = letters["content-type"]
    assert (raw.key, raw.value) == (b"bench/00000000", b"\x00not arrow")
    assert raw.headers[:2] == [("content-type", b"text/plain"), ("x", b"\xff")]
    assert dict(raw.headers)["dlq.source.topic"] == IN.name.encode()
    assert letters["value"].value == codec.encode(command(97))


def test_a_flood_of_poison_stops_the_service(bus):
    """More bad records in a row than the limit: a person must look; the rest stays where it is."""
    settings = bus.settings.model_copy(update={"runtime": bus.settings.runtime.model_copy(
        update={"dead_letters_in_a_row": 3})})  # fmt: skip
    for _ in range(8):
        bus.send_raw(IN.name, b"junk")
    running = bus.start(settings=settings)
    assert running.ended() == lifecycle.EXIT_FAIL_STOP
    assert "in a row" in running.log()[-1]["message"]
    assert len(bus.raw(IN.name + ".dlq")) == 3
    assert bus.committed() == 3


def test_poison_on_a_control_topic_stops_the_service(bus):
    """Decisions are ordered: none may be skipped. The message names the place."""
    send_gate(bus, 0)
    bus.send_raw(topics.POLICY_GATE.name, b"junk", RUN.encode())
    running = bus.start(broadcast=(topics.POLICY_GATE,))
    assert running.ended() == lifecycle.EXIT_FAIL_STOP
    last = running.log()[-1]
    assert f"{topics.POLICY_GATE.name}[0]@1" in last["message"]
    assert last["level"] == "error"


class Crashes(EchoCore):
    def handle(self, message, now_ms):
        if message.record.issued_ms == 97:
            raise ZeroDivisionError("a bug")
        return super().handle(message, now_ms)


@pytest.mark.parametrize("tries", [1, 3])
def test_a_crashing_record_is_set_aside(make_bus, tmp_path, tries):
    """A bug on one record: exit 1 with its position, as often as allowed; then a dead letter, and the others go on."""
    bus = make_bus(runtime={"crash_tries": tries})
    bus.send([0, 97, 194])
    for _ in range(tries):
        running = bus.start(Crashes, ready_file=tmp_path / "ready.json")
        assert running.ended() == lifecycle.EXIT_CRASH
        last = running.log()[-1]
        assert "@1" in last["message"]
        assert "ZeroDivisionError" in last["traceback"]
    running = bus.start(Crashes, ready_file=tmp_path / "ready.json").ready()
    wait_for(lambda: 194 in running.core.numbers)
    assert running.finish() == 0
    (letter,) = bus.raw(IN.name + ".dlq")
    assert dict(letter.headers)["dlq.reason"] == b"crash"
    assert bus.committed() == 3
    assert not (tmp_path / "sandbox.crash.json").exists()


class Slow(EchoCore):
    """Each command is a job of `seconds` on a worker."""

    seconds = 0.1

    def __init__(self, context):
        super().__init__(context)
        self.running = 0
        self.most = 0
        self.started = []

    def handle(self, message, now_ms):
        self.numbers.append(message.record.issued_ms)
        done = Effects(outputs=[Output(OUT, result(message.record))], done=[message.position])
        return Effects(jobs=[Job(lambda: self.work(message), lambda _: done, message.partition, message.size)])

    def work(self, message):
        self.started.append(message.record.issued_ms)
        time.sleep(self.seconds)


def test_full_pool_pauses_intake_and_keeps_membership(make_bus):
    """Work that takes far longer than the session: intake stops at the bound, the member stays, all work is done."""
    bus = make_bus(kafka={"session_timeout_ms": SHORT_SESSION_MS})
    bus.send(range(40))
    running = bus.start(Slow, workers=2, max_jobs=4)
    wait_for(lambda: running.core and len(running.core.started) >= 10)
    assert len(running.core.numbers) - len(running.core.started) <= 4, "no more is taken in than there is room"
    assignments = len(running.said("assignment"))
    wait_for(lambda: len(bus.answered()) == 40)
    assert running.finish() == 0
    assert sorted(running.core.numbers) == list(range(40)), "each handed out once: nothing was dropped or repeated"
    assert len(running.said("assignment")) == assignments, "no rebalance while it was full"
    assert running.core.events("caught_up") == [("caught_up",)]
    assert bus.committed() == 40


def test_job_exception_reaches_then(bus):
    """A failed job is a result: the core decides what it means."""

    class Core(EchoCore):
        def handle(self, message, now_ms):
            def run():
                raise OSError("disk")

            def then(outcome):
                self.diary.append(("then", type(outcome).__name__))
                return Effects(done=[message.position])

            return Effects(jobs=[Job(run, then, message.partition)])

    bus.send([0])
    running = bus.start(Core, workers=1).ready()
    wait_for(lambda: running.core.events("then") == [("then", "OSError")])
    assert running.finish() == 0
    assert bus.committed() == 1


def test_rebalance_moves_what_it_must_and_loses_nothing(bus):
    """A second member joins and leaves: what stays is not revoked, what moves is handled by its new owner."""
    bus.send(range(100))
    one = bus.start().ready()
    wait_for(lambda: len(one.core.numbers) == 100)
    two = bus.start().ready()
    wait_for(lambda: one.core.events("revoked"))
    (_, lost), (_, gained) = one.core.events("revoked")[0], two.core.events("assigned")[0]
    assert lost == gained
    assert len(lost) == 2
    bus.send(range(100, 300))
    wait_for(lambda: set(one.core.numbers) | set(two.core.numbers) == set(range(300)))
    assert not set(two.core.numbers) & set(range(100)), "the finished past was committed before it moved"
    assert len(one.core.numbers) + len(two.core.numbers) == 300
    assert two.finish() == 0
    wait_for(lambda: one.core.events("assigned")[1:])
    assert one.core.events("assigned")[1] == ("assigned", lost)
    bus.send(range(300, 400))
    wait_for(lambda: set(range(300, 400)) <= set(one.core.numbers))
    assert len(one.core.events("caught_up")) == 2
    assert one.finish() == 0
    assert bus.committed() == 400
    assert not one.said("commit before letting partitions go failed")


def test_results_of_a_lost_partition_are_discarded_and_redone(make_bus):
    """A job outlives the revoke budget: its late result must not be produced by the member that lost the partition."""
    bus = make_bus(runtime={"revoke_s": 0.2, "drain_s": 0.2})

    class Stuck(Slow):
        gate = threading.Event()

        def work(self, message):
            self.started.append(message.record.issued_ms)
            self.gate.wait(30)

    try:
        one = bus.start(Stuck, workers=8).ready()
        bus.send(range(8))
        wait_for(lambda: len(one.core.started) == 8)
        two = bus.start(Slow, workers=2).ready()
        (_, lost) = wait_for(lambda: one.core.events("revoked"))[0]
        wait_for(lambda: len(two.core.started) >= 1)
        redone = set(two.core.started)
        wait_for(lambda: redone <= set(bus.answered()))
        Stuck.gate.set()
        wait_for(lambda: set(bus.answered()) == set(range(8)))
        assert bus.answered() == list(range(8)), "each once: the old owner's results were discarded"
        assert lost
        assert two.finish() == 0
        assert one.finish() == 0
    finally:
        Stuck.gate.set()


def test_broker_outage_is_backpressure(mortal):
    """kill -9 of the broker in the middle: the service waits, and finishes when it is back."""
    broker, bus = mortal
    running = bus.start().ready()
    bus.send(range(100))
    wait_for(lambda: len(running.core.numbers) == 100)
    broker.kill()
    time.sleep(1.0)
    assert running.thread.is_alive()
    assert running.service.process.live
    broker.start()
    bus.send(range(100, 200))
    wait_for(lambda: len(running.core.numbers) >= 200, 40)
    assert running.finish() == 0
    assert sorted(set(bus.answered())) == list(range(200))
    assert bus.committed() == 200


def test_starts_before_its_broker(mortal):
    """Start order does not matter: a service waits for its broker, live but not ready."""
    broker, bus = mortal
    broker.kill()
    running = bus.start()
    time.sleep(0.5)
    assert running.thread.is_alive()
    assert running.service.process.live
    assert not running.service.ready
    assert running.said("waiting for the broker")
    broker.start()
    running.ready()
    assert running.finish() == 0


def test_stop_while_waiting_for_a_broker(mortal):
    broker, bus = mortal
    broker.kill()
    running = bus.start()
    wait_for(lambda: running.said("waiting for the broker"))
    start = time.monotonic()
    assert running.finish() == 0
    assert time.monotonic() - start < 5


def test_pinned_offsets_come_from_the_service_itself(bus):
    """The trainer's way: no group decides where to start; commits are only for lag dashboards."""
    bus.send([97 * i for i in range(10)])  # all in one partition
    (partition,) = {r.partition for r in bus.raw(IN.name)}
    start = {(IN.name, partition): 6}
    for _ in range(2):
        running = bus.start(pinned=lambda: start).ready()
        assert running.core.numbers == [97 * i for i in range(6, 10)]
        wait_for(lambda: bus.committed() == 10)
        assert running.finish() == 0


def test_pinned_offsets_outside_the_log_are_a_clear_end(bus):
    """A manifest that belongs to another broker must not silently restart from somewhere else."""
    running = bus.start(pinned=lambda: {(IN.name, 0): 1000})
    assert running.ended() == lifecycle.EXIT_USER
    assert "1000" in running.log()[-1]["message"]


def test_emit_from_a_thread_and_not_from_a_core_method(bus):
    """Engine threads re-enter through emit; a core method that would wait for itself gets an error instead."""

    class Core(EchoCore):
        def handle(self, message, now_ms):
            if message.record.issued_ms == 97:
                self.context.emit(Effects)
            self.numbers.append(message.record.issued_ms)
            return Effects()

    running = bus.start(Core).ready()
    assert running.core.context.emit(lambda: Effects(outputs=[Output(OUT, result(command(5)))]))
    wait_for(lambda: bus.answered() == [5])
    bus.send([97])
    assert running.ended() == lifecycle.EXIT_CRASH
    assert "return Effects" in running.log()[-1]["traceback"]
    assert running.core.context.emit(Effects) is False, "after the end nothing is accepted"


def test_fail_and_ready_gate(bus):
    """A core can hold readiness back, and end the service from a thread of its own."""
    running = bus.start()
    wait_for(lambda: running.core and running.core.events("caught_up"))
    running.core.context.set_ready(False)
    assert not running.service.ready
    running.core.context.set_ready(True)
    running.ready()
    running.core.context.fail(RuntimeError("the engine died"))
    assert running.ended() == lifecycle.EXIT_CRASH
    assert "the engine died" in running.log()[-1]["message"]


def test_a_wide_window_pauses_only_its_partition(make_bus):
    """One stuck record: its partition stops at the bound, the others go on."""
    bus = make_bus(runtime={"window_records": 50})

    class Holds(EchoCore):
        def handle(self, message, now_ms):
            self.numbers.append(message.record.issued_ms)
            return Effects() if message.record.issued_ms == 0 else finished(message)

    running = bus.start(Holds).ready()
    stuck = [97 * i for i in range(1000)]
    for at in range(0, 1000, 100):  # in portions, since one fetch may overshoot the bound
        bus.send(stuck[at : at + 100])
        time.sleep(0.1)
    bus.send([1 + 97 * i for i in range(100)] + [2 + 97 * i for i in range(100)] + [3 + 97 * i for i in range(100)])
    time.sleep(1.5)
    assert len([n for n in running.core.numbers if n % 97 == 0]) < 800
    others = {r.partition: r for r in bus.raw(IN.name)}
    assert len(others) > 1
    assert any(n % 97 in (1, 2, 3) for n in running.core.numbers)
    assert running.finish() == 0


def test_differing_partition_counts_are_refused(make_bus):
    """Co-partitioning is what makes joins local; a wrong count must not go unnoticed."""
    bus = make_bus()
    other = bus.settings.model_copy(update={"kafka": bus.settings.kafka.model_copy(update={"partitions": 8})})
    from services.runtime.errors import UserError
    from services.runtime.topics_admin import ensure_topics

    ensure_topics(bus.settings)  # again: no error, nothing changes
    with pytest.raises(UserError, match="has 4 partitions, the settings say 8"):
        ensure_topics(other)


class Ticking(BaseCore):
    def handle(self, message, now_ms):
        return finished(message)

    def tick(self, now_ms):
        return Effects(jobs=[Job(lambda: None, lambda _: Effects())])


def test_job_without_workers_ends_the_service_clearly(bus):
    running = bus.start(lambda context: Ticking())
    assert running.ended() == lifecycle.EXIT_CRASH
    assert "workers=0" in running.log()[-1]["message"]
