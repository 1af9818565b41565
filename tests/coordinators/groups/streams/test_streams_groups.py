"""Streams groups: members join, get tasks, give them up and leave, and another coordinator continues from the log."""

import random
from collections import Counter
from typing import Any

import pytest

from headrace.coordinators.groups.group import Committer, GroupKind
from headrace.coordinators.groups.streams.configured_topology import Status
from headrace.coordinators.groups.streams.member import StreamsMemberState
from headrace.errors import ErrorCode
from headrace.limits import ASSIGNED_IN_PLACE_MAX
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests.coordinators.groups.scenario import GROUP
from tests.coordinators.groups.streams.members import Member, Request, StreamsWorld, statuses
from tests.coordinators.groups.streams.samples import requested, subtopology

EVERY_TASK = ["0_0", "0_1", "1_0", "1_1"]


def world_with_topics(**settings: Any) -> StreamsWorld:
    world = StreamsWorld(settings)
    world.make_all()
    return world


def test_the_first_member_gets_every_task() -> None:
    world = world_with_topics()
    member = world.enter("a")
    assert member.tasks == EVERY_TASK
    assert (member.epoch, world.streams_group.state) == (2, "Stable")


def test_internal_topics_are_named_until_they_exist() -> None:
    world = StreamsWorld()
    member = world.enter("a")
    assert statuses(member.answers[-1].response) == [Status.MISSING_SOURCE_TOPICS]
    world.make(lines=3)
    assert statuses(world.beat(member)) == [Status.MISSING_INTERNAL_TOPICS]
    assert [(each.name, each.partition_count) for each in member.answers[-1].to_create] == [
        ("counts-changelog", 3),
        ("words-repartition", 3),
    ]
    assert (member.tasks, world.streams_group.state) == ([], "NotReady")
    world.make_all(3)
    assert statuses(world.beat(member)) == []
    assert len(member.tasks) == 6


def test_a_second_member_waits_until_the_first_gives_up_tasks() -> None:
    world = world_with_topics()
    first = world.enter("a")
    second = world.enter("b")
    assert second.tasks == []
    assert world.streams_group.members["b"].state is StreamsMemberState.UNRELEASED_TASKS
    world.beat(first, names_tasks=False)
    assert world.streams_group.members["a"].state is StreamsMemberState.UNREVOKED_TASKS
    assert len(first.tasks) == 2
    world.beat(second)
    assert second.tasks == [], "the first has not said yet that it gave them up"
    world.beat(first)
    world.beat(second)
    assert sorted(first.tasks + second.tasks) == EVERY_TASK
    assert (first.epoch, second.epoch, world.streams_group.state) == (3, 3, "Stable")


def test_a_member_that_missed_an_answer_is_told_its_tasks_again() -> None:
    world = world_with_topics()
    first = world.enter("a")
    had = dict(first.active)
    world.enter("b")
    world.beat(first, names_tasks=False)
    first.active, first.epoch = had, 2
    assert len(first.tasks) == 4, "the answer was lost"
    world.beat(first)
    assert len(first.tasks) == 2
    assert world.beat(first).active_tasks is None


def test_members_of_one_process_share_its_load() -> None:
    world = world_with_topics()
    members = [world.enter("a1", "a"), world.enter("a2", "a"), world.enter("b1", "b"), world.enter("b2", "b")]
    world.settle(*members)
    assert [len(each.tasks) for each in members] == [1, 1, 1, 1]


def test_standby_tasks_go_to_the_other_process_and_take_over() -> None:
    world = world_with_topics(streams_standby_replicas=1)
    first, second = world.enter("a"), world.enter("b")
    world.settle(first, second)
    counters = {task for task in first.tasks if task.startswith("1_")}
    assert set(second.standby_tasks) == counters
    leave(world, first)
    world.settle(second)
    assert second.tasks == EVERY_TASK
    assert second.standby_tasks == []


