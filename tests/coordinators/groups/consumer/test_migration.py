"""Groups that change between the classic and the consumer protocol while their members run, beside Apache Kafka's."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from headrace.coordinators.groups.classic.group import ClassicGroup, GroupState
from headrace.coordinators.groups.classic.members import Join
from headrace.coordinators.groups.classic.records import write_group_key
from headrace.coordinators.groups.group import GroupKind
from headrace.coordinators.groups.records import VERSION
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.coordinators.groups.consumer.consumers import CONFIG, GROUP, Consumer, World, state_of


@dataclass
class Classic:
    """A member of the classic protocol, whose assignor is cooperative: it names what it owns when it joins again."""

    world: World
    name: str
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    owned: list[int] = field(default_factory=list)
    leads: bool = False
    protocols: tuple[str, ...] = ("range",)

    def join(self, version: int = 3, metadata: bytes | None = None) -> list[Any]:
        """JoinGroup; its answers, none while it waits."""
        answers: list[Any] = []
        own = m.ConsumerProtocolSubscription(
            topics=["t"],
            owned_partitions=[m.ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=self.owned)],
        )
        subscription = bytes([0, 1]) + own.encode(1) if metadata is None else metadata
        request = m.JoinGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=[
                m.JoinGroupRequest.JoinGroupRequestProtocol(name=each, metadata=subscription) for each in self.protocols
            ],
        )
        event = Join.from_request(request, version, self.name, "/127.0.0.1")
        self.world.run(
            self.world.coordinator.classic.join(event, lambda each: self._joined(each, answers), self.world.now_ms)
        )
        return answers

    def _joined(self, answer: m.JoinGroupResponse, answers: list[Any]) -> None:
        answers.append(answer)
        if answer.error_code == ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.leads = answer.leader == answer.member_id

    def sync(self, assignments: dict[str, list[int]] | None = None) -> Any:
        """SyncGroup, with the assignments of a leader."""
        answers: list[Any] = []
        request = m.SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=_assignment(numbers))
                for each, numbers in (assignments or {}).items()
            ],
        )
        self.world.run(self.world.coordinator.classic.sync(request, answers.append, self.world.now_ms))
        (answer,) = answers
        if answer.error_code == ErrorCode.NONE:
            read, _ = m.ConsumerProtocolAssignment.decode(0, answer.assignment, 2)
            self.owned = sorted(number for each in read.assigned_partitions for number in each.partitions)
        return answer

    def beat(self) -> ErrorCode:
        """Heartbeat."""
        request = m.HeartbeatRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id, group_instance_id=self.instance_id
        )
        return self.world.coordinator.classic.heartbeat(request, self.world.now_ms)

    def leave(self) -> list[ErrorCode]:
        """LeaveGroup."""
        identity = m.LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
        left, actions = self.world.coordinator.classic.leave(GROUP, [identity], self.world.now_ms)
        self.world.run(actions)
        return list(left.members)

    def follow(self) -> None:
        """Joins and syncs for as long as its heartbeats say so."""
        for _ in range(5):
            if self.beat() is not ErrorCode.REBALANCE_IN_PROGRESS:
                return
            self.join()
            self.sync()


def _assignment(numbers: list[int]) -> bytes:
    topics = [m.ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=numbers)]
    return bytes([0, 1]) + m.ConsumerProtocolAssignment(assigned_partitions=topics).encode(1)


def a_classic_group(world: World, **settings: Any) -> Classic:
    """A stable classic group of one member, which owns all four partitions."""
    old = Classic(world, "old", **settings)
    old.join()
    world.pass_time(3_000)
    assert old.leads
    old.sync({old.member_id: [0, 1, 2, 3]})
    assert old.owned == [0, 1, 2, 3]
    return old


def kind(world: World) -> GroupKind:
    return world.coordinator._groups[GROUP].kind


def test_a_consumer_joins_a_classic_group_whose_member_gives_up_its_share() -> None:
    world = World()
    old = a_classic_group(world)
    new = Consumer(world, "new")
    assert new.join().error_code == ErrorCode.NONE
    assert kind(world) is GroupKind.CONSUMER
    assert new.partitions() == [], "the classic member has them still"
    old.follow()
    new.beat()
    assert (old.owned, new.partitions()) == ([0, 1], [2, 3])
    assert old.beat() is ErrorCode.NONE
    assert [each.member_type for each in world.describe().members] == [0, 1]
    before = state_of(world.group)
    world.fail_over()
    assert state_of(world.group) == before
    assert (old.beat(), new.beat().error_code) == (ErrorCode.NONE, ErrorCode.NONE)


def test_an_upgrade_that_the_log_refuses_leaves_the_classic_group_as_it_was() -> None:
    world = World()
    old = a_classic_group(world)
    log = list(world.log)
    world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    new = Consumer(world, "new")
    assert new.join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (kind(world), world.log) == (GroupKind.CLASSIC, log)
    assert old.beat() is ErrorCode.NONE
    world.pass_time(11_000)
    group = world.coordinator._groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.is_empty, "its silent member is removed, as of any classic group"


def test_members_join_again_if_an_upgrade_fails_during_their_rebalance() -> None:
    world = World()
    old = a_classic_group(world)
    other = Classic(world, "other")
    waiting = other.join()
    world.holds = True
    Consumer(world, "new").join()
    assert [each.error_code for each in waiting] == [ErrorCode.REBALANCE_IN_PROGRESS]
    world.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert kind(world) is GroupKind.CLASSIC
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    answers = old.join(), other.join()
    world.pass_time(20_000)
    assert [each.error_code for (each,) in answers] == [ErrorCode.NONE, ErrorCode.NONE]


def test_an_empty_group_that_is_not_replaced_after_all_keeps_its_offsets() -> None:
    world = World()
    old = a_classic_group(world)
    old.leave()
    world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    Consumer(world, "new").join()
    group = world.coordinator._groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.is_empty
    world.failure = ErrorCode.NONE
    assert Consumer(world, "new").join().error_code == ErrorCode.NONE
    assert kind(world) is GroupKind.CONSUMER


def test_the_last_consumer_leaves_and_the_group_is_a_classic_one_again() -> None:
    world = World()
    old = a_classic_group(world)
    new = Consumer(world, "new")
    new.join()
    old.follow()
    new.beat()
    assert new.leave().error_code == ErrorCode.NONE
    assert kind(world) is GroupKind.CLASSIC
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.join()
    old.sync({old.member_id: [0, 1, 2, 3]})
    assert old.owned == [0, 1, 2, 3]
    world.fail_over()
    group = world.coordinator._groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (group.state, list(group.members)) == (GroupState.STABLE, [old.member_id])
    assert old.beat() is ErrorCode.NONE


def a_mixed_group(world: World, **settings: Any) -> tuple[Classic, Consumer]:
    """A group of a classic member and a consumer, with two partitions each."""
    old = a_classic_group(world, **settings)
    new = Consumer(world, "new")
    new.join()
    old.follow()
    new.beat()
    assert (old.owned, new.partitions()) == ([0, 1], [2, 3])
    return old, new


def test_a_downgrade_that_the_log_refuses_leaves_the_consumer_group_as_it_was() -> None:
    world = World()
    old, new = a_mixed_group(world)
    before, log = state_of(world.group), list(world.log)
    world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert new.leave().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (kind(world), state_of(world.group), world.log) == (GroupKind.CONSUMER, before, log)
    assert (old.beat(), new.beat().error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    world.failure = ErrorCode.NONE
    assert new.beat().error_code == ErrorCode.NONE
    assert new.leave().error_code == ErrorCode.NONE
    assert kind(world) is GroupKind.CLASSIC
    world.fail_over()
    assert kind(world) is GroupKind.CLASSIC


def test_members_of_a_downgrade_that_fails_keep_their_sessions() -> None:
    world = World()
    old, new = a_mixed_group(world)
    world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    new.leave()
    world.failure = ErrorCode.NONE
    for _ in range(10):
        world.pass_time(5_000)
        old.beat()
    assert kind(world) is GroupKind.CLASSIC, "the consumer that has left is removed when its session ends"
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_join_the_classic_group_join_again_if_the_downgrade_fails() -> None:
    world = World()
    old, new = a_mixed_group(world)
    before = state_of(world.group)
    world.holds = True
    new.leave()
    assert kind(world) is GroupKind.CLASSIC
    waiting = Classic(world, "other").join()
    assert not waiting
    world.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert [each.error_code for each in waiting] == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert state_of(world.group) == before
    assert old.beat() is ErrorCode.NONE


@pytest.mark.parametrize("first", [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS])
@pytest.mark.parametrize(
    ("second", "is_late"),
    [
        (ErrorCode.NONE, False),
        (ErrorCode.REQUEST_TIMED_OUT, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS, True),  # what the log refuses may end before what it has taken
    ],
)
def test_a_downgrade_behind_other_writes_leaves_what_the_log_has(
    first: ErrorCode, second: ErrorCode, is_late: bool
) -> None:
    """One write is in flight and one waits when the group becomes a classic one; each may fail, in any order."""
    world = World()
    old, new = a_mixed_group(world)
    world.holds = True
    old.protocols = ("range", "other")
    assert not old.join()
    old.protocols = ("range", "other", "third")
    assert not old.join()
    new.leave()
    (in_flight, downgrade), world.held, world.holds = world.held, [], False
    for append, error in (
        ((downgrade, second), (in_flight, first)) if is_late else ((in_flight, first), (downgrade, second))
    ):
        world.end(append, error)
    is_downgraded = second is not ErrorCode.NOT_ENOUGH_REPLICAS
    assert kind(world) is (GroupKind.CLASSIC if is_downgraded else GroupKind.CONSUMER)
    if not is_downgraded:
        before = state_of(world.group)
        world.fail_over()
        assert state_of(world.group) == before
        assert old.beat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        assert new.beat().error_code == ErrorCode.NONE
    else:
        world.fail_over()
        assert kind(world) is GroupKind.CLASSIC


def test_the_next_coordinator_has_the_consumer_group_if_the_downgrade_was_not_written() -> None:
    world = World()
    old, new = a_mixed_group(world)
    before = state_of(world.group)
    world.holds = True
    new.leave()
    world.fail_over()
    world.holds = False
    assert (kind(world), state_of(world.group)) == (GroupKind.CONSUMER, before)
    assert (old.beat(), new.beat().error_code) == (ErrorCode.NONE, ErrorCode.NONE)


def test_a_downgrade_that_ends_after_the_group_has_moved_changes_nothing() -> None:
    world = World()
    old, new = a_mixed_group(world)
    before = state_of(world.group)
    world.holds = True
    new.leave()
    held, world.held = world.held, []
    world.fail_over()
    world.holds = False
    for each in held:
        world.end(each, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (kind(world), state_of(world.group)) == (GroupKind.CONSUMER, before)
    assert old.beat() is ErrorCode.NONE


def test_a_group_that_is_too_large_for_a_record_stays_a_consumer_group_of_classic_members() -> None:
    world = World()
    old, new = a_mixed_group(world)
    held, world.holds = world.held, True
    new.leave()
    world.holds = False
    world.end(held.pop(), ErrorCode.MESSAGE_TOO_LARGE)
    assert kind(world) is GroupKind.CONSUMER
    assert list(world.group.members) == [old.member_id], "the consumer that leaves is gone"
    old.follow()
    assert old.owned == [0, 1, 2, 3]
    before = state_of(world.group)
    world.fail_over()
    assert state_of(world.group) == before


def test_classic_members_alone_divide_what_the_last_consumer_leaves_behind() -> None:
    """Without the downgrade nobody but a classic member has the next target assignment computed."""
    world = World(replace(CONFIG, consumer_group_migration_policy="upgrade"))
    old, new = a_mixed_group(world)
    new.leave()
    assert kind(world) is GroupKind.CONSUMER
    old.follow()
    assert old.owned == [0, 1, 2, 3]
    assert old.beat() is ErrorCode.NONE


def test_an_upgrade_and_the_downgrade_after_it_both_fail() -> None:
    world = World()
    old = a_classic_group(world)
    world.holds = True
    new = Consumer(world, "new")
    new.join()
    new.leave()
    upgrade, downgrade = world.held
    world.held, world.holds = [], False
    world.end(downgrade, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert kind(world) is GroupKind.CONSUMER
    world.end(upgrade, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert kind(world) is GroupKind.CLASSIC
    assert old.beat() is ErrorCode.NONE


def test_a_static_member_that_takes_a_consumers_place_tries_again_if_the_write_fails() -> None:
    world = World()
    new = Consumer(world, "new", instance_id="one")
    new.join()
    before = state_of(world.group)
    world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    old = Classic(world, "old", instance_id="one")
    (answer,) = old.join()
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert state_of(world.group) == before
    world.failure = ErrorCode.NONE
    (answer,) = old.join()
    assert (answer.error_code, kind(world)) == (ErrorCode.NONE, GroupKind.CLASSIC)


def test_a_silent_consumer_leads_to_the_downgrade_as_well() -> None:
    world = World()
    old = a_classic_group(world)
    Consumer(world, "new").join()
    for _ in range(10):
        world.pass_time(5_000)
        if old.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
            old.join()
            if kind(world) is GroupKind.CONSUMER:
                old.sync()
    assert kind(world) is GroupKind.CLASSIC


def test_a_classic_member_joins_a_consumer_group() -> None:
    world = World()
    new = Consumer(world, "new")
    new.join()
    old = Classic(world, "old")
    (answer,) = old.join(version=4)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    old.member_id = answer.member_id
    (answer,) = old.join(version=4)
    assert (answer.error_code, answer.protocol_name, answer.leader) == (ErrorCode.NONE, "range", "")
    assert old.sync().error_code == ErrorCode.NONE
    assert old.owned == []
    new.beat()
    new.beat()
    old.follow()
    assert (new.partitions(), old.owned) == ([0, 1], [2, 3])
    assert old.leave() == [ErrorCode.NONE]
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    new.beat()
    assert new.partitions() == [0, 1, 2, 3]


def test_a_classic_member_that_does_not_join_again_is_removed() -> None:
    world = World()
    old = a_classic_group(world)
    new = Consumer(world, "new")
    new.join()
    for _ in range(8):
        assert old.beat() in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)
        world.pass_time(4_000)
        new.beat()
    assert list(world.group.members) == ["new"]
    assert new.partitions() == [0, 1, 2, 3]


def test_a_classic_member_that_does_not_sync_is_removed() -> None:
    world = World()
    new = Consumer(world, "new")
    new.join()
    old = Classic(world, "old")
    old.join()
    for _ in range(6):
        world.pass_time(4_000)
        old.beat()
    assert list(world.group.members) == ["new"]


def test_a_static_classic_member_takes_the_place_of_the_only_consumer() -> None:
    world = World()
    new = Consumer(world, "new", instance_id="one")
    new.join()
    old = Classic(world, "old", instance_id="one")
    (answer,) = old.join()
    assert (answer.error_code, kind(world)) == (ErrorCode.NONE, GroupKind.CLASSIC)
    assert new.beat().error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.FENCED_INSTANCE_ID)
    world.fail_over()
    assert kind(world) is GroupKind.CLASSIC


def test_the_policy_permits_each_direction() -> None:
    for policy, upgrades, downgrades in (
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ):
        world = World(replace(CONFIG, consumer_group_migration_policy=policy))
        a_classic_group(world)
        error = Consumer(world, "new").join().error_code
        assert (error == ErrorCode.NONE) is upgrades, policy
        assert error in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
        world = World(replace(CONFIG, consumer_group_migration_policy=policy))
        new, old = Consumer(world, "new"), Classic(world, "old")
        new.join()
        (answer,) = old.join()
        joins = policy != "disabled"
        assert answer.error_code == (ErrorCode.NONE if joins else ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if joins:
            new.leave()
            assert (kind(world) is GroupKind.CLASSIC) is downgrades, policy


def test_an_assignment_that_is_not_the_consumers_own_is_not_upgraded() -> None:
    world = World()
    old = Classic(world, "old")
    old.join(metadata=b"\xff\xff not a subscription")
    world.pass_time(3_000)
    answer = Consumer(world, "new").join()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert kind(world) is GroupKind.CLASSIC


def test_a_loaded_group_whose_members_share_no_protocol_is_not_upgraded() -> None:
    member = m.GroupMetadataValue.MemberMetadata(
        member_id="a",
        client_id="client",
        client_host="/host",
        rebalance_timeout=20_000,
        session_timeout=10_000,
        subscription=b"",
        assignment=b"",
    )
    twice = m.GroupMetadataValue(
        protocol_type="consumer", generation=1, protocol=None, leader="a", members=[member, member]
    )
    world = World(log=[(write_group_key(GROUP), VERSION.pack(3) + twice.encode(3))])
    answer = Consumer(world, "new").join()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "malformed" in answer.error_message
    assert kind(world) is GroupKind.CLASSIC


def test_a_group_whose_member_has_just_dropped_its_protocol_is_not_upgraded() -> None:
    world = World()
    a_classic_group(world, protocols=("range", "other"))
    Classic(world, "second", instance_id="one", protocols=("range", "other")).join()
    Classic(world, "second", instance_id="one", protocols=("other",)).join()
    assert Consumer(world, "new").join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert kind(world) is GroupKind.CLASSIC


def test_empty_groups_change_their_kind_and_keep_their_offsets() -> None:
    world = World()
    request = m.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[
            m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t",
                partitions=[m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
        ],
    )
    world.run(world.coordinator.commit(request, 8, lambda _: None, 0))
    new = Consumer(world, "new")
    new.join()
    new.leave()
    assert kind(world) is GroupKind.CONSUMER
    old = Classic(world, "old")
    old.join()
    assert kind(world) is GroupKind.CLASSIC
    world.pass_time(3_000)
    old.sync({old.member_id: [0]})
    world.fail_over()
    assert kind(world) is GroupKind.CLASSIC
    _, fetched = world.coordinator.fetch_offsets(GROUP, None, False)
    assert [(each.partition, each.offset) for each in fetched] == [(("t", 0), 7)]


def test_describe_groups_says_that_a_consumer_group_is_not_a_classic_one() -> None:
    world = World()
    assert world.coordinator.classic.describe(GROUP).missing == f"Group {GROUP} not found."
    Consumer(world, "new").join()
    assert world.coordinator.classic.describe(GROUP).missing == f"Group {GROUP} is not a classic group."
