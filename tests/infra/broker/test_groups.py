"""The group coordinator under a clock that moves only when told: no waiting, every timeout exact."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.broker.errors import Code
from infra.broker.groups import GroupCoordinator, GroupTimeouts
from infra.broker.members import GroupState, JoinReply, JoinRequest, SyncReply


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Client:
    """One member as its client sees itself."""

    house: House
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    joins: list[JoinReply] = field(default_factory=list)
    syncs: list[SyncReply] = field(default_factory=list)
    protocols: list[tuple[str, bytes]] = field(default_factory=lambda: [("range", b"opaque")])

    def join(self, session: float = 10.0, rebalance: float = 60.0, requires_id: bool = False) -> None:
        def reply(answer: JoinReply) -> None:
            self.joins.append(answer)
            if answer.code in (Code.NONE, Code.MEMBER_ID_REQUIRED):
                self.member_id = answer.member_id
                self.generation = answer.generation

        self.house.coordinator.join(
            JoinRequest(
                "g",
                self.member_id,
                self.instance,
                "client",
                "/host",
                session,
                rebalance,
                "consumer",
                self.protocols,
                requires_id,
            ),
            reply,
        )

    def sync(self, assignments: dict[str, bytes] | None = None) -> None:
        self.house.coordinator.sync(
            "g", self.generation, self.member_id, self.instance, assignments or {}, self.syncs.append
        )

    def beat(self) -> Code:
        return self.house.coordinator.heartbeat("g", self.generation, self.member_id, self.instance)

    def commit(self) -> Code:
        return self.house.coordinator.check_commit("g", self.generation, self.member_id, self.instance)


class House:
    """A coordinator, its clock and its members."""

    def __init__(self, initial_delay: float = 0.0) -> None:
        self.clock = Clock()
        numbers = itertools.count()
        self.stable: list[tuple[int, int]] = []
        self.coordinator = GroupCoordinator(
            self.clock,
            GroupTimeouts(initial_delay=initial_delay),
            lambda group: self.stable.append((group.generation, len(group.members))),
            lambda: str(next(numbers)),
        )

    def pass_time(self, seconds: float) -> None:
        """Move the clock in the steps the coordinator asks for."""
        end = self.clock.now + seconds
        while (due := self.coordinator.next_due()) is not None and due <= end:
            self.clock.now = max(self.clock.now, due)
            self.coordinator.tick()
        self.clock.now = end

    def settle(self, *clients: Client) -> None:
        """Everybody joins, the leader assigns, everybody syncs."""
        for client in clients:
            client.join()
        leader = next(client for client in clients if client.joins[-1].leader == client.member_id)
        for client in clients:
            client.sync({c.member_id: c.member_id.encode() for c in clients} if client is leader else None)

    @property
    def state(self) -> GroupState:
        return self.coordinator.groups["g"].state


def _pair() -> tuple[House, Client, Client]:
    house = House()
    first, second = Client(house), Client(house)
    house.settle(first)
    second.join()
    first.join()
    leader = first if first.joins[-1].leader == first.member_id else second
    for client in (first, second):
        client.sync({first.member_id: b"1", second.member_id: b"2"} if client is leader else None)
    assert house.state is GroupState.STABLE
    return house, first, second


def test_assignments_reach_their_members_untouched() -> None:
    """Metadata goes to the leader and assignments to members byte for byte; the protocol is one that all speak."""
    house, first, second = _pair()
    assert [first.syncs[-1].assignment, second.syncs[-1].assignment] == [b"1", b"2"]
    leader = first if first.joins[-1].members else second
    assert {metadata for _, _, metadata in leader.joins[-1].members} == {b"opaque"}
    assert first.generation == second.generation == 2
    assert house.stable[-1] == (2, 2)


def test_initial_delay_gathers_the_first_members() -> None:
    """Members that arrive within the delay form one generation."""
    house = House(initial_delay=3.0)
    first, second = Client(house), Client(house)
    first.join()
    house.pass_time(1.0)
    second.join()
    assert not first.joins
    house.pass_time(2.0)
    assert first.generation == second.generation == 1


def test_a_silent_member_expires_exactly_at_its_session() -> None:
    """Before the session timeout a member is in, after it the others rebalance without it."""
    house, first, second = _pair()
    house.pass_time(9.9)
    assert first.beat() is Code.NONE
    house.pass_time(0.2)
    assert first.beat() is Code.REBALANCE_IN_PROGRESS
    assert second.beat() is Code.UNKNOWN_MEMBER_ID
    assert second.commit() is Code.UNKNOWN_MEMBER_ID
    first.join()
    first.sync({first.member_id: b"all"})
    assert first.syncs[-1].assignment == b"all"


def test_rebalance_timeout_drops_who_does_not_rejoin() -> None:
    """A member that heartbeats but never rejoins holds the others up for the rebalance timeout, no longer."""
    house, first, second = _pair()
    third = Client(house)
    third.join(rebalance=60.0)
    first.join()
    for _ in range(12):
        house.pass_time(5.0)
        second.beat()
    assert {first.joins[-1].code, third.joins[-1].code} == {Code.NONE}
    assert first.generation == third.generation == 3
    assert second.beat() is Code.UNKNOWN_MEMBER_ID


def test_a_leader_that_never_assigns_is_dropped() -> None:
    """Followers waiting for an assignment are told to join again when the leader stays away."""
    house, first, second = _pair()
    first.join()
    second.join()
    leader, follower = (first, second) if first.joins[-1].leader == first.member_id else (second, first)
    follower.sync()
    before = len(follower.syncs)
    for _ in range(12):
        house.pass_time(5.5)
        leader.beat()
    assert follower.syncs[before:][0].code is Code.REBALANCE_IN_PROGRESS
    assert leader.beat() is Code.UNKNOWN_MEMBER_ID


def test_commits_are_fenced() -> None:
    """A commit passes in the member's own generation, also while a rebalance gathers, but not before the assignment."""
    house, first, second = _pair()
    assert first.commit() is Code.NONE
    third = Client(house)
    third.join()
    assert first.commit() is Code.NONE
    first.join()
    second.join()
    assert house.state is GroupState.COMPLETING
    assert first.commit() is Code.REBALANCE_IN_PROGRESS
    first.generation -= 1
    assert first.commit() is Code.ILLEGAL_GENERATION
    check = house.coordinator.check_commit
    assert check("g", -1, "", None) is Code.UNKNOWN_MEMBER_ID
    assert check("nobody", -1, "", None) is Code.NONE
    assert check("", -1, "", None) is Code.INVALID_GROUP_ID