def leave(world: StreamsWorld, member: Member, **fields: Any) -> None:
    member.epoch = -1
    world.send(member, **fields)
    assert member.answers[-1].response.error_code == ErrorCode.NONE


def test_the_number_of_standby_tasks_of_the_group_counts_and_its_change_assigns_anew() -> None:
    world = world_with_topics()
    first, second = world.enter("a"), world.enter("b")
    world.settle(first, second)
    assert first.standby_tasks == []
    broker_number = world.coordinator._groups.number
    world.coordinator._groups.number = lambda group, name: (
        1 if name == "streams.num.standby.replicas" else broker_number(group, name)
    )
    world.settle(first, second)
    assert len(first.standby_tasks + second.standby_tasks) == 2


def test_the_last_member_leaves_an_empty_group_behind() -> None:
    world = world_with_topics()
    member = world.enter("a")
    leave(world, member)
    assert (world.streams_group.state, world.streams_group.is_empty) == ("Empty", True)
    assert world.coordinator.next_deadline_ms() is not None
    world.pass_time(200_000)
    assert world.enter("b").tasks == EVERY_TASK


def test_a_silent_member_is_removed() -> None:
    world = world_with_topics()
    first, second = world.enter("a"), world.enter("b")
    world.settle(first, second)
    world.now_ms += 44_000
    world.beat(second)
    world.pass_time(world.now_ms + 2_000)
    assert list(world.streams_group.members) == ["b"]
    world.settle(second)
    assert second.tasks == EVERY_TASK
    assert world.beat(first).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_keeps_its_tasks_is_removed_after_its_rebalance_timeout() -> None:
    world = world_with_topics()
    first = world.enter("a", rebalance_timeout_ms=20_000)
    second = world.enter("b")
    had = dict(first.active)
    world.beat(first, names_tasks=False)
    for _ in range(3):
        world.pass_time(world.now_ms + 9_000)
        if "a" in world.streams_group.members:
            first.active = had
            world.beat(first)
        world.beat(second)
    assert list(world.streams_group.members) == ["b"]


def test_the_first_assignment_waits_for_more_members() -> None:
    world = world_with_topics(streams_initial_rebalance_delay_ms=3_000)
    first = world.enter("a")
    assert statuses(first.answers[-1].response) == [Status.ASSIGNMENT_DELAYED]
    assert (first.tasks, first.epoch) == ([], 1)
    second = world.enter("b")
    world.pass_time(world.now_ms + 3_000)
    world.settle(first, second)
    assert [len(each.tasks) for each in (first, second)] == [2, 2]
    assert world.streams_group.members["a"].state is StreamsMemberState.STABLE


def test_assignments_keep_their_interval() -> None:
    world = world_with_topics(streams_assignment_interval_ms=1_000)
    first = world.enter("a")
    second = world.enter("b")
    assert statuses(second.answers[-1].response) == [Status.ASSIGNMENT_DELAYED]
    assert world.streams_group.assignment_epoch < world.streams_group.epoch
    world.now_ms += 1_000
    world.settle(first, second)
    assert len(second.tasks) == 2


def test_a_late_assignment_does_not_replace_a_newer_one() -> None:
    world = StreamsWorld()
    world.make_all(ASSIGNED_IN_PLACE_MAX)
    first = world.enter("a")
    world.topics.put(gone=["lines"])
    world.beat(first)
    newest = world.streams_group.assignment_epoch
    world.computed()
    assert (world.streams_group.assignment_epoch, first.tasks) == (newest, [])
    world.beat(first)
    assert first.tasks == []


