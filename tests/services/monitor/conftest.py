"""A broker for the monitor's tests (the embedded one, or KAFKA_BOOTSTRAP), and a run already written to it."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import codec
from schemas.record import Record
from schemas.topics import ALL, dead_letter
from tests.services.monitor.synthetic import Run, positions, time_of


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        yield given
        return
    from infra.broker.testing import running_broker

    with running_broker(Path(tmp_path_factory.mktemp("broker")) / "data") as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def run_records() -> list[Record]:
    # Its own time as well as its own id: on a broker that earlier tests wrote to, each partition stays in time order.
    return Run(run_id=f"demo{uuid.uuid4().hex[:8]}", updates=4, start_ms=int(time.time() * 1000) - 120_000).build()


def write(bootstrap: str, records: list[Record]) -> None:
    """Produce the records with their own times, keys and headers, as a service would."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, acks="all", allow_auto_create_topics=False, linger_ms=20
    )
    sent, now = [], int(time.time() * 1000)  # a broker takes no time of another century, whatever a record says
    for topic, record in positions(records):
        key = getattr(record, topic.key).encode()
        value, headers = codec.encode(record), codec.headers(record)
        sent.append(producer.send(topic.name, value, key, headers, timestamp_ms=min(max(0, time_of(record)), now)))
    for future in sent:
        future.get(timeout=30)
    producer.close(timeout=5)


@pytest.fixture(scope="session")
def stack(bootstrap: str, run_records: list[Record]) -> str:
    """A broker with every declared topic and one finished run in them."""
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    names = {t.name: t.partitions(2) for t in ALL} | {d: 1 for t in ALL if (d := dead_letter(t))}
    missing = set(names) - set(admin.list_topics())
    if missing:
        admin.create_topics([NewTopic(n, num_partitions=names[n], replication_factor=1) for n in sorted(missing)])
    admin.close()
    write(bootstrap, run_records)
    return bootstrap
