"""What the recorder kept of a storm: every record of every topic, each once, in the object store."""

from __future__ import annotations

from kafka import KafkaConsumer, TopicPartition

from services.recorder.main import every_topic, keyed
from services.recorder.names import Place
from services.recorder.reading import Contradiction, look, records
from services.runtime.cluster import Cluster, connection
from services.runtime.settings import RunSettings
from services.runtime.store import CorruptObject, MissingObject, open_store


def ends_of(cluster: Cluster) -> dict[Place, int]:
    """End offset of every partition that holds anything."""
    consumer = KafkaConsumer(
        **connection(cluster), group_id=None, enable_auto_commit=False, allow_auto_create_topics=False,
        metrics_enabled=False,
    )  # fmt: skip
    try:
        parts = [
            TopicPartition(topic.name, n)
            for topic in every_topic()
            for n in consumer.partitions_for_topic(topic.name) or ()
        ]
        ends = consumer.end_offsets(parts, timeout_ms=30_000)
        return {Place(tp.topic, tp.partition): end for tp, end in ends.items() if end}
    finally:
        consumer.close(timeout_ms=1000)


def missing(cluster: Cluster, settings: RunSettings) -> list[str]:
    """What is not in the store, or not as it should be. Call it when the recorder has ended."""
    store = open_store(settings.store)
    found = look(store, settings.run_id, keyed)
    problems = []
    for place, end in ends_of(cluster).items():
        kept = found.get(place)
        if kept is None:
            problems.append(f"{place}: nothing of {end} records was recorded")
            continue
        problems += [f"{place}: not recorded: {gap}" for gap in kept.gaps()]
        if kept.last != end - 1:
            problems.append(f"{place}: recorded up to {kept.last}, the log ends at {end}")
        try:
            count = sum(1 for _ in records(store, settings.run_id, kept))
        except (Contradiction, CorruptObject, MissingObject) as e:
            problems.append(f"{place}: {e}")
            continue
        if not kept.keyed and count != end:
            problems.append(f"{place}: {count} records were recorded of {end}")
    return problems
