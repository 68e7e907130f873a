"""Protects the promise that a commit never passes an unfinished record, whatever the order in which records finish."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.runtime.core import Position
from services.runtime.watermark import Watermarks, Window

# Offsets as a log shows them: increasing, with gaps where compaction or markers left numbers out.
offsets = st.lists(st.integers(1, 5), min_size=1, max_size=60).map(
    lambda steps: [sum(steps[: i + 1]) for i in range(len(steps))]
)


@settings(max_examples=300, deadline=None)
@given(offsets, st.data())
def test_mark_is_the_lowest_unfinished_delivered_offset(log, data):
    """At every moment, against a plain model: the mark never passes unfinished work and never lags behind it."""
    window = Window()
    delivered, finished = [], set()
    pending = list(log)
    while pending or set(delivered) - finished:
        deliver = pending and (not set(delivered) - finished or data.draw(st.booleans()))
        if deliver:
            window.deliver(Position("t", 0, pending[0]))
            delivered.append(pending.pop(0))
        else:
            offset = data.draw(st.sampled_from(sorted(set(delivered) - finished)))
            window.finish(offset)
            finished.add(offset)
        unfinished = [o for o in delivered if o not in finished]
        expected = unfinished[0] if unfinished else delivered[-1] + 1
        assert window.watermark == expected
        assert window.unfinished == len(unfinished)
        assert window.width == (len([o for o in delivered if o >= unfinished[0]]) if unfinished else 0)
    assert window.watermark == log[-1] + 1, "everything finished: the mark stands at the end"


@settings(max_examples=100, deadline=None)
@given(offsets, st.randoms())
def test_committable_never_goes_back_and_never_repeats(log, random):
    """What is offered for commit rises strictly, so that a broker is not asked for the same thing twice."""
    marks = Watermarks()
    marks.open([("t", 0)])
    for offset in log:
        marks.deliver(Position("t", 0, offset))
    order = list(log)
    random.shuffle(order)
    last = log[0]
    for offset in order:
        marks.finish_now([Position("t", 0, offset)])
        offered = marks.committable()
        if offered:
            assert offered[("t", 0)] > last
            last = offered[("t", 0)]
            marks.committed(offered)
            assert not marks.committable()
    assert last == log[-1] + 1


def test_repeats_and_strangers_change_nothing():
    """A record seen twice is handed out once; partitions that are not owned neither deliver nor finish."""
    marks = Watermarks()
    marks.open([("t", 0)])
    assert marks.deliver(Position("t", 0, 5))
    assert not marks.deliver(Position("t", 0, 5))
    assert not marks.deliver(Position("t", 0, 3))
    assert not marks.deliver(Position("t", 1, 0))
    marks.finish_now([Position("t", 0, 99), Position("u", 0, 5)])
    assert marks.committable() == {}
    assert marks.unfinished() == 1


def test_results_of_an_earlier_ownership_do_not_finish_a_later_one():
    """A partition that went away and came back starts anew: late acknowledgements of the first time do not count."""
    marks = Watermarks()
    marks.open([("t", 0)])
    marks.deliver(Position("t", 0, 0))
    late = marks.resolve([Position("t", 0, 0)])
    marks.drop([("t", 0)])
    marks.open([("t", 0)])
    marks.deliver(Position("t", 0, 0))
    marks.finish(late)
    assert marks.committable() == {}
    marks.finish_now([Position("t", 0, 0)])
    assert marks.committable() == {("t", 0): 1}


def test_a_wide_window_is_reported_until_its_stuck_record_finishes():
    """One record that never finishes must not let the window, and with it the work after a crash, grow for ever."""
    marks = Watermarks()
    marks.open([("t", 0)])
    for offset in range(10):
        marks.deliver(Position("t", 0, offset))
    marks.finish_now([Position("t", 0, o) for o in range(1, 10)])
    assert marks.wide(10) == {("t", 0)}
    assert marks.wide(11) == set()
    marks.finish_now([Position("t", 0, 0)])
    assert marks.wide(10) == set()
