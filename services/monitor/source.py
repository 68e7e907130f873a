"""Messages of any topics, merged by time, each decoded or with its fault: the monitor speaks Kafka only here."""

from __future__ import annotations

import contextlib
import difflib
import heapq
import logging
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from services.monitor.start import Start
from services.runtime.address import host_and_port
from services.runtime.cluster import Cluster, addresses, check_trust, connection, said
from services.runtime.errors import UserError

if TYPE_CHECKING:
    from schemas.record import Record

CONNECT_S = 3.0
"""Seconds that one broker address has to accept a connection."""
BOOTSTRAP_MS = 5_000
"""Milliseconds that a reachable address has to answer in the Kafka protocol."""
SILENT_S = 10.0
"""Seconds without a record after which a reader makes sure that the broker is still there."""
STALLED_S = 30.0
"""Seconds for which a broker may withhold records that it said it holds."""
_BUFFERED = 2_000
"""Messages held per partition while history is merged by time; a partition above it is paused."""


@dataclass(frozen=True)
class Seen:
    """One message as it stands on its topic: `record` when it is legal, else `problem` says why it is not.

    `timestamp_ms` is the producer's (Unix milliseconds), `size` the bytes of the value.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str
    headers: Mapping[str, bytes]
    size: int
    record: Record | None
    problem: str | None


class Ended(Protocol):
    """What ends a reading: a threading.Event, or something that asks."""

    def is_set(self) -> bool: ...


def stack_hint() -> str:
    """What a person does about a broker that cannot be reached."""
    return "start the stack (`rollstream run` or `rollstream up`), or give the address of a running one"


def require_reachable(cluster: Cluster) -> None:
    """Return when one address of the cluster (`host:port,…`) accepts a connection; else UserError naming each."""
    failures = []
    for address in addresses(cluster):
        host, port = host_and_port(address, "bootstrap")
        try:
            with socket.create_connection((host, port), timeout=CONNECT_S):
                return
        except OSError as e:
            failures.append(f"{address}: {e.strerror or e or type(e).__name__}")
    if not failures:
        raise UserError("no broker address is given", "bootstrap", stack_hint())
    raise UserError("no broker can be reached", "; ".join(failures), stack_hint())


def open_consumer(cluster: Cluster) -> Any:
    """A consumer without a group: it reads everything, commits nothing and disturbs nobody. Close it after use."""
    require_reachable(cluster)
    check_trust(cluster)
    logging.getLogger("kafka").addHandler(logging.NullHandler())  # its warnings would stand between the records
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    try:
        return KafkaConsumer(
            **connection(cluster),
            client_id="rollstream-monitor",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            bootstrap_timeout_ms=BOOTSTRAP_MS,
            request_timeout_ms=BOOTSTRAP_MS * 2,
            max_partition_fetch_bytes=8 * 1024 * 1024,
            fetch_max_wait_ms=200,
            metrics_enabled=False,
        )
    except (KafkaError, OSError, ValueError) as e:
        raise UserError(f"what listens there does not answer as Kafka: {e}", said(cluster), stack_hint()) from e


def choose_topics(wanted: Sequence[str], present: set[str]) -> list[str]:
    """Full names of the wanted topics; a name may leave out its `.vN`. `all` is every declared topic and dead letter.

    Raises UserError for a name that is not on the broker, naming the near ones.
    """
    from schemas import topics

    declared = list(topics.BY_NAME) + [d for t in topics.ALL if (d := topics.dead_letter(t))]
    chosen: list[str] = []
    for name in wanted:
        if name == "all":
            chosen += [topic for topic in declared if topic in present]
            continue
        full = name if name in present else _versioned(name, present)
        if full is None:
            raise _unknown(name, declared, present)
        chosen.append(full)
    if not chosen:
        raise UserError("the broker holds none of the declared topics", "all", stack_hint())
    return list(dict.fromkeys(chosen))


def _versioned(name: str, present: set[str]) -> str | None:
    """The newest major version of a topic named without one; `x.dlq` names the dead letters of `x`."""
    stem, dlq = (name[:-4], r"\.dlq") if name.endswith(".dlq") else (name, "")
    form = re.compile(rf"{re.escape(stem)}\.v(\d+){dlq}")
    found = {topic: int(match[1]) for topic in present if (match := form.fullmatch(topic))}
    return max(found, key=lambda topic: found[topic], default=None)


def _unknown(name: str, declared: Sequence[str], present: set[str]) -> UserError:
    if name in declared or any(topic.startswith(f"{name}.v") for topic in declared):
        return UserError(f"the topic {name} is declared but not on this broker yet", None, stack_hint())
    near = difflib.get_close_matches(name, sorted(present | set(declared)), n=4, cutoff=0.5)
    near += [t for t in declared if name in t and t not in near]
    where = f"near names: {', '.join(near[:6])}" if near else f"the topics are: {', '.join(declared)}"
    return UserError(f"there is no topic {name!r}", where, "use one of these names, or `all`")


def decode_seen(topic: str, raw: Any) -> Seen:
    """A consumer's message as `Seen`; never raises for bad bytes. A dead letter is decoded where its bytes allow it."""
    from schemas import codec, topics

    headers = dict(raw.headers or ())
    source = topic.removesuffix(topics.DLQ_SUFFIX)
    declared = topics.BY_NAME.get(source)
    record, problem = None, None
    if declared is None:
        problem = "no record is declared for this topic"
    else:
        try:
            record = codec.decode(declared.record, raw.value, raw.headers)
        except codec.ContractViolation as e:
            problem = str(e)
    key = raw.key.decode(errors="replace") if raw.key else ""
    size = len(raw.value or b"")
    return Seen(topic, raw.partition, raw.offset, raw.timestamp, key, headers, size, record, problem)