def test_the_assignment_of_a_large_group_is_computed_off_the_event_loop() -> None:
    world = StreamsWorld()
    world.make_all(ASSIGNED_IN_PLACE_MAX)
    first = world.enter("a")
    assert statuses(first.answers[-1].response) == [Status.ASSIGNMENT_DELAYED]
    second = world.enter("b")
    assert len(world.computing) == 1, "one at a time"
    world.computed(fails=True)
    assert (world.streams_group.targets, world.streams_group.is_assigning) == ({}, False)
    world.beat(first)
    leave(world, second)
    world.computed()
    assert list(world.streams_group.targets) == ["a"]
    world.beat(first)
    world.computed()
    world.settle(first)
    assert len(first.tasks) == 2 * ASSIGNED_IN_PLACE_MAX
    world.enter("c")
    leave(world, first)
    world.restart()
    world.computed()
    assert "c" not in world.streams_group.targets, "it belongs to the group that another broker serves by now"


def test_epochs_that_are_not_the_members_are_fenced() -> None:
    world = world_with_topics()
    member = world.enter("a")
    for epoch in (member.epoch + 1, member.epoch - 1):
        stale = Member("a", "a", epoch, active=member.active)
        assert world.beat(stale).error_code == (
            ErrorCode.NONE if epoch == member.epoch - 2 else ErrorCode.FENCED_MEMBER_EPOCH
        )


def test_the_previous_epoch_is_accepted_from_a_member_that_owns_no_more_than_it_was_given() -> None:
    world = world_with_topics()
    first = world.enter("a")
    world.enter("b")
    world.beat(first, names_tasks=False)
    world.beat(first)
    current = world.streams_group.members["a"]
    assert current.epoch > current.previous_epoch
    lost = Member("a", "a", current.previous_epoch, active=dict(first.active))
    assert world.beat(lost).error_code == ErrorCode.NONE
    lost = Member("a", "a", current.previous_epoch, active={"0": {0, 1}, "1": {0, 1}})
    assert world.beat(lost).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_topology_cannot_change() -> None:
    world = world_with_topics()
    world.enter("a")
    other = world.enter("b", topology=requested(subtopology("0", ["lines"])))
    assert other.answers[-1].response.error_code == ErrorCode.INVALID_REQUEST
    assert "b" not in world.streams_group.members


def test_a_member_with_an_older_topology_is_told() -> None:
    world = StreamsWorld(topology=requested(subtopology("0", ["lines"]), epoch=3))
    world.make_all()
    world.enter("a")
    late = world.enter("b", topology=requested(subtopology("0", ["lines"]), epoch=2))
    assert Status.STALE_TOPOLOGY in statuses(late.answers[-1].response)


def test_a_shutdown_request_reaches_every_member_until_the_group_is_empty() -> None:
    world = world_with_topics()
    first, second = world.enter("a"), world.enter("b")
    leave(world, first, shutdown_application=True)
    assert Status.SHUTDOWN_APPLICATION in statuses(world.beat(second))
    leave(world, second)
    assert statuses(world.enter("c").answers[-1].response) == []


def test_endpoints_are_told_when_they_changed() -> None:
    world = world_with_topics()
    endpoint = Request.Endpoint(host="a.example", port=9000)
    member = world.enter("a", user_endpoint=endpoint)
    told = member.answers[-1].response
    (found,) = told.partitions_by_user_endpoint or []
    assert (found.user_endpoint.host, found.user_endpoint.port) == ("a.example", 9000)
    assert {each.topic: each.partitions for each in found.active_partitions} == {
        "lines": [0, 1],
        "words-repartition": [0, 1],
    }
    answer = world.beat(member, endpoint_information_epoch=told.endpoint_information_epoch)
    assert answer.partitions_by_user_endpoint is None
    other = world.enter("b", user_endpoint=Request.Endpoint(host="b.example", port=9000))
    world.settle(member, other)
    assert world.streams_group.endpoint_epoch > told.endpoint_information_epoch
    known = world.beat(member).partitions_by_user_endpoint or []
    assert {each.user_endpoint.host for each in known} == {"a.example", "b.example"}


