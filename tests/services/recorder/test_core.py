"""Two recorders over one log, with partitions that wander, uploads that end late and crashes: every record is kept.

The broker's part is played by the loop's own watermarks: a record counts as read only below what was committed.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.recorder.core import Limits, RecorderCore
from services.recorder.names import Place, Segment, segment_of
from services.recorder.reading import Recorded, merge
from services.runtime.core import Position, RawMessage
from services.runtime.segments import Raw, pack, unpack
from services.runtime.watermark import Watermarks

PLACES = [Place("sandbox.command.v1", 0), Place("sandbox.command.v1", 1), Place("policy.published.v1", 0)]
LIMITS = Limits(segment_bytes=600, segment_ms=1000, open_bytes=6000, segment_records=6)


def logs(lengths):
    """The records of each place; those of the compacted topic have holes."""
    out = {}
    for place, length in zip(PLACES, lengths, strict=True):
        step = 3 if place.topic.startswith("policy") else 1
        out[place] = [
            Raw(n * step, 5, b"k", b"%d" % n * (n % 40), (("h", b"x" * (n % 7)), ("none", None))) for n in range(length)
        ]
    return out


class Instance:
    """A core with its windows, and the jobs that its workers have taken but not ended."""

    def __init__(self, world):
        self.world = world
        self.windows = Watermarks()
        self.at = {}
        self.jobs = []
        self.core = RecorderCore(LIMITS, world.store, world.lost.append, lambda topic: topic.startswith("policy"))

    def take(self, place):
        self.windows.open([place])
        self.at[place] = self.world.committed[place]
        self.core.assigned(frozenset({place.partition}))

    def release(self, place, commit):
        if commit:
            self.commit()
        self.windows.drop([place])
        del self.at[place]
        if not any(other.partition == place.partition for other in self.at):
            self.core.revoked(frozenset({place.partition}))

    def read(self, place, count, now):
        todo = [raw for raw in self.world.logs[place] if raw.offset >= self.at[place]][:count]
        for raw in todo:
            position = Position(*place, raw.offset)
            assert self.windows.deliver(position)
            self.at[place] = raw.offset + 1
            self.apply(self.core.handle_raw(RawMessage(position, raw, self.windows.begins_at(position)), now))

    def apply(self, effects):
        self.windows.finish_now(effects.done)
        self.jobs += effects.jobs

    def end(self, which):
        """A worker stores one segment, now or long after its partition was lost."""
        if self.jobs:
            job = self.jobs.pop(which % len(self.jobs))
            self.apply(job.then(job.run()))

    def commit(self):
        offsets = self.windows.committable()
        self.windows.committed(offsets)
        for place, offset in offsets.items():
            self.world.committed[Place(*place)] = max(offset, self.world.committed[Place(*place)])


class World:
    def __init__(self, lengths):
        self.logs = logs(lengths)
        self.committed = dict.fromkeys(PLACES, 0)
        self.objects = {}
        self.lost = []
        self.instances = [Instance(self), Instance(self)]
        self.owner = dict.fromkeys(PLACES)

    def store(self, place, records):
        data = pack(records)
        found = segment_of(place, records[0].offset, records[-1].offset, len(records), data)
        self.objects[found] = data
        return found.size

    def recorded(self, place):
        mine = tuple(sorted(segment for segment in self.objects if segment.place == place))
        return Recorded(place, mine, (), place.topic.startswith("policy"))

    def merged(self, place):
        return list(merge(place, self.recorded(place).segments, self.load))

    def load(self, segment: Segment):
        return unpack(self.objects[segment])

    def give(self, place, number, commit=True):
        if (old := self.owner[place]) is not None:
            self.instances[old].release(place, commit)
        self.owner[place] = number
        self.instances[number].take(place)

    def crash(self, number):
        """kill -9: open segments and unfinished uploads are gone; its partitions come back to a fresh process."""
        self.instances[number] = Instance(self)
        for place, owner in self.owner.items():
            if owner == number:
                self.instances[number].take(place)


STEPS = st.one_of(
    st.tuples(st.just("read"), st.sampled_from(PLACES), st.integers(1, 9)),
    st.tuples(st.just("give"), st.sampled_from(PLACES), st.integers(0, 1)),
    st.tuples(st.just("cut off"), st.sampled_from(PLACES), st.integers(0, 1)),
    st.tuples(st.just("end"), st.integers(0, 1), st.integers(0, 5)),
    st.tuples(st.just("commit"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("tick"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("crash"), st.integers(0, 1), st.just(0)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=3, max_size=3), st.lists(STEPS, max_size=60))
def test_whatever_happens_every_committed_record_is_kept_and_in_the_end_all(lengths, steps):
    world = World(lengths)
    for place in PLACES:
        world.give(place, 0)
    now = 0
    for what, a, b in steps:
        now += 300
        if what == "read":
            world.instances[world.owner[a]].read(a, b, now)
        elif what in ("give", "cut off"):
            world.give(a, b, commit=what == "give")
        elif what == "crash":
            world.crash(a)
        elif what == "end":
            world.instances[a].end(b)
        elif what == "commit":
            world.instances[a].commit()
        else:
            world.instances[a].apply(world.instances[a].core.tick(now))
        for place in PLACES if what in ("commit", "give", "crash") else ():
            kept = {raw.offset for raw in world.merged(place)}
            below = {raw.offset for raw in world.logs[place] if raw.offset < world.committed[place]}
            assert below <= kept, "committed, but not there"
    for instance in world.instances:
        for place in list(instance.at):
            instance.read(place, 1000, now)
        instance.apply(instance.core.drain(now))
        while instance.jobs:
            instance.end(0)
        instance.commit()
        assert instance.core.open_bytes == 0
    for place in PLACES:
        assert world.merged(place) == world.logs[place]
        assert world.recorded(place).gaps() == []
        assert world.committed[place] == (world.logs[place][-1].offset + 1 if world.logs[place] else 0)
    assert not world.lost, "nothing was reported lost that was not"


def feed(core, place, offsets, now=0, value=b"v"):
    out = []
    for n, offset in enumerate(offsets):
        message = RawMessage(Position(*place, offset), Raw(offset, 0, b"k", value, ()), n == 0)
        out += core.handle_raw(message, now).jobs
    return out


def test_segments_are_closed_by_size_by_age_and_when_all_together_are_too_large():
    stored = []

    def store(place, records):
        stored.append((place, [raw.offset for raw in records]))
        return 1

    core = RecorderCore(Limits(1000, 1000, 5000, 100), store, stored.append, lambda topic: False)
    first, second = PLACES[0], PLACES[1]
    (job,) = feed(core, first, range(3), value=b"x" * 300)
    job.then(job.run())
    assert stored.pop() == (first, [0, 1, 2])
    assert feed(core, first, [3], now=100) == []
    assert core.tick(1000).jobs == []
    (job,) = core.tick(1100).jobs
    assert job.then(job.run()).done == [Position(*first, 3)]
    core = RecorderCore(Limits(10_000, 1000, 5000, 100), store, stored.append, lambda topic: False)
    assert feed(core, first, range(7)) == []
    (job,) = feed(core, second, range(6))
    job.run()
    assert stored[-1] == (first, list(range(7))), "the largest goes first"
    assert core.open_bytes < 5000


def test_a_loss_is_named_before_anything_after_it_is_committed():
    did = []
    core = RecorderCore(
        LIMITS, lambda place, records: did.append("segment") or 1, did.append, lambda topic: topic.startswith("policy")
    )
    place = PLACES[2]
    feed(core, place, [0, 4])
    closed, named = core.lost(*place, 5, 40).jobs
    closed.run()
    feed(core, place, [40])
    (after,) = core.drain(0).jobs
    after.run()
    assert [str(each) for each in did] == ["segment", str(did[1]), "segment"]
    assert (did[1].first, did[1].last) == (5, 39)
    named.then(named.run())
    feed(core, place, [60])
    (later,) = core.drain(0).jobs
    later.run()
    assert did[4:] == ["segment"], "named once is enough"


def test_a_hole_in_a_topic_that_keeps_everything_is_a_loss():
    lost = []
    core = RecorderCore(LIMITS, lambda place, records: 1, lambda gone: None, lambda topic: False, lost.append)
    closed, _ = feed(core, PLACES[0], [0, 1, 5])
    assert [(gone.first, gone.last) for gone in lost] == [(2, 4)]
    assert [p.offset for p in closed.then(1).done] == [0, 1]