class _Merge:
    """Messages of several partitions in the order of their timestamps, as far as what has arrived allows it.

    Within a partition the order is the log's. `_heads` holds the first message of every partition that has one.
    """

    def __init__(self, consumer: Any, ends: Mapping[Any, int], keep: Callable[[Any], bool] | None) -> None:
        self._consumer = consumer
        self._keep = keep
        self._ends = dict(ends)
        self._held: dict[Any, deque[Any]] = {p: deque() for p in ends}
        self._heads: list[tuple[int, str, int, int, Any]] = []
        self._waiting = {p for p, end in ends.items() if consumer.position(p) < end}

    @property
    def behind(self) -> bool:
        """Whether a partition still owes a message that stood in it at the start, so that the oldest is not known."""
        return bool(self._waiting)

    def add(self, batches: Mapping[Any, Sequence[Any]]) -> None:
        for partition, records in batches.items():
            held = self._held[partition]
            empty = not held
            held.extend(records if self._keep is None else filter(self._keep, records))
            if empty and held:
                self._push(partition)
        self._waiting = {p for p in self._waiting if self._owes(p)}
        over = [p for p, held in self._held.items() if len(held) >= _BUFFERED]
        paused = self._consumer.paused()
        self._consumer.pause(*[p for p in over if p not in paused])
        self._consumer.resume(*[p for p in paused if p not in over])

    def _owes(self, partition: Any) -> bool:
        return not self._held[partition] and bool(self._consumer.position(partition) < self._ends[partition])

    def _push(self, partition: Any) -> None:
        head = self._held[partition][0]
        heapq.heappush(self._heads, (head.timestamp, head.topic, head.partition, head.offset, partition))

    def ready(self) -> Iterator[tuple[Any, bool]]:
        """Messages whose turn has come, oldest first, each with whether it stood there at the start."""
        while self._heads and not self._waiting:
            partition = heapq.heappop(self._heads)[4]
            raw = self._held[partition].popleft()
            if self._held[partition]:
                self._push(partition)
            elif self._owes(partition):
                self._waiting.add(partition)
            yield raw, raw.offset < self._ends[partition]


