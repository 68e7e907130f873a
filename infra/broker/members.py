"""The values of a consumer group: members, what they ask when they join, what they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from infra.broker.errors import Code


class GroupState(Enum):
    """States of a classic group; the values are the names that DescribeGroups and ListGroups report."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True)
class JoinRequest:
    """A JoinGroup request; protocol metadata is opaque. Timeouts in seconds."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: list[tuple[str, bytes]]
    requires_id: bool  # KIP-394: a new dynamic member is first told its id


@dataclass(frozen=True)
class JoinReply:
    """Answer to a join; `members` (id, instance id, metadata) is filled for the leader only."""

    code: Code
    member_id: str
    generation: int = -1
    protocol: str = ""
    leader: str = ""
    members: list[tuple[str, str | None, bytes]] = field(default_factory=list)


@dataclass(frozen=True)
class SyncReply:
    """Answer to a sync: the member's assignment, opaque."""

    code: Code
    assignment: bytes = b""


OnJoin = Callable[[JoinReply], None]
OnSync = Callable[[SyncReply], None]


@dataclass
class Member:
    """One member of a group. `expires` is a time of the coordinator's clock."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: list[tuple[str, bytes]]
    expires: float
    assignment: bytes = b""
    on_join: OnJoin | None = None
    on_sync: OnSync | None = None

    def metadata(self, protocol: str) -> bytes:
        """What the member said about `protocol`; empty when it does not speak it."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def answer_join(self, reply: JoinReply) -> None:
        """Answer the waiting join, if there is one."""
        callback, self.on_join = self.on_join, None
        if callback:
            callback(reply)

    def answer_sync(self, reply: SyncReply) -> None:
        """Answer the waiting sync, if there is one."""
        callback, self.on_sync = self.on_sync, None
        if callback:
            callback(reply)


@dataclass
class Group:
    """One consumer group with classic membership."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)  # ids told (KIP-394) but not joined yet -> expiry
    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    deadline: float | None = None  # end of the join or sync phase
    earliest: float | None = None  # a first rebalance waits until then for more members

    def candidates(self) -> list[str]:
        """Protocols that every member speaks, in the first member's order."""
        members = list(self.members.values())
        if not members:
            return []
        common = set.intersection(*({name for name, _ in member.protocols} for member in members))
        return [name for name, _ in members[0].protocols if name in common]

    def choose_protocol(self) -> str:
        """The common protocol most members prefer (each votes for its first common one)."""
        common = self.candidates()
        votes = [next(name for name, _ in member.protocols if name in common) for member in self.members.values()]
        return max(common, key=votes.count)

    def roster(self) -> list[tuple[str, str | None, bytes]]:
        """(id, instance id, metadata) of every member, for the leader's join reply."""
        return [(m.member_id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values()]