def test_leaving_starts_a_rebalance_at_once() -> None:
    """The others need not wait for a session to expire; the last one leaves an empty group."""
    house, first, second = _pair()
    assert house.coordinator.leave("g", second.member_id, None) is Code.NONE
    assert first.beat() is Code.REBALANCE_IN_PROGRESS
    first.join()
    first.sync({})
    assert house.coordinator.leave("g", first.member_id, None) is Code.NONE
    assert house.state is GroupState.EMPTY
    assert house.coordinator.leave("g", first.member_id, None) is Code.UNKNOWN_MEMBER_ID
    assert house.coordinator.next_due() is None


def test_a_promised_member_id_expires() -> None:
    """KIP-394 ids that are never used neither block the group nor stay valid."""
    house = House()
    first, ghost = Client(house), Client(house)
    ghost.join(requires_id=True)
    assert ghost.joins[-1].code is Code.MEMBER_ID_REQUIRED
    first.join()
    assert not first.joins
    house.pass_time(10.0)
    assert first.joins[-1].code is Code.NONE
    ghost.join()
    assert ghost.joins[-1].code is Code.UNKNOWN_MEMBER_ID


def test_static_member_returns_without_rebalance_and_expires_with_one() -> None:
    """KIP-345: same instance id, new process: same generation; gone for its session timeout: replaced."""
    house = House()
    first, second = Client(house), Client(house, instance="pod-1")
    first.join()
    second.join()
    first.join()
    leader, other = (first, second) if first.joins[-1].leader == first.member_id else (second, first)
    leader.sync({first.member_id: b"1", second.member_id: b"2"})
    other.sync()
    back = Client(house, instance="pod-1")
    back.join()
    assert (back.joins[-1].code, back.generation) == (Code.NONE, second.generation)
    assert second.beat() is Code.FENCED_INSTANCE_ID
    back.sync()
    assert back.syncs[-1].assignment == b"2"
    assert house.state is GroupState.STABLE
    house.pass_time(5.0)
    first.beat()
    house.pass_time(5.5)
    assert first.beat() is Code.REBALANCE_IN_PROGRESS


def test_refusals() -> None:
    """No group name, a session out of bounds, a protocol nobody shares: each has its code."""
    house, _, _ = _pair()
    late = Client(house, protocols=[("other", b"")])
    late.join()
    assert late.joins[-1].code is Code.INCONSISTENT_GROUP_PROTOCOL
    late.protocols = [("range", b"")]
    late.join(session=0.01)
    assert late.joins[-1].code is Code.INVALID_SESSION_TIMEOUT
    answers: list[JoinReply] = []
    house.coordinator.join(JoinRequest("", "", None, "", "", 10, 10, "consumer", [("a", b"")], False), answers.append)
    assert answers[-1].code is Code.INVALID_GROUP_ID


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["join", "sync", "beat", "leave", "wait"])), max_size=60))
def test_whatever_members_do_the_group_stays_sound(steps: list[tuple[int, str]]) -> None:
    """Any interleaving: generations only grow, a stable group has a leader and no one waiting, no wait is for ever."""
    house = House()
    clients = [Client(house) for _ in range(4)]
    highest = 0
    for index, step in steps:
        client = clients[index]
        if step == "join":
            client.join()
            if client.joins and client.joins[-1].code is Code.UNKNOWN_MEMBER_ID:
                client.member_id = ""
        elif step == "sync":
            client.sync({c.member_id: b"a" for c in clients})
        elif step == "beat":
            client.beat()
        elif step == "leave":
            house.coordinator.leave("g", client.member_id, None)
        else:
            house.pass_time(4.0)
        group = house.coordinator.groups.get("g")
        if group is None:
            continue
        assert group.generation >= highest
        highest = group.generation
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state in (GroupState.COMPLETING, GroupState.STABLE):
            assert group.leader in group.members
            assert all(member.on_join is None for member in group.members.values())
        if group.state is GroupState.STABLE:
            assert all(member.on_sync is None for member in group.members.values())
    house.pass_time(500.0)
    group = house.coordinator.groups.get("g")
    assert group is None or (not group.members and group.state is GroupState.EMPTY)
    for client in clients:
        assert all(
            reply.code in (Code.NONE, Code.UNKNOWN_MEMBER_ID, Code.REBALANCE_IN_PROGRESS) for reply in client.joins
        )


@pytest.mark.parametrize("restored", [True])
def test_a_restored_group_goes_on(restored: bool) -> None:
    """A remembered group accepts its members' heartbeats with fresh sessions."""
    house, first, second = _pair()
    group = house.coordinator.groups["g"]
    other = House()
    other.clock.now = 5.0
    other.coordinator.restore(group)
    first.house = second.house = other
    assert first.beat() is Code.NONE
    other.pass_time(9.0)
    assert second.beat() is Code.NONE