def read(
    cluster: Cluster,
    topics: Sequence[str],
    start: Start,
    follow: bool = False,
    stop: Ended | None = None,
    keep: Callable[[Any], bool] | None = None,
    check: Callable[[Sequence[str]], None] | None = None,
    key: bytes | None = None,
) -> Iterator[Seen]:
    """Messages of `topics` from `start`, oldest first; ends at what stood there at the call unless `follow`.

    `keep` sees the undecoded message (key, headers) and may skip it cheaply; `check` sees the full topic names before
    anything is read, and may raise. `key` narrows topics keyed by group to the partition in which Kafka's default
    partitioner puts that key. `stop` ends a following read within 0.2 s.
    Raises UserError for an unreachable broker and an unknown topic.
    """
    stop = stop or threading.Event()
    consumer = open_consumer(cluster)
    from kafka.errors import KafkaError

    try:
        names = choose_topics(topics, set(consumer.topics()))
        if check is not None:
            check(names)
        partitions = _assign(consumer, names, key)
        ends: dict[Any, int] = consumer.end_offsets(partitions)
        _seek(consumer, partitions, ends, start)
        for raw in _messages(consumer, _Merge(consumer, ends, keep), cluster, follow, stop):
            yield decode_seen(raw.topic, raw)
    except KafkaError as e:
        raise UserError(f"the broker does not answer: {e}", said(cluster), "see the broker's log") from e
    finally:
        with contextlib.suppress(Exception):  # a reader that is done has nothing to lose when the broker is gone
            consumer.close(timeout_ms=500)


def _messages(consumer: Any, merge: _Merge, cluster: Cluster, follow: bool, stop: Ended) -> Iterator[Any]:
    """Undecoded messages in turn. Every wait has an end: a broker that is gone or mute becomes a UserError."""
    heard = time.monotonic()
    while not stop.is_set():
        batches = consumer.poll(timeout_ms=200)
        silence = time.monotonic() - heard
        merge.add(batches)
        for raw, stood in merge.ready():
            if stood or follow:
                yield raw
        if not follow and not merge.behind:
            return
        if batches:
            heard = time.monotonic()
        elif merge.behind and silence > STALLED_S:
            raise UserError(
                f"records are owed, but none came for {STALLED_S:g} s", said(cluster), "see the broker's log"
            )
        elif silence > SILENT_S:
            require_reachable(cluster)
            heard = heard if merge.behind else time.monotonic()


def _assign(consumer: Any, names: Sequence[str], key: bytes | None) -> list[Any]:
    from kafka import TopicPartition
    from kafka.partitioner import murmur2

    from schemas.topics import BY_NAME

    chosen = []
    for name in names:
        numbers = sorted(consumer.partitions_for_topic(name) or ())
        if key is not None and numbers and name in BY_NAME and BY_NAME[name].key == "group_id":
            numbers = [numbers[(murmur2(key) & 0x7FFFFFFF) % len(numbers)]]  # as kafka-python and Java choose it
        chosen += [TopicPartition(name, number) for number in numbers]
    consumer.assign(chosen)
    return chosen


def _seek(consumer: Any, partitions: Sequence[Any], ends: Mapping[Any, int], start: Start) -> None:
    begins: dict[Any, int] = consumer.beginning_offsets(partitions)
    times: dict[Any, Any] = {}
    if start.kind == "time":
        times = consumer.offsets_for_times(dict.fromkeys(partitions, start.value))
    for p in partitions:
        found = times.get(p)
        target = {
            "earliest": begins[p],
            "latest": ends[p],
            "offset": start.value,
            "last": ends[p] - start.value,
            "time": found.offset if found is not None else ends[p],
        }[start.kind]
        consumer.seek(p, min(max(target, begins[p]), ends[p]))
