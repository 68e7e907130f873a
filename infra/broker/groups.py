"""The group coordinator: classic consumer groups as a state machine over an injected clock.

No I/O and no tasks: requests come in as calls, replies leave through callbacks, `tick` does what is due. Time is a
float in seconds of whatever clock the owner passes, so tests drive expiry and rebalances without waiting.
Behaviour follows Apache Kafka's GroupCoordinator (classic protocol, KIP-345 static members, KIP-394 member ids).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from infra.broker.errors import Code
from infra.broker.members import Group, GroupState, JoinReply, JoinRequest, Member, OnJoin, OnSync, SyncReply


@dataclass(frozen=True)
class GroupTimeouts:
    """Bounds in seconds; `initial_delay` lets the members of a new group arrive before its first generation."""

    min_session: float = 0.5
    max_session: float = 1800.0
    initial_delay: float = 0.1


class GroupCoordinator:
    """All groups of the broker. `on_stable` is called with each group whose membership should be remembered."""

    def __init__(
        self,
        clock: Callable[[], float],
        timeouts: GroupTimeouts | None = None,
        on_stable: Callable[[Group], None] = lambda group: None,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self._clock = clock
        self._timeouts = timeouts or GroupTimeouts()
        self._on_stable = on_stable
        self._new_id = new_id

    # -- join ----------------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, reply: OnJoin) -> None:
        """JoinGroup: `reply` is called now (error, or nothing to do) or when the rebalance completes."""

        def refuse(code: Code) -> None:
            reply(JoinReply(code, request.member_id))

        if not request.group_id:
            return refuse(Code.INVALID_GROUP_ID)
        if not self._timeouts.min_session <= request.session_timeout <= self._timeouts.max_session:
            return refuse(Code.INVALID_SESSION_TIMEOUT)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                return refuse(Code.UNKNOWN_MEMBER_ID)
            group = self.groups[request.group_id] = Group(request.group_id)
        if not request.protocol_type or not request.protocols or not self._speaks(group, request):
            return refuse(Code.INCONSISTENT_GROUP_PROTOCOL)
        known_as = group.static.get(request.instance_id) if request.instance_id else None
        if not request.member_id:
            if known_as is not None:
                return self._replace_static(group, group.members[known_as], request, reply)
            return self._join_new(group, request, reply)
        if request.instance_id and known_as is not None and known_as != request.member_id:
            return refuse(Code.FENCED_INSTANCE_ID)
        if request.member_id in group.pending:
            del group.pending[request.member_id]
            return self._add(group, request.member_id, request, reply)
        member = group.members.get(request.member_id)
        if member is None:
            return refuse(Code.UNKNOWN_MEMBER_ID)
        return self._rejoin(group, member, request, reply)

    def _speaks(self, group: Group, request: JoinRequest) -> bool:
        others = [member for member in group.members.values() if member.member_id != request.member_id]
        if not others:
            return True
        names = {name for name, _ in request.protocols}
        common = set.intersection(*({name for name, _ in member.protocols} for member in others))
        return group.protocol_type == request.protocol_type and bool(names & common)

    def _join_new(self, group: Group, request: JoinRequest, reply: OnJoin) -> None:
        member_id = f"{request.instance_id or request.client_id or 'member'}-{self._new_id()}"
        if request.requires_id and request.instance_id is None:
            group.pending[member_id] = self._clock() + request.session_timeout
            return reply(JoinReply(Code.MEMBER_ID_REQUIRED, member_id))
        return self._add(group, member_id, request, reply)

    def _add(self, group: Group, member_id: str, request: JoinRequest, reply: OnJoin) -> None:
        group.members[member_id] = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout,
            request.rebalance_timeout,
            request.protocols,
            self._clock() + request.session_timeout,
            on_join=reply,
        )
        group.protocol_type = request.protocol_type
        if request.instance_id:
            group.static[request.instance_id] = member_id
        self._rebalance(group)

    def _rejoin(self, group: Group, member: Member, request: JoinRequest, reply: OnJoin) -> None:
        same = member.protocols == request.protocols
        settled = group.state in (GroupState.STABLE, GroupState.COMPLETING)
        leader = member.member_id == group.leader
        if settled and same and (group.state is GroupState.COMPLETING or not leader):
            self._touch(member)
            return reply(self._current(group, member))
        member.answer_join(JoinReply(Code.REBALANCE_IN_PROGRESS, member.member_id))
        member.protocols, member.on_join = request.protocols, reply
        member.session_timeout, member.rebalance_timeout = request.session_timeout, request.rebalance_timeout
        self._touch(member)
        return self._rebalance(group)

    def _current(self, group: Group, member: Member) -> JoinReply:
        roster = group.roster() if member.member_id == group.leader else []
        return JoinReply(Code.NONE, member.member_id, group.generation, group.protocol, group.leader, roster)

    def _replace_static(self, group: Group, old: Member, request: JoinRequest, reply: OnJoin) -> None:
        """A static member came back under a new id: it takes over its place; the old id is fenced."""
        old.answer_join(JoinReply(Code.FENCED_INSTANCE_ID, old.member_id))
        old.answer_sync(SyncReply(Code.FENCED_INSTANCE_ID))
        member_id = f"{request.instance_id}-{self._new_id()}"
        was_leader = group.leader == old.member_id
        same = old.protocols == request.protocols
        group.members = {(member_id if key == old.member_id else key): member for key, member in group.members.items()}
        old.member_id, old.protocols = member_id, request.protocols
        old.client_id, old.client_host = request.client_id, request.client_host
        old.session_timeout, old.rebalance_timeout = request.session_timeout, request.rebalance_timeout
        self._touch(old)
        assert request.instance_id is not None
        group.static[request.instance_id] = member_id
        before = group.leader
        if was_leader:
            group.leader = member_id
        if group.state is GroupState.STABLE and same:
            # Told the old leader id, a returning leader does not assign again: the assignment stands (KIP-345).
            self._on_stable(group)
            return reply(JoinReply(Code.NONE, member_id, group.generation, group.protocol, before))
        old.on_join = reply
        return self._rebalance(group)

    # -- rebalance -----------------------------------------------------------------------------------------------

    def _rebalance(self, group: Group) -> None:
        now = self._clock()
        if group.state is not GroupState.PREPARING:
            for member in group.members.values():
                member.answer_sync(SyncReply(Code.REBALANCE_IN_PROGRESS))
            if group.state is GroupState.EMPTY and self._timeouts.initial_delay > 0:
                group.earliest = now + self._timeouts.initial_delay
            group.state = GroupState.PREPARING
            group.deadline = now + max((m.rebalance_timeout for m in group.members.values()), default=0.0)
        self._complete_join_if_ready(group)

    def _complete_join_if_ready(self, group: Group) -> None:
        if group.state is not GroupState.PREPARING or group.pending:
            return
        if group.earliest is not None and self._clock() < group.earliest:
            return
        if all(member.on_join for member in group.members.values()):
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        for member in [m for m in group.members.values() if m.on_join is None and m.instance_id is None]:
            self._forget(group, member)
        group.earliest = group.deadline = None
        if not group.members:
            return self._empty(group)
        if not any(member.on_join for member in group.members.values()):
            group.deadline = self._clock() + max(m.rebalance_timeout for m in group.members.values())
            return None  # only absent static members: wait on
        now = self._clock()
        group.generation += 1
        group.protocol = group.choose_protocol()
        leader = group.members.get(group.leader)
        if leader is None or leader.on_join is None:
            group.leader = next(key for key, member in group.members.items() if member.on_join)
        group.state = GroupState.COMPLETING
        group.deadline = now + max(member.rebalance_timeout for member in group.members.values())
        for member in list(group.members.values()):
            member.assignment = b""
            self._touch(member)
            member.answer_join(self._current(group, member))
        return None

    def _empty(self, group: Group) -> None:
        group.state, group.protocol, group.leader = GroupState.EMPTY, "", ""
        group.generation += 1
        group.deadline = group.earliest = None
        self._on_stable(group)

    def sync(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        assignments: dict[str, bytes],
        reply: OnSync,
    ) -> None:
        """SyncGroup: followers wait for the leader's assignments."""
        group, member, code = self._member(group_id, generation, member_id, instance_id)
        if group is None or member is None or code:
            return reply(SyncReply(code))
        self._touch(member)
        if group.state is GroupState.PREPARING:
            return reply(SyncReply(Code.REBALANCE_IN_PROGRESS))
        if group.state is GroupState.STABLE:
            return reply(SyncReply(Code.NONE, member.assignment))
        member.answer_sync(SyncReply(Code.REBALANCE_IN_PROGRESS))
        member.on_sync = reply
        if member_id == group.leader:
            for other in group.members.values():
                other.assignment = assignments.get(other.member_id, b"")
            group.state, group.deadline = GroupState.STABLE, None
            self._on_stable(group)
            for other in group.members.values():
                if other.on_sync:
                    self._touch(other)
                    other.answer_sync(SyncReply(Code.NONE, other.assignment))
        return None

    # -- life ----------------------------------------------------------------------------------------------------

    def _touch(self, member: Member) -> None:
        member.expires = self._clock() + member.session_timeout

    def _member(
        self, group_id: str, generation: int | None, member_id: str, instance_id: str | None
    ) -> tuple[Group | None, Member | None, Code]:
        """The member a request speaks for, or the code that fences it."""
        group = self.groups.get(group_id)
        if not group_id:
            return None, None, Code.INVALID_GROUP_ID
        if group is None:
            return None, None, Code.UNKNOWN_MEMBER_ID
        if instance_id is not None and group.static.get(instance_id, member_id) != member_id:
            return group, None, Code.FENCED_INSTANCE_ID
        member = group.members.get(member_id)
        if member is None:
            return group, None, Code.UNKNOWN_MEMBER_ID
        if generation is not None and generation != group.generation:
            return group, member, Code.ILLEGAL_GENERATION
        return group, member, Code.NONE

    def heartbeat(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> Code:
        """Heartbeat: keeps the member, and tells it of a rebalance."""
        group, member, code = self._member(group_id, generation, member_id, instance_id)
        if group is None or member is None or code:
            return code
        self._touch(member)
        return Code.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else Code.NONE

    def check_commit(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> Code:
        """May this sender commit offsets? Without a generation only while the group has no members."""
        if not group_id:
            return Code.INVALID_GROUP_ID
        group = self.groups.get(group_id)
        if generation < 0 and not member_id and (group is None or not group.members):
            return Code.NONE
        if group is None:
            return Code.ILLEGAL_GENERATION
        _, member, code = self._member(group_id, generation, member_id, instance_id)
        if member is None or code:
            return code
        self._touch(member)
        return Code.REBALANCE_IN_PROGRESS if group.state is GroupState.COMPLETING else Code.NONE

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> Code:
        """LeaveGroup for one member (by instance id when the member id is empty)."""
        group = self.groups.get(group_id)
        if group is not None and instance_id is not None and not member_id:
            member_id = group.static.get(instance_id, "")
        if group is not None and group.pending.pop(member_id, None) is not None:
            self._complete_join_if_ready(group)
            return Code.NONE
        group, member, code = self._member(group_id, None, member_id, instance_id)
        if group is None or member is None or code:
            return code
        self._remove(group, member)
        return Code.NONE

    def _forget(self, group: Group, member: Member) -> None:
        del group.members[member.member_id]
        if member.instance_id is not None:
            group.static.pop(member.instance_id, None)
        member.answer_join(JoinReply(Code.UNKNOWN_MEMBER_ID, member.member_id))
        member.answer_sync(SyncReply(Code.UNKNOWN_MEMBER_ID))

    def _remove(self, group: Group, member: Member) -> None:
        self._forget(group, member)
        if group.state is GroupState.PREPARING:
            if not group.members and not group.pending:
                self._empty(group)
            else:
                self._complete_join_if_ready(group)
        elif group.members:
            self._rebalance(group)
        else:
            self._empty(group)

    def tick(self) -> None:
        """Expire members, finish or time out rebalances. Cheap; call it when `next_due` comes."""
        now = self._clock()
        for group in list(self.groups.values()):
            if group.earliest is not None and group.earliest <= now:
                group.earliest = None
            for member_id in [key for key, expiry in group.pending.items() if expiry <= now]:
                del group.pending[member_id]
            for member in list(group.members.values()):
                waiting = member.on_join is not None or member.on_sync is not None
                if not waiting and member.expires <= now and member.member_id in group.members:
                    self._remove(group, member)
            if group.deadline is not None and group.deadline <= now:
                self._deadline_passed(group)
            else:
                self._complete_join_if_ready(group)

    def _deadline_passed(self, group: Group) -> None:
        if group.state is GroupState.PREPARING:
            self._complete_join(group)
        elif group.state is GroupState.COMPLETING:
            group.deadline = None
            for member in [m for m in group.members.values() if m.on_sync is None]:
                if member.member_id in group.members:
                    self._remove(group, member)

    def next_due(self) -> float | None:
        """When `tick` next has something to do, in the clock's time; None while no group has members."""
        times: list[float] = []
        for group in self.groups.values():
            times += [time for time in (group.deadline, group.earliest, *group.pending.values()) if time is not None]
            times += [m.expires for m in group.members.values() if m.on_join is None and m.on_sync is None]
        return min(times, default=None)

    def restore(self, group: Group) -> None:
        """Take back a remembered group after a restart; every member gets a fresh session."""
        for member in group.members.values():
            self._touch(member)
        self.groups[group.group_id] = group