@pytest.mark.parametrize(
    "fields",
    [
        {"instance_id": "i"},
        {"rebalance_timeout_ms": -1},
        {"topology": None},
        {"active_tasks": [Request.TaskIds(subtopology_id="0", partitions=[0])]},
        {"standby_tasks": None},
        {"rack_id": ""},
        {"warmup_tasks": [Request.TaskIds(subtopology_id="0", partitions=[0])]},
        {"task_offsets": []},
    ],
)
def test_wrong_joins_are_refused(fields: dict[str, Any]) -> None:
    world = world_with_topics()
    member = world.enter("a", **fields)
    assert member.answers[-1].response.error_code == ErrorCode.INVALID_REQUEST
    assert world.coordinator._groups.get(GROUP) is None


def test_tasks_that_do_not_exist_are_refused() -> None:
    world = world_with_topics()
    member = world.enter("a")
    for wrong in ({"9": {0}}, {"0": {2}}, {"0": {-1}}):
        member.active = wrong
        assert world.beat(member).error_code == ErrorCode.INVALID_REQUEST


def test_a_full_group_takes_no_more_members() -> None:
    world = world_with_topics(streams_group_max_size=1)
    world.enter("a")
    assert world.enter("b").answers[-1].response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_other_groups_are_no_streams_groups() -> None:
    world = world_with_topics()
    world.do("A join")
    world.do("A join")
    assert world.enter("a").answers[-1].response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    member = Member("a", "a", 3)
    world.send(member)
    assert member.answers[-1].response.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_classic_group_becomes_a_streams_group_and_keeps_its_offsets() -> None:
    world = world_with_topics()
    world.do("simple commit lines-0=7")
    world.enter("a")
    assert world.coordinator.overview()[1][0].kind is GroupKind.STREAMS
    world.restart()
    error, fetched = world.coordinator.fetch_offsets(GROUP, None, False)
    assert (error, [each.offset for each in fetched]) == (ErrorCode.NONE, [7])
    assert list(world.streams_group.members) == ["a"]


