"""Measure the embedded broker as its clients see it: `python -m tests.bench.broker_bench`.

Rates at 500 bytes with librdkafka and kafka-python, latency from send to handled with kafka-python (linger 0), memory
and idle cpu of the broker's process. With KAFKA_BOOTSTRAP set the same load goes to that cluster and the ratios are
printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
import uuid
from pathlib import Path

import confluent_kafka
import psutil
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

from infra.broker.testing import running_broker

SIZE = 500
Figures = dict[str, float]


def _topic(bootstrap: str, partitions: int = 4) -> str:
    name = f"bench.{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name, partitions, 1)])
    admin.close()
    return name


def _payloads() -> list[bytes]:
    return [os.urandom(SIZE // 2) + bytes(SIZE - SIZE // 2) for _ in range(64)]


def librdkafka(bootstrap: str, count: int) -> Figures:
    """Records per second produced (acked) and consumed by confluent-kafka."""
    topic, payloads = _topic(bootstrap), _payloads()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "zstd",
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    begin = time.perf_counter()
    for number in range(count):
        producer.produce(topic, payloads[number & 63])
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("not everything was acknowledged")
    produced = count / (time.perf_counter() - begin)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    seen, begin, first = 0, time.perf_counter(), 0.0
    while seen < count:
        got = len(consumer.consume(10_000, 1.0))
        if got and not first:
            first = time.perf_counter()  # joining the group is not part of the rate
        seen += got
    consumed = count / (time.perf_counter() - first)
    consumer.close()
    return {"librdkafka produced /s": produced, "librdkafka consumed /s": consumed}


def kafka_python(bootstrap: str, count: int) -> Figures:
    """Records per second produced (acked) and consumed by kafka-python."""
    topic, payloads = _topic(bootstrap), _payloads()
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        acks="all",
        compression_type="zstd",
        linger_ms=5,
        batch_size=65536,
    )
    begin = time.perf_counter()
    for number in range(count):
        producer.send(topic, payloads[number & 63])
    producer.flush(60)
    produced = count / (time.perf_counter() - begin)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
    )
    seen, first = 0, 0.0
    while seen < count:
        got = sum(map(len, consumer.poll(1000, max_records=5000).values()))
        if got and not first:
            first = time.perf_counter()
        seen += got
    consumed = count / (time.perf_counter() - first)
    consumer.close()
    return {"kafka-python produced /s": produced, "kafka-python consumed /s": consumed}


def latency(bootstrap: str, count: int, gap_seconds: float = 0.005) -> Figures:
    """Milliseconds from send to handled, one record every 5 ms, linger 0, producer and consumer in this process."""
    topic = _topic(bootstrap, 1)
    delays: list[float] = []
    ready, done = threading.Event(), threading.Event()

    def consume() -> None:
        consumer = KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
        )
        deadline = time.perf_counter() + 60
        while len(delays) < count and time.perf_counter() < deadline:
            for records in consumer.poll(100).values():
                now = time.perf_counter()
                delays.extend((now - float(record.value)) * 1000 for record in records if record.value != b"warm")
            if consumer.assignment():
                ready.set()
        consumer.close()
        done.set()

    thread = threading.Thread(target=consume)
    thread.start()
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, acks="all", compression_type="zstd")
    ready.wait(30)
    producer.send(topic, b"warm").get(10)
    time.sleep(0.3)
    for _ in range(count):
        producer.send(topic, repr(time.perf_counter()).encode())
        time.sleep(gap_seconds)
    done.wait(60)
    thread.join()
    producer.close()
    cuts = statistics.quantiles(delays, n=100)
    return {"latency p50 ms": cuts[49], "latency p99 ms": cuts[98]}


def measure(bootstrap: str, quick: bool) -> Figures:
    """All figures against one cluster."""
    scale = 10 if quick else 1
    out = latency(bootstrap, 1000 // (2 if quick else 1))
    out |= librdkafka(bootstrap, 600_000 // scale)
    out |= kafka_python(bootstrap, 100_000 // scale)
    return out


def embedded(quick: bool, fsync: str) -> Figures:
    """All figures of the embedded broker, with the memory and idle cpu of its process."""
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "data", fsync=fsync) as broker:
        process = psutil.Process(broker.pid)
        started = process.memory_info().rss
        out = measure(broker.bootstrap, quick)
        used = process.cpu_times()
        time.sleep(3.0)
        idle = process.cpu_times()
        out["memory at start MiB"] = started / 2**20
        out["memory after MiB"] = process.memory_info().rss / 2**20
        out["idle cpu %"] = 100 * (idle.user + idle.system - used.user - used.system) / 3.0
    return out


def main() -> None:
    """Print a table; ratios beside another cluster when KAFKA_BOOTSTRAP names one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    parser.add_argument("--fsync", default="never")
    options = parser.parse_args()
    ours = embedded(options.quick, options.fsync)
    other_bootstrap = os.environ.get("KAFKA_BOOTSTRAP")
    other = measure(other_bootstrap, options.quick) if other_bootstrap else {}
    for name, value in ours.items():
        line = f"{name:28}{value:14,.1f}"
        if name in other:
            line += f"{other[name]:14,.1f}   ratio {value / other[name]:.2f}"
        print(line)


if __name__ == "__main__":
    main()
