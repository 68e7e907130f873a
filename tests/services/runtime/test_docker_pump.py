"""The pump between an engine's socket and plain pipes: nothing lost, nothing mixed up, and no flood in our memory."""

from __future__ import annotations

import os
import socket
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from services.runtime.jail.docker.pump import Demultiplexer, Pump

FRAMES = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=300)), max_size=20)


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@settings(max_examples=200, deadline=None)
@given(FRAMES, st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_however_the_stream_is_cut_each_side_gets_its_bytes(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    raw = b"".join(frame(*one) for one in frames)
    split, at, turn = Demultiplexer(), 0, 0
    while at < len(raw):
        step = cuts[turn % len(cuts)]
        split.feed(raw[at : at + step])
        at, turn = at + step, turn + 1
    assert not split.broken
    for stream in (1, 2):
        assert bytes(split.waiting[stream]) == b"".join(data for kind, data in frames if kind == stream)


def test_a_head_that_no_engine_writes_ends_the_stream() -> None:
    for head in (b"\3\0\0\0\0\0\0\1x", b"\1\0\1\0\0\0\0\1x"):
        split = Demultiplexer()
        split.feed(frame(1, b"before") + head)
        assert split.broken
        assert bytes(split.waiting[1]) == b"before"


class Ends:
    """A pump with the far end of its socket and of its pipes."""

    def __init__(self) -> None:
        self.engine, ours = socket.socketpair()
        request_r, self.requests = os.pipe()
        self.replies, reply_w = os.pipe()
        self.log, log_w = os.pipe()
        self.pump = Pump(ours, request_r, reply_w, log_w)
        self.pump.start()

    def close(self) -> None:
        for fd in (self.requests, self.replies, self.log):
            if fd >= 0:
                os.close(fd)
        self.engine.close()
        self.pump.join(10)
        assert not self.pump.is_alive()


def read_all(fd: int) -> bytes:
    found = b""
    while part := os.read(fd, 65536):
        found += part
    return found


def test_both_ways_and_both_ends() -> None:
    ends = Ends()
    os.write(ends.requests, b"question")
    assert ends.engine.recv(100) == b"question"
    os.close(ends.requests)
    ends.requests = -1
    assert ends.engine.recv(100) == b""  # the container's input ends
    ends.engine.sendall(frame(1, b"answer") + frame(2, b"note") + frame(1, b" and more"))
    ends.engine.shutdown(socket.SHUT_WR)
    assert read_all(ends.replies) == b"answer and more"
    assert read_all(ends.log) == b"note"
    ends.close()


def test_a_flood_waits_in_the_engine() -> None:
    ends = Ends()
    ends.engine.sendall(b"\1\0\0\0" + (1 << 30).to_bytes(4, "big"))
    ends.engine.setblocking(False)
    sent, quiet = 0, time.monotonic()
    while time.monotonic() < quiet + 1.0:
        try:
            sent += ends.engine.send(b"x" * 65536)
            quiet = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
    assert sent < 2 * 1024 * 1024  # buffers of socket and pipe, and a bounded rest
    ends.close()


def test_a_reader_that_left_does_not_hold_up_the_other() -> None:
    ends = Ends()
    os.close(ends.log)
    ends.log = -1
    for _ in range(100):
        ends.engine.sendall(frame(2, b"x" * 65536))
    ends.engine.sendall(frame(1, b"answer"))
    assert os.read(ends.replies, 100) == b"answer"
    ends.close()


def test_it_ends_when_nobody_reads_any_more() -> None:
    ends = Ends()
    for fd in (ends.requests, ends.replies, ends.log):
        os.close(fd)
    ends.requests = ends.replies = ends.log = -1
    ends.pump.join(10)
    assert not ends.pump.is_alive()
    ends.close()
