"""What must be there before the first record: a broker that answers, and every topic that is read or written."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from schemas.topics import ALL, GROUPED, dead_letter
from services.runtime.cluster import check_trust, login_doubt
from services.runtime.consumer import make_consumer
from services.runtime.context import ServiceSpec
from services.runtime.errors import UserError
from services.runtime.lifecycle import reachable
from services.runtime.process import SAY_EVERY_S, ServiceProcess
from services.runtime.producer import make_producer

FIRST_ANSWER_MS = 10_000
"""How long a broker that accepts a connection is given to answer, before that is said and it is tried again."""
_LONGEST_S = 2.0
"""Between two tries to reach a broker; the first come sooner."""


class Startup:
    """Waits, and says what for; every wait takes the process's turns, and so ends when that is asked to end."""

    def __init__(self, spec: ServiceSpec, process: ServiceProcess) -> None:
        self._spec = spec
        self._settings = process.settings
        self._clock = process.clock
        self._log = process.log
        self._process = process

    def connect(self) -> KafkaProducer:
        """Wait for a broker: one that is down is no reason to exit.

        Raises UserError when none is configured, or broker and service do not trust each other.
        """
        kafka, name = self._settings.kafka, self._spec.name
        bootstrap = kafka.bootstrap
        if not bootstrap:
            raise UserError("no broker is configured", "kafka.bootstrap", "set it to HOST:PORT of the broker")
        said = float("-inf")
        wait_s = 0.2
        while True:
            self._process.turn()
            if reachable(bootstrap):
                check_trust(kafka, name)
                try:
                    return make_producer(self._settings, name, FIRST_ANSWER_MS, idempotent=not self._spec.raw)
                except KafkaError as e:
                    what = "the broker accepts connections but does not answer yet"
                    self._log.warning(what + login_doubt(kafka, name), error=repr(e))
            if self._clock.monotonic() - said > SAY_EVERY_S:
                said = self._clock.monotonic()
                self._log.warning("waiting for the broker", bootstrap=bootstrap)
            self._process.stop.wait(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_S)

    def consumer(self, group: str | None, **options: Any) -> KafkaConsumer:
        """A consumer of this service (see `make_consumer`), as soon as the broker answers it."""
        while True:
            self._process.turn()
            try:
                return make_consumer(self._settings, self._spec.name, group, **options)
            except KafkaError as e:
                if not e.retriable:
                    raise
                self._log.warning("waiting for the broker", error=repr(e))

    def topics(self, producer: KafkaProducer) -> dict[str, int]:
        """Partition count of every topic read or written; the producer knows them all before the first record.

        Raises UserError when topics keyed by group differ in partition count.
        """
        spec = self._spec
        outputs = [topic for topic in ALL if spec.name in topic.producers]
        reads = [*spec.inputs, *spec.broadcast]
        letters = [] if spec.raw else [name for topic in spec.inputs if (name := dead_letter(topic))]
        counts: dict[str, int] = {}
        for name in dict.fromkeys([t.name for t in (*reads, *outputs)] + letters):
            while name not in counts:
                self._process.turn()
                try:
                    counts[name] = len(producer.partitions_for(name))
                except KafkaTimeoutError:
                    self._log.warning("waiting for a topic that does not exist", topic=name)
        grouped = {t.name: counts[t.name] for t in reads if t.partition_class == GROUPED}
        if len(set(grouped.values())) > 1:
            raise UserError(
                f"topics keyed by group have different partition counts: {grouped}",
                self._settings.kafka.bootstrap,
                "counts never change in place: use a fresh broker folder or new topic names",
            )
        return counts
