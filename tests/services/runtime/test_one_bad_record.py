"""One record stops a service at most once, whatever phase of the core it breaks; the others go on."""

import dataclasses

import pytest

from schemas.codec import ContractViolation, decode
from services.runtime import dlq, lifecycle
from services.runtime.core import Blamed, Effects, Job, Output, finished, on_account_of
from services.runtime.dlq import MAX_LETTER, fitting
from services.runtime.producer import Encoded
from tests.bench.loop_bench import result
from tests.services.runtime.bus import IN, OUT, EchoCore, wait_for

BAD = 97


class Holding(EchoCore):
    """Holds what it is given, and answers it all in one phase of its life, where one record breaks it."""

    phase = "caught_up"

    def __init__(self, context):
        super().__init__(context)
        self.held = []

    def handle(self, message, now_ms):
        self.held.append(message)
        return Effects()

    def answer(self):
        held, self.held = self.held, []
        effects = Effects()
        for message in held:
            with on_account_of([message.position]):
                if message.record.issued_ms == BAD:
                    raise OverflowError("a time before all times")
                self.numbers.append(message.record.issued_ms)
                effects += finished(message, [Output(OUT, result(message.record))])
        return effects

    def caught_up(self, now_ms):
        return self.answer() if self.phase == "caught_up" else Effects()

    def tick(self, now_ms):
        if self.phase == "job" and self.held:
            return Effects(jobs=[Job(lambda: None, lambda _: self.answer())])
        if self.phase == "emit" and self.held:
            return Effects(jobs=[Job(lambda: self.context.emit(self.answer), lambda _: Effects())])
        return self.answer() if self.phase == "tick" else Effects()


class TooLarge(EchoCore):
    """Its answer to one record cannot be written."""

    def handle(self, message, now_ms):
        self.numbers.append(message.record.issued_ms)
        answer = result(message.record)
        if message.record.issued_ms == BAD:
            answer = dataclasses.replace(answer, observation="x" * 9_000_000)
        return finished(message, [Output(OUT, answer)])


def cores():
    for phase in ("caught_up", "tick", "job", "emit"):
        yield pytest.param(type(phase, (Holding,), {"phase": phase}), id=phase)
    yield pytest.param(TooLarge, id="output")


@pytest.mark.parametrize("core", list(cores()))
def test_a_record_stops_the_service_once_and_the_others_go_on(bus, tmp_path, core):
    bus.send([0, BAD, 194])
    running = bus.start(core, ready_file=tmp_path / "ready.json", workers=1)
    assert running.ended() == lifecycle.EXIT_CRASH
    assert "@1" in running.log()[-1]["message"]
    again = bus.start(core, ready_file=tmp_path / "ready.json", workers=1).ready()
    wait_for(lambda: {0, 194} <= set(bus.answered()))
    wait_for(lambda: bus.committed() == 3)
    assert again.finish() == 0
    (letter,) = bus.raw(IN.name + ".dlq")
    headers = dict(letter.headers)
    assert (headers["dlq.reason"], headers["dlq.source.offset"]) == (b"crash", b"1")


def test_two_bad_records_each_stop_it_once(bus, tmp_path):
    class Both(EchoCore):
        def handle(self, message, now_ms):
            if message.record.issued_ms in (0, 194):
                raise ZeroDivisionError("a bug")
            return super().handle(message, now_ms)

    bus.send([0, BAD, 194])
    for _ in range(2):
        assert bus.start(Both, ready_file=tmp_path / "ready.json").ended() == lifecycle.EXIT_CRASH
    running = bus.start(Both, ready_file=tmp_path / "ready.json").ready()
    wait_for(lambda: bus.answered() == [BAD])
    assert running.finish() == 0
    assert len(bus.raw(IN.name + ".dlq")) == 2


def test_a_service_that_breaks_on_everything_stops_for_a_person(make_bus, tmp_path):
    """Else a bad release would put a whole topic among the dead letters, one start at a time."""

    class Always(EchoCore):
        def handle(self, message, now_ms):
            raise ZeroDivisionError("a bug")

    bus = make_bus(runtime={"dead_letters_in_a_row": 2})
    bus.send(range(0, 10 * BAD, BAD))
    codes = [bus.start(Always, ready_file=tmp_path / "ready.json").ended() for _ in range(3)]
    assert codes == [lifecycle.EXIT_CRASH, lifecycle.EXIT_CRASH, lifecycle.EXIT_FAIL_STOP]


def test_a_letter_has_a_value_for_every_header():
    """A header's value may be null on the wire, and our client refuses to send such a one."""
    found = dlq.headers([("x", None), ("dlq.attempts", None)], ORIGIN, 1, reason="r", error="e", service="s")
    assert dict(found)["x"] == b""
    assert dict(found)["dlq.attempts"] == b"1"
    with pytest.raises(ContractViolation, match="content-type"):
        decode(IN.record, b"x", [("content-type", None), ("ce_dataschema", None)])


def test_attempts_of_a_letter_are_believed_up_to_a_point():
    where = [("dlq.attempts", b"9" * 5000)]
    found = dlq.headers(where, ORIGIN, 1, reason="r", error="e", service="s")
    assert len(dict(found)["dlq.attempts"]) <= 10


ORIGIN = type("P", (), {"topic": "t", "partition": 0, "offset": 1})()


def test_a_letter_that_no_topic_takes_is_cut():
    """A record that came compressed can be larger than any message that its letter may be."""
    huge = Encoded("t.dlq", b"k", b"x" * (MAX_LETTER + 1), [("a", b"1"), ("dlq.reason", b"size")])
    cut = fitting(huge)
    assert cut.size < MAX_LETTER
    found = dict(cut.headers)
    assert found["dlq.size"] == str(MAX_LETTER + 1).encode()
    assert found["dlq.reason"] == b"size"
    whole = huge._replace(value=b"x")
    assert fitting(whole) is whole


def test_surroundings_are_nobodys_fault():
    with pytest.raises(OSError), on_account_of([ORIGIN]):
        raise OSError("the disk")
    with pytest.raises(Blamed), on_account_of([ORIGIN]):
        raise KeyError("a bug")
