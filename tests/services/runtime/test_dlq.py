"""Protects dead letters: headers that say where a record came from, and a limit that stops a flood."""

from hypothesis import given
from hypothesis import strategies as st

from services.runtime.core import Position
from services.runtime.dlq import DeadLetterLimit, DeadLetterPolicy, headers

POSITION = Position("verification.verdict.v1", 3, 17)


def letter(original):
    return headers(original, POSITION, 1234, reason="undecodable", error="x" * 5000, service="closure")


def test_original_headers_stay_in_order_and_ours_say_the_source():
    original = [("b", b"\xff\x00"), ("a", b"1"), ("b", b"2")]
    out = letter(original)
    assert out[:3] == original
    assert original == [("b", b"\xff\x00"), ("a", b"1"), ("b", b"2")], "the record's own list is not touched"
    ours = dict(out[3:])
    assert ours["dlq.source.topic"] == b"verification.verdict.v1"
    assert (ours["dlq.source.partition"], ours["dlq.source.offset"]) == (b"3", b"17")
    assert ours["dlq.source.timestamp"] == b"1234"
    assert ours["dlq.reason"] == b"undecodable"
    assert ours["dlq.service"] == b"closure"
    assert len(ours["dlq.error"]) == 1000


def test_a_second_dead_lettering_counts_attempts_and_keeps_one_set():
    """A re-driven record that fails again must not pile up sets of headers."""
    again = letter(letter([("a", b"1")]))
    assert [name for name, _ in again].count("dlq.source.topic") == 1
    assert dict(again)["dlq.attempts"] == b"2"


def test_consecutive_limit():
    limit = DeadLetterLimit(DeadLetterPolicy(max_consecutive=3))
    assert [limit.bad() for _ in range(3)] == [None] * 3
    limit.good()
    assert [limit.bad() for _ in range(3)] == [None] * 3
    assert "in a row" in limit.bad()


def test_ratio_limit_needs_a_few_records_first():
    limit = DeadLetterLimit(DeadLetterPolicy(max_consecutive=5, max_ratio=0.1, min_records=100))
    for _ in range(45):
        limit.good()
        assert limit.bad() is None, "fewer than min_records: no ratio yet"
    for _ in range(9):
        limit.good()
    assert "%" in limit.bad()


@given(st.integers(1_000, 100_000))
def test_a_long_good_past_does_not_buy_a_flood(past):
    """After any number of good records, at most about a window of scattered bad ones passes."""
    limit = DeadLetterLimit(DeadLetterPolicy(max_consecutive=10**9, max_ratio=0.1))
    for _ in range(min(past, 5_000)):
        limit.good()
    assert any(limit.bad() for _ in range(150))
