"""Protects reading without a group: the whole topic once, in order per partition, and no trace on the broker."""

import threading

import pytest

from schemas import codec, topics
from services.runtime.core import Message
from services.runtime.errors import UserError
from services.runtime.tap import Tap, Undecodable, read_all
from tests.services.runtime.bus import IN, command


def test_read_all_returns_every_record_in_partition_order(bus):
    bus.send(range(150))
    messages = list(read_all(bus.bootstrap, IN))
    assert sorted(m.record.issued_ms for m in messages) == list(range(150))
    for partition in range(4):
        offsets = [m.position.offset for m in messages if m.partition == partition]
        assert offsets == sorted(offsets)
    assert list(read_all(bus.bootstrap, topics.GROUP_CLOSED)) == []


def test_a_corrupt_record_is_named_or_handed_over(bus):
    """One bad record must neither break an audit nor pass unseen."""
    bus.send([0])
    bus.send_raw(IN.name, b"junk", partition=2, headers=[("content-type", codec.CONTENT_TYPE.encode())])
    with pytest.raises(codec.ContractViolation, match=r"sandbox.command.v1\[2\]@0"):
        list(read_all(bus.bootstrap, IN))
    bad = []
    assert len(list(read_all(bus.bootstrap, IN, undecodable=bad.append))) == 1
    assert isinstance(bad[0], Undecodable)
    assert (bad[0].value, bad[0].reason) == (b"junk", "undecodable")


def test_start_and_offsets(bus):
    bus.send([97 * i for i in range(10)])
    (partition,) = {m.partition for m in read_all(bus.bootstrap, IN)}
    with Tap(bus.bootstrap, [IN], offsets={(IN.name, partition): 7}) as tap:
        assert [m.record.issued_ms for m in tap.to_end() if isinstance(m, Message)] == [97 * i for i in range(7, 10)]


def test_follow_from_latest_sees_only_what_comes(bus):
    bus.send(range(5))
    seen = []
    with Tap(bus.bootstrap, [IN], start="latest") as tap:
        threading.Timer(0.2, bus.send, [[command(7).issued_ms]]).start()
        for message in tap.follow(lambda: bool(seen)):
            if isinstance(message, Message):
                seen.append(message.record.issued_ms)
    assert seen == [7]


def test_no_broker_and_no_topic_are_clear_messages(bus):
    with pytest.raises(UserError, match="no broker answers"):
        list(read_all("127.0.0.1:1", IN, timeout_s=1))
    from dataclasses import replace

    with pytest.raises(UserError, match=r"there is no topic nothing\.v1"):
        list(read_all(bus.bootstrap, replace(IN, name="nothing.v1"), timeout_s=5))
