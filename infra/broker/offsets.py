"""Committed offsets and group memberships, durable in one journal: a restarted broker knows its groups."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from infra.broker.journal import Journal
from infra.broker.members import Group, GroupState, Member

logger = logging.getLogger(__name__)


class Committed(NamedTuple):
    """One committed position; `leader_epoch` is -1 when the client gave none."""

    offset: int
    leader_epoch: int
    metadata: str


Partition = tuple[str, int]


class OffsetStore:
    """Offsets by group and partition. Every change is in the journal before it is answered; all may raise OSError."""

    def __init__(self, path: Path) -> None:
        self.journal = Journal(path)
        self.by_group: dict[str, dict[Partition, Committed]] = {}
        self.restored: dict[str, Group] = {}
        self._memberships: dict[str, Any] = {}
        for entry in self.journal.replay():
            self._apply(entry)
        for group_id, entry in self._memberships.items():
            self.restored[group_id] = _group_from(group_id, entry)

    def _apply(self, entry: Any) -> None:
        kind, group_id = entry[0], entry[1]
        if kind == "commit":
            held = self.by_group.setdefault(group_id, {})
            for topic, partition, offset, epoch, metadata in entry[2]:
                held[topic, partition] = Committed(offset, epoch, metadata)
        elif kind == "forget":
            held = self.by_group.get(group_id, {})
            for topic, partition in entry[2]:
                held.pop((topic, partition), None)
            if not held:
                self.by_group.pop(group_id, None)
        elif kind == "delete":
            self.by_group.pop(group_id, None)
            self._memberships.pop(group_id, None)
        elif kind == "members":
            if entry[2]["members"]:
                self._memberships[group_id] = entry[2]
            else:
                self._memberships.pop(group_id, None)

    def _write(self, entry: Any) -> None:
        if self.journal.worth_rewriting():
            try:
                self.journal.rewrite(self._live())
            except OSError as error:  # appending may still work, and is all that this entry needs
                logger.warning("the group journal cannot be shortened: %s", error)
        self.journal.append(entry)
        self._apply(entry)

    def _live(self) -> Iterator[Any]:
        for group_id, held in self.by_group.items():
            yield ["commit", group_id, [[t, p, c.offset, c.leader_epoch, c.metadata] for (t, p), c in held.items()]]
        for group_id, members in self._memberships.items():
            yield ["members", group_id, members]

    def commit(self, group_id: str, positions: Iterable[tuple[str, int, int, int, str]]) -> None:
        """Store (topic, partition, offset, leader epoch, metadata) entries."""
        self._write(["commit", group_id, [list(position) for position in positions]])

    def forget(self, group_id: str, partitions: Iterable[Partition]) -> None:
        """Drop some positions of one group."""
        self._write(["forget", group_id, [list(partition) for partition in partitions]])

    def delete_group(self, group_id: str) -> None:
        """Drop everything about one group."""
        self._write(["delete", group_id])

    def delete_topic(self, topic: str) -> None:
        """Drop the positions of a deleted topic in every group."""
        for group_id, held in list(self.by_group.items()):
            gone = [partition for partition in held if partition[0] == topic]
            if gone:
                self.forget(group_id, gone)

    def remember(self, group: Group) -> None:
        """Store a group's membership and assignments (an empty group is forgotten)."""
        if group.members or group.group_id in self._memberships:
            self._write(["members", group.group_id, _group_entry(group)])


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _group_entry(group: Group) -> dict[str, Any]:
    return {
        "generation": group.generation,
        "type": group.protocol_type,
        "protocol": group.protocol,
        "leader": group.leader,
        "members": [
            {
                "id": m.member_id,
                "instance": m.instance_id,
                "client": m.client_id,
                "host": m.client_host,
                "session": m.session_timeout,
                "rebalance": m.rebalance_timeout,
                "assignment": _text(m.assignment),
                "protocols": [[name, _text(data)] for name, data in m.protocols],
            }
            for m in group.members.values()
        ],
    }


def _group_from(group_id: str, entry: dict[str, Any]) -> Group:
    group = Group(group_id, GroupState.STABLE, entry["generation"], entry["type"], entry["protocol"], entry["leader"])
    for m in entry["members"]:
        protocols = [(name, base64.b64decode(data)) for name, data in m["protocols"]]
        group.members[m["id"]] = Member(
            m["id"],
            m["instance"],
            m["client"],
            m["host"],
            m["session"],
            m["rebalance"],
            protocols,
            0.0,
            assignment=base64.b64decode(m["assignment"]),
        )
        if m["instance"]:
            group.static[m["instance"]] = m["id"]
    return group
