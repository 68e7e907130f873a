"""Who may do what on a cluster, from the declared topics: one principal per service, nothing beyond its part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from schemas.topics import ALL, Topic, dead_letter

RECORDER = "recorder"
READERS = ("monitor", RECORDER)
"""Read every topic and write none; the recorder's instances share the partitions in a group, the monitor has none."""
OPERATOR = "operator"
"""Makes topics and looks at what groups have committed; neither reads nor writes a record."""


@dataclass(frozen=True, order=True)
class Rule:
    """`principal` (a service's name) may do one thing with one topic or one consumer group.

    To read a group is to be its member; whoever may read or write may also describe. What no rule allows is denied.
    """

    principal: str
    operation: Literal["read", "write", "create", "describe"]
    kind: Literal["topic", "group"]
    name: str


def principals() -> tuple[str, ...]:
    """Every service that touches a topic, the readers and the operator."""
    named = {service for topic in ALL for service in (*topic.producers, *topic.consumers)}
    return tuple(sorted(named | {*READERS, OPERATOR}))


def group_of(run_id: str, service: str) -> str:
    """The consumer group in which the instances of a service share a run's partitions."""
    return f"{run_id}.{service}"


def readers_of(topic: Topic) -> tuple[str, ...]:
    """Every service that reads a topic: those for which it is an input, then those that read all."""
    return (*topic.consumers, *READERS)


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
        for name in filter(None, (topic.name, letters)):
            for reader in READERS:
                yield Rule(reader, "read", "topic", name)
            yield Rule(OPERATOR, "create", "topic", name)
            yield Rule(OPERATOR, "describe", "topic", name)
    yield Rule(RECORDER, "read", "group", group_of(run_id, RECORDER))
    for service in principals():
        yield Rule(OPERATOR, "describe", "group", group_of(run_id, service))
