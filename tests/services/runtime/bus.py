"""A small bus for tests: a broker with all topics, records to send, services in threads, waits with deadlines."""

import contextlib
import io
import json
import os
import threading
import time

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from schemas import codec, topics
from services.runtime.context import ServiceSpec
from services.runtime.core import BaseCore, Effects, Output, finished
from services.runtime.logs import Log
from services.runtime.loop import Service
from services.runtime.process import ServiceProcess
from services.runtime.producer import make_producer
from services.runtime.settings import load
from services.runtime.topics_admin import ensure_topics
from tests.bench import loop_bench

IN, OUT = topics.SANDBOX_COMMAND, topics.SANDBOX_RESULT
RUN = loop_bench.RUN
# Apache Kafka allows no session under six seconds.
SHORT_SESSION_MS = 6000 if os.environ.get("KAFKA_BOOTSTRAP") else 2000


def wait_for(condition, seconds=60.0, what=""):
    """Poll a condition to a deadline; the last value goes into the failure."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {seconds} s: {what or condition} is {value!r}"
        time.sleep(0.02)
    return value


def command(number):
    return loop_bench.command(number, number)


class EchoCore(BaseCore):
    """Answers each command at once and keeps a diary of everything the loop called."""

    def __init__(self, context=None):
        self.context = context
        self.diary = []
        self.numbers = []

    def assigned(self, partitions):
        self.diary.append(("assigned", set(partitions)))

    def revoked(self, partitions):
        self.diary.append(("revoked", set(partitions)))

    def caught_up(self, now_ms):
        self.diary.append(("caught_up",))
        return Effects()

    def tick(self, now_ms):
        return Effects()

    def handle(self, message, now_ms):
        self.diary.append(("handle", message.position.topic))
        if message.position.topic != IN.name:
            return finished(message)
        self.numbers.append(message.record.issued_ms)
        return finished(message, [Output(OUT, loop_bench.result(message.record))])

    def events(self, *names):
        return [entry for entry in list(self.diary) if entry[0] in names]


class Bus:
    def __init__(self, bootstrap, **settings):
        kafka = {"bootstrap": bootstrap, **settings.pop("kafka", {})}
        runtime = {"tick_s": 0.05, "commit_s": 0.1, **settings.pop("runtime", {})}  # turns fast, so that it stops fast
        self.settings = load(run_id=RUN, kafka=kafka, runtime=runtime, **settings)
        ensure_topics(self.settings)
        self.bootstrap = bootstrap
        self._producer = make_producer(self.settings, "test")
        self._stack = contextlib.ExitStack()
        self._stack.callback(self._producer.close, 5)

    def send(self, numbers):
        """Commands with these numbers, acknowledged when this returns."""
        for number in numbers:
            record = command(number)
            self._producer.send(
                IN.name, key=record.group_id.encode(), value=codec.encode(record), headers=codec.headers(record)
            )
        self._producer.flush(30)

    def send_raw(self, topic, value, key=b"bench/00000000", headers=None, partition=0):
        return self._producer.send(topic, key=key, value=value, headers=headers or [], partition=partition).get(10)

    def raw(self, topic, seconds=10):
        """Every record of a topic as it lies there."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None, auto_offset_reset="earliest")
        try:
            tps = [TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic)]
            consumer.assign(tps)
            ends = consumer.end_offsets(tps, timeout_ms=5000)
            out, deadline = [], time.monotonic() + seconds
            while any(consumer.position(tp, timeout_ms=5000) < end for tp, end in ends.items()):
                assert time.monotonic() < deadline
                for records in consumer.poll(timeout_ms=200).values():
                    out += records
            return out
        finally:
            consumer.close(timeout_ms=1000)

    def answered(self):
        """Numbers of the operations that were answered, duplicates included, sorted."""
        out = []
        for record in self.raw(OUT.name):
            result = codec.decode(OUT.record, record.value, record.headers)
            out.append(int(result.operation_id.rpartition(".")[2]))
        return sorted(out)

    def committed(self, service="sandbox", topic=IN.name):
        """Sum of the committed offsets of a service over the partitions of a topic."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            group = f"{RUN}.{service}"
            offsets = admin.list_group_offsets({group: None})[group]
            return sum(o.offset for tp, o in offsets.items() if tp.topic == topic and o.offset >= 0)
        finally:
            admin.close()

    def start(self, make_core=EchoCore, **spec):
        """A service in a thread; stopped at the end of the test if it still runs."""
        running = Running(self, make_core, spec)
        self._stack.callback(running.finish)
        return running

    def close(self):
        self._stack.close()


class Running:
    def __init__(self, bus, make_core, spec):
        ready_file = spec.pop("ready_file", None)
        settings = spec.pop("settings", bus.settings)
        stay = spec.pop("stay", False)
        self.out = io.StringIO()
        self.core = None

        def make(context):
            self.core = make_core(context)
            return self.core

        named = {"name": "sandbox", "inputs": (IN,), **spec}
        log = Log(named["name"], RUN, self.out)
        process = ServiceProcess(named["name"], settings, ready_file=ready_file, stay=stay, log=log)
        self.service = Service(ServiceSpec(**named), make, settings, process)
        self.code = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        self.code = self.service.run()

    def ready(self):
        wait_for(lambda: self.service.ready or not self.thread.is_alive(), what="ready")
        assert self.thread.is_alive(), self.out.getvalue()
        return self

    def finish(self, seconds=30):
        """Stop and return the exit code."""
        self.service.stop()
        return self.ended(seconds)

    def ended(self, seconds=30):
        self.thread.join(seconds)
        assert not self.thread.is_alive(), self.out.getvalue()
        return self.code

    def log(self):
        return [json.loads(line) for line in self.out.getvalue().splitlines()]

    def said(self, event):
        return [entry for entry in self.log() if event in entry["event"]]
