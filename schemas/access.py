"""Who may do what on a cluster, from the declared topics: one principal per service, nothing beyond its part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from schemas.topics import ALL, dead_letter

READERS = ("monitor", "recorder")
"""Read every topic, write none, belong to no group."""


@dataclass(frozen=True, order=True)
class Rule:
    """`principal` (a service's name) may read or write one topic, or be a member of one consumer group.

    Kafka lets whoever may read or write a topic also describe it; everything that no rule allows is denied.
    """

    principal: str
    operation: Literal["read", "write"]
    kind: Literal["topic", "group"]
    name: str


def principals() -> tuple[str, ...]:
    """Every service that touches a topic, and the readers."""
    named = {service for topic in ALL for service in (*topic.producers, *topic.consumers)}
    return tuple(sorted(named | set(READERS)))


def group_of(run_id: str, service: str) -> str:
    """The consumer group in which the instances of a service share a run's partitions."""
    return f"{run_id}.{service}"


def rules(run_id: str) -> tuple[Rule, ...]:
    """All rules of one run, sorted.

    A service writes what it produces, reads what it consumes, and writes the dead letters of what it consumes.
    """
    return tuple(sorted(set(_rules(run_id))))


def _rules(run_id: str) -> Iterator[Rule]:
    for topic in ALL:
        letters = dead_letter(topic)
        for service in topic.producers:
            yield Rule(service, "write", "topic", topic.name)
        for service in topic.consumers:
            yield Rule(service, "read", "topic", topic.name)
            yield Rule(service, "read", "group", group_of(run_id, service))
            if letters:
                yield Rule(service, "write", "topic", letters)
        for reader in READERS:
            yield Rule(reader, "read", "topic", topic.name)
            if letters:
                yield Rule(reader, "read", "topic", letters)
