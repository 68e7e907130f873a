"""Creates every declared topic and its dead-letter topic, the same way on every broker, as often as one likes."""

from __future__ import annotations

import contextlib
import re

from kafka import KafkaAdminClient
from kafka.errors import InvalidReplicationFactorError, KafkaError, TopicAlreadyExistsError

from schemas.access import OPERATOR
from schemas.topics import ALL, DAY_MS, Topic, dead_letter
from services.runtime.cluster import check_trust, connection, login_doubt
from services.runtime.errors import NotYet, UserError
from services.runtime.settings import RunSettings


def declared(settings: RunSettings) -> dict[str, tuple[int, dict[str, str]]]:
    """Name -> (partition count, configuration) of every topic, dead letters included."""
    out: dict[str, tuple[int, dict[str, str]]] = {}
    durable = {"min.insync.replicas": str(settings.kafka.in_sync)} if settings.kafka.replication > 1 else {}
    for topic in ALL:
        count = topic.partitions(settings.kafka.partitions)
        out[topic.name] = (count, topic.config() | durable)
        if letters := dead_letter(topic):
            out[letters] = (count, _dead_letter_config(topic) | durable)
    return out


def _dead_letter_config(topic: Topic) -> dict[str, str]:
    # Room for the `dlq.*` headers beside an original of the largest size.
    return {**topic.config(), "cleanup.policy": "delete", "retention.ms": str(30 * DAY_MS),
            "max.message.bytes": str(topic.max_bytes + 64 * 1024)}  # fmt: skip


def ensure_topics(settings: RunSettings) -> None:
    """Create what is missing. Raises UserError when an existing topic has another count, or no broker answers."""
    bootstrap = settings.kafka.bootstrap
    check_trust(settings.kafka, OPERATOR)
    try:
        admin = KafkaAdminClient(**connection(settings.kafka, OPERATOR), bootstrap_timeout_ms=15_000)
    except KafkaError as e:
        doubt = login_doubt(settings.kafka, OPERATOR)
        raise NotYet(f"no broker answers{doubt}: {e}", bootstrap, "start it, or correct [kafka]") from e
    try:
        wanted = declared(settings)
        existing = _counts(admin, wanted)
        missing = {
            name: {"num_partitions": count, "replication_factor": settings.kafka.replication, "configs": config}
            for name, (count, config) in wanted.items()
            if name not in existing
        }
        if missing:
            # Someone else may create some of them meanwhile; their counts are compared below.
            with contextlib.suppress(TopicAlreadyExistsError):
                admin.create_topics(missing, timeout_ms=30_000, wait_for_metadata=True)
            existing = _counts(admin, wanted)
        wrong = {n: (existing.get(n), c) for n, (c, _) in wanted.items() if existing.get(n) != c}
        if wrong:
            name, (found, count) = next(iter(wrong.items()))
            raise UserError(
                f"topic {name} has {found} partitions, the settings say {count}"
                + (f" (and {len(wrong) - 1} more topics)" if len(wrong) > 1 else ""),
                bootstrap,
                "set kafka.partitions to what exists: a count never changes in place, since the hash would move keys",
            )
    except KafkaError as e:
        # A cluster that is starting counts fewer brokers than copies are wanted.
        kind = NotYet if e.retriable or isinstance(e, InvalidReplicationFactorError) else UserError
        raise kind(f"the topics cannot be created: {_brief(e)}", bootstrap, "see the broker's log") from e
    finally:
        admin.close()


def _counts(admin: KafkaAdminClient, wanted: dict[str, tuple[int, dict[str, str]]]) -> dict[str, int]:
    present = set(admin.list_topics()) & set(wanted)
    if not present:
        return {}
    return {t["name"]: len(t["partitions"]) for t in admin.describe_topics(sorted(present)) if not t["error_code"]}


def _brief(error: KafkaError) -> str:
    """What the broker said: the client's own text holds the whole request and the whole answer, topic by topic."""
    text = str(error)
    said = re.search(r"error_message='([^']+)'", text)
    return said[1] if said else text[:300]