def test_members_commit_with_their_epoch_or_one_since_they_have_the_task() -> None:
    world = world_with_topics()
    first = world.enter("a")
    world.enter("b")
    world.beat(first, names_tasks=False)
    world.beat(first)
    group, mine = world.streams_group, sorted(first.active["0"])[0]
    other = 1 - mine
    kept, lost = TopicPartition("lines", mine), TopicPartition("lines", other)

    def fault(member: str, epoch: int, partition: TopicPartition, version: int = 9) -> ErrorCode:
        return group.commit_fault(Committer(member, None, epoch, version), [partition])

    assert fault("a", first.epoch, lost) is ErrorCode.NONE, "Kafka trusts the current epoch"
    assert fault("a", first.epoch - 1, kept) is ErrorCode.NONE
    assert fault("a", first.epoch - 1, lost) is ErrorCode.STALE_MEMBER_EPOCH
    assert fault("a", first.epoch + 1, kept) is ErrorCode.STALE_MEMBER_EPOCH
    assert fault("a", 1, kept) is ErrorCode.STALE_MEMBER_EPOCH
    assert fault("x", first.epoch, kept) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fault("", -1, kept) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fault("a", first.epoch, kept, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert group.fetch_fault("a", first.epoch) is ErrorCode.NONE
    assert group.fetch_fault("a", first.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.fetch_fault(None, -1) is ErrorCode.NONE


def test_a_deleted_group_leaves_nothing_in_the_log() -> None:
    world = world_with_topics()
    member = world.enter("a")
    assert world.coordinator.delete_group(GROUP, world.now_ms)[0] is ErrorCode.NON_EMPTY_GROUP
    leave(world, member)
    error, actions = world.coordinator.delete_group(GROUP, world.now_ms)
    world.carry_out(actions)
    assert error is ErrorCode.NONE
    left = dict(world.log)
    assert set(left.values()) == {None}
    world.restart()
    assert world.coordinator.overview()[1] == []


def test_a_group_is_described() -> None:
    world = world_with_topics()
    member = world.enter("a", client_tags=[Request.KeyValue(key="zone", value="z")])
    described = world.coordinator.streams.describe(GROUP)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)
    (one,) = described.members
    assert [(each.subtopology_id, each.partitions) for each in one.assignment.active_tasks] == [
        ("0", [0, 1]),
        ("1", [0, 1]),
    ]
    assert one.target_assignment.active_tasks == one.assignment.active_tasks
    assert (one.member_epoch, one.process_id, one.client_host) == (member.epoch, "a", "/127.0.0.1")
    assert described.topology is not None and described.topology.subtopologies is not None
    assert [each.partitions for each in described.topology.subtopologies[1].state_changelog_topics] == [2]
    assert world.coordinator.streams.describe("missing").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_answer_waits_for_the_writes_on_which_it_rests() -> None:
    world = world_with_topics()
    member = world.enter("a")
    count = len(member.answers)
    world.set_log("holds")
    world.send(Member("b", "b"), process_id="b", rebalance_timeout_ms=9, topology=world.topology, active_tasks=[],
               standby_tasks=[], warmup_tasks=[])  # fmt: skip
    world.send(member)
    assert len(member.answers) == count
    world.set_log("writes")
    assert len(member.answers) == count + 1


def test_a_failed_write_is_an_error_and_the_next_one_has_everything() -> None:
    world = world_with_topics()
    first = world.enter("a")
    world.set_log("fails", "NOT_ENOUGH_REPLICAS")
    second = world.enter("b")
    assert second.answers[-1].response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    leave_answer = Member("b", "b", -1)
    world.send(leave_answer)
    assert leave_answer.answers[-1].response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.set_log("writes")
    world.settle(first)
    expected = state_of(world)
    world.restart()
    assert state_of(world) == expected
    assert list(world.streams_group.members) == ["a"]


def state_of(world: StreamsWorld) -> Any:
    group = world.streams_group
    return (group.epoch, group.assignment_epoch, group.validated_topology_epoch, group.topology, group.members,
            group.targets, group.metadata_hash, group.assignment_configs)  # fmt: skip


def owners(members: dict[str, Member]) -> Counter[str]:
    return Counter(task for each in members.values() for task in each.tasks)


@pytest.mark.parametrize("seed", range(30))
def test_no_task_has_two_owners_whatever_happens(seed: int) -> None:
    """Members come, go, restart and fall silent; topics grow; writes fail; coordinators change."""
    rng = random.Random(seed)
    world = world_with_topics(
        streams_standby_replicas=rng.randrange(3), streams_assignment_interval_ms=rng.choice((0, 500))
    )
    members: dict[str, Member] = {}
    for step in range(150):
        world.now_ms += rng.randrange(400)
        world.pass_time(world.now_ms)
        event = rng.random()
        if event < 0.08 and len(members) < 6:
            name = f"m{step}"
            members[name] = world.enter(name, f"p{rng.randrange(3)}")
        elif event < 0.12 and members:
            leaving = members.pop(rng.choice(sorted(members)))
            leaving.epoch = -1
            world.send(leaving)
        elif event < 0.15 and members:
            world.reenter(members[rng.choice(sorted(members))])
        elif event < 0.17:
            world.restart()
        elif event < 0.19:
            world.set_log("fails", "NOT_ENOUGH_REPLICAS")
        elif event < 0.4:
            world.set_log("writes")
        if members:
            beating = members[rng.choice(sorted(members))]
            answer = world.beat(beating, names_tasks=rng.random() < 0.7)
            if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                world.reenter(beating)
        assert all(count == 1 for count in owners(members).values()), (seed, step)
    world.set_log("writes")
    world.pass_time(world.now_ms + 46_000)  # those that are silent now come back
    for each in members.values():
        world.reenter(each)
    world.now_ms += 1_000
    if members:
        world.settle(*members.values())
        assert owners(members) == Counter(EVERY_TASK)
        expected = state_of(world)
        world.restart()
        assert state_of(world) == expected
        assert m.StreamsGroupDescribeResponse(groups=[world.coordinator.streams.describe(GROUP)]).encode(0)
