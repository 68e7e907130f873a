"""The topics of the run in the cluster, looked at from outside its pods by a process inside the cluster's network.

python -m tests.k8s.outside watch BOOTSTRAP RUN_ID     a JSON line a second: lag by service, records by topic
python -m tests.k8s.outside reckon BOOTSTRAP SECONDS   the audit and everything else that must hold, as one JSON object
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.k8s.cluster import end, spawn

EVERY_S = 0.7


@dataclass(frozen=True)
class Sample:
    """At a moment (`time.monotonic`): records that each group has not finished, and records on each topic so far."""

    at: float
    lag: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)


class Outside:
    """The samples of a `watch` process, which lives until `close`; `command` puts a command into the cluster."""

    def __init__(self, command: list[str]) -> None:
        self.samples: list[Sample] = []
        self._errors = ""
        self._process = spawn(command)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._hear)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError, TypeError):
                self.samples.append(Sample(**json.loads(line)))

    def _hear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = (self._errors + line)[-2000:]

    @property
    def latest(self) -> Sample:
        """The newest sample. Raises AssertionError when the process has ended, or was silent for half a minute."""
        newest = self.samples[-1] if self.samples else Sample(0.0)
        if self._process.poll() is not None or (self.samples and time.monotonic() - newest.at > 30):
            raise AssertionError(f"nothing more is heard of the topics: {self._errors[-1500:]}")
        return newest

    def count(self, topic: str) -> int:
        """Records on a topic so far."""
        return self.latest.ends.get(topic, 0)

    def close(self) -> None:
        end(self._process)
        for thread in self._threads:
            thread.join(5)


@dataclass(frozen=True)
class Recovery:
    """Lag around a disturbance: usual before it, the most after it, and when it was usual again (None: never)."""

    before: int
    peak: int
    after_s: float | None


def recovery(samples: list[Sample], service: str, began: float, calm_s: float = 8.0) -> Recovery:
    """How the lag of `service` went from `began` on.

    Usual is the most that it was in `calm_s` seconds before and a quarter more: it goes up and down with the work that
    is under way, none of which is committed before it is done.
    """
    lag = [(s.at, s.lag.get(service, 0)) for s in samples]
    before = max((n for at, n in lag if began - calm_s <= at < began), default=0)
    usual = before + before // 4 + 5
    later = [(at, n) for at, n in lag if at >= began]
    if not later:
        return Recovery(before, 0, None)
    peak_at, peak = max(later, key=lambda pair: pair[1])
    if peak <= usual:
        return Recovery(before, peak, 0.0)
    back = next((at - began for at, n in later if at >= peak_at and n <= usual), None)
    return Recovery(before, peak, back)


def look(bootstrap: str, run_id: str) -> Callable[[], Sample]:
    """A function that takes a sample; its connections stay open."""
    from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

    from schemas.access import group_of, principals
    from schemas.topics import ALL

    topics = {topic.name for topic in ALL}
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, allow_auto_create_topics=False)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def sample() -> Sample:
        partitions = [
            TopicPartition(name, number)
            for name in sorted(topics & set(consumer.topics()))
            for number in sorted(consumer.partitions_for_topic(name) or ())
        ]
        lag: dict[str, int] = {}
        groups = {group_of(run_id, service): service for service in principals()}
        committed = admin.list_group_offsets(dict.fromkeys(groups))
        # Ends are asked for last: a lag is never read as less than it is.
        ends = consumer.end_offsets(partitions) if partitions else {}
        for group, offsets in committed.items():
            behind = [ends.get(tp, at.offset) - at.offset for tp, at in offsets.items() if at.offset >= 0]
            if behind:
                lag[groups[group]] = sum(max(0, records) for records in behind)
        counts: dict[str, int] = {}
        for tp, records in ends.items():
            counts[tp.topic] = counts.get(tp.topic, 0) + records
        return Sample(time.monotonic(), lag, counts)

    return sample


def watch(bootstrap: str, run_id: str) -> None:
    """Print samples until the reader is gone; a cluster that does not answer is asked again."""
    from kafka.errors import KafkaError

    sample: Callable[[], Sample] | None = None
    while True:
        try:
            sample = sample or look(bootstrap, run_id)
            print(json.dumps(dataclasses.asdict(sample())), flush=True)
        except (KafkaError, OSError) as error:
            print(repr(error), file=sys.stderr, flush=True)
            sample = None
        time.sleep(EVERY_S)


def reckon(bootstrap: str, deadline_s: float) -> None:
    """Print what the topics say about the run."""
    from tests.chaos.reckoning import reckon as judge

    print(json.dumps(dataclasses.asdict(judge(bootstrap, deadline_s=deadline_s))))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        if sys.argv[1] == "watch":
            watch(sys.argv[2], sys.argv[3])
        else:
            reckon(sys.argv[2], float(sys.argv[3]))
