"""Group requests: the coordinator's calls and callbacks as protocol messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DeleteGroupsResponse, DescribeGroupsResponse, ListGroupsResponse
from kafka.protocol.consumer import HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse

from infra.broker.errors import Code
from infra.broker.members import Group, GroupState, JoinReply, JoinRequest, SyncReply
from infra.broker.reply import Call, Deferred

if TYPE_CHECKING:
    from infra.broker.broker import Broker


def join(broker: Broker, call: Call, request: Any) -> Deferred:
    """JoinGroup 0-5; before version 1 the session timeout also bounds the rebalance."""
    rebalance = request.rebalance_timeout_ms if call.version >= 1 else request.session_timeout_ms
    deferred = Deferred()

    def reply(answer: JoinReply) -> None:
        member = JoinGroupResponse.JoinGroupResponseMember
        deferred.resolve(
            broker.encode(
                call,
                JoinGroupResponse(
                    error_code=answer.code,
                    generation_id=answer.generation,
                    protocol_name=answer.protocol,
                    leader=answer.leader,
                    member_id=answer.member_id,
                    members=[member(member_id=i, group_instance_id=s, metadata=m) for i, s, m in answer.members],
                ),
            )
        )

    broker.coordinator.join(
        JoinRequest(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            call.client_id,
            call.client_host,
            request.session_timeout_ms / 1000,
            max(rebalance, 0) / 1000,
            request.protocol_type,
            [(protocol.name, protocol.metadata) for protocol in request.protocols],
            requires_id=call.version >= 4,
        ),
        reply,
    )
    broker.arm_groups()
    return deferred


def sync(broker: Broker, call: Call, request: Any) -> Deferred:
    """SyncGroup 0-3."""
    deferred = Deferred()

    def reply(answer: SyncReply) -> None:
        deferred.resolve(broker.encode(call, SyncGroupResponse(error_code=answer.code, assignment=answer.assignment)))

    broker.coordinator.sync(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        {item.member_id: item.assignment for item in request.assignments},
        reply,
    )
    broker.arm_groups()
    return deferred


def heartbeat(broker: Broker, call: Call, request: Any) -> Any:
    """Heartbeat 0-3."""
    code = broker.coordinator.heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    return HeartbeatResponse(error_code=code)


def leave(broker: Broker, call: Call, request: Any) -> Any:
    """LeaveGroup 0-3: one member, or several since version 3."""
    if call.version < 3:
        response = LeaveGroupResponse(error_code=broker.coordinator.leave(request.group_id, request.member_id, None))
    else:
        answers = [
            LeaveGroupResponse.MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=broker.coordinator.leave(request.group_id, member.member_id, member.group_instance_id),
            )
            for member in request.members
        ]
        response = LeaveGroupResponse(error_code=0, members=answers)
    broker.arm_groups()
    return response


def _known(broker: Broker, group_id: str) -> Group | None:
    group = broker.coordinator.groups.get(group_id)
    if group is not None:
        return group
    return Group(group_id) if group_id in broker.offsets.by_group else None


def describe(broker: Broker, call: Call, request: Any) -> Any:
    """DescribeGroups 0-4; an unknown group is `Dead`, as Apache Kafka answers these versions."""
    return DescribeGroupsResponse(groups=[_described(_known(broker, name), name) for name in request.groups])


def _described(group: Group | None, name: str) -> Any:
    answer = DescribeGroupsResponse.DescribedGroup
    if group is None:
        return answer(
            error_code=0,
            group_id=name,
            group_state=GroupState.DEAD.value,
            protocol_type="",
            protocol_data="",
            members=[],
        )
    stable = group.state is GroupState.STABLE
    members = [
        answer.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_assignment=member.assignment,
            member_metadata=member.metadata(group.protocol) if stable else b"",
        )
        for member in group.members.values()
    ]
    return answer(
        error_code=0,
        group_id=name,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol if stable else "",
        members=members,
    )


def list_all(broker: Broker, call: Call, request: Any) -> Any:
    """ListGroups 0-5, with the filters of versions 4 and 5."""
    listed = ListGroupsResponse.ListedGroup
    names = sorted({*broker.coordinator.groups, *broker.offsets.by_group})
    groups = [group for name in names if (group := _known(broker, name)) is not None]
    states = {state.lower() for state in request.states_filter or ()}
    types = {kind.lower() for kind in request.types_filter or ()}
    if states:
        groups = [group for group in groups if group.state.value.lower() in states]
    if types and "classic" not in types:
        groups = []
    return ListGroupsResponse(
        error_code=0,
        groups=[
            listed(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state.value,
                group_type="classic",
            )
            for group in groups
        ],
    )


def delete(broker: Broker, call: Call, request: Any) -> Any:
    """DeleteGroups 0-1: only groups without members."""
    result = DeleteGroupsResponse.DeletableGroupResult
    return DeleteGroupsResponse(
        results=[result(group_id=name, error_code=_delete(broker, name)) for name in request.groups_names]
    )


def _delete(broker: Broker, name: str) -> Code:
    group = _known(broker, name)
    if group is None:
        return Code.GROUP_ID_NOT_FOUND
    if group.members or group.pending:
        return Code.NON_EMPTY_GROUP
    try:
        broker.offsets.delete_group(name)
    except OSError as error:
        broker.storage_trouble("group deletion", error)
        return Code.COORDINATOR_NOT_AVAILABLE
    broker.flusher.wrote(None)
    broker.coordinator.groups.pop(name, None)
    return Code.NONE
