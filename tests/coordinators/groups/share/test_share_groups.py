"""Share groups: members, epochs, assignments, and the topics that have share state."""

from collections import Counter

import pytest

from headrace.coordinators.groups.group import GroupKind
from headrace.coordinators.groups.share.results import Altered, ToDelete
from headrace.errors import ErrorCode
from headrace.limits import ASSIGNED_IN_PLACE_MAX, SUBSCRIBED_TOPICS_MAX
from headrace.protocol import messages as m
from tests.coordinators.groups.share.world import GROUP, T, U, World, topic


def test_a_member_joins_and_gets_partitions_once_they_are_initialized() -> None:
    world = World()
    joined = world.beat("a", "t")
    assert joined.error_code == ErrorCode.NONE
    assert joined.assignment is not None and joined.assignment.topic_partitions == []
    assert (joined.member_epoch, joined.heartbeat_interval_ms) == (2, 5000)
    assert world.asked[0].partitions == {T: frozenset(range(4))} and world.asked[0].state_epoch == 2
    then = world.beat("a")
    assert then.assignment is not None
    assert [(each.topic_id, each.partitions) for each in then.assignment.topic_partitions] == [(T, [0, 1, 2, 3])]
    assert then.member_epoch == 3
    assert world.beat("a").assignment is None
    assert len(world.asked) == 1


def test_members_share_partitions() -> None:
    world = World()
    for member in "abcdef":
        world.beat(member, "t")
    assigned = world.settle(*"abcdef")
    assert all(assigned.values())
    counts = Counter(each for one in assigned.values() for each in one[T])
    assert counts.keys() == {0, 1, 2, 3} and max(counts.values()) == 2
    assert len({world.epochs[each] for each in "abcdef"}) == 1


@pytest.mark.parametrize("is_leaving", [True, False])
def test_the_partitions_of_a_member_that_goes_have_others(is_leaving: bool) -> None:
    world = World()
    world.beat("a", "t")
    world.beat("b", "t")
    assert world.settle("a", "b") != {"a": {}, "b": {}}
    if is_leaving:
        assert world.beat("b", epoch=-1).member_epoch == -1
    else:
        world.tick(30_000)
        world.beat("a")
        world.tick(20_000)
    assert set(world.group.members) == {"a"}
    assert world.settle("a") == {"a": {T: [0, 1, 2, 3]}}
    assert world.beat("b").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_without_members_stays() -> None:
    world = World()
    world.beat("a", "t")
    world.beat("a", epoch=-1)
    assert world.coordinator.share.describe(GROUP).group_state == "Empty"
    world.tick(8 * 86_400_000)
    world.start()
    described = world.coordinator.share.describe(GROUP)
    assert (described.group_state, described.members) == ("Empty", [])


@pytest.mark.parametrize("is_after_failover", [False, True])
def test_a_description_tells_all(is_after_failover: bool) -> None:
    world = World()
    world.beat("b", "t", "u")
    world.settle("b")
    if is_after_failover:
        world.start()
    described = world.coordinator.share.describe(GROUP)
    (member,) = described.members
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    assert described.group_epoch == described.assignment_epoch == member.member_epoch == 3
    assert member.subscribed_topic_names == ["t", "u"]
    assert (member.client_id, member.client_host, member.rack_id) == ("client", "/host", None)
    assert {(each.topic_name, tuple(each.partitions)) for each in member.assignment.topic_partitions} == {
        ("t", (0, 1, 2, 3)),
        ("u", (0, 1)),
    }
    (overview,) = world.coordinator.overview()[1]
    assert (overview.protocol_type, overview.state, overview.kind) == ("share", "Stable", GroupKind.SHARE)


def test_a_coordinator_that_takes_over_goes_on() -> None:
    world = World()
    world.beat("a", "t")
    world.beat("b", "t")
    before = world.settle("a", "b")
    world.start()
    assert world.settle("a", "b") == before
    world.tick(45_000)
    assert world.group.is_empty


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
    ],
)
def test_heartbeats_that_make_no_sense_are_refused(changes: dict[str, object], message: str) -> None:
    world = World()
    request = m.ShareGroupHeartbeatRequest(group_id=GROUP, member_id="a", subscribed_topic_names=["t"])
    for name, value in changes.items():
        setattr(request, name, value)
    answers: list[object] = []
    world.run(world.coordinator.share.heartbeat(request, "", "", answers.append, 0))
    (beat,) = answers
    assert isinstance(beat, tuple)
    assert (beat[0].error_code, beat[0].error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert world.log == []


def test_epochs_of_another_time_are_fenced() -> None:
    world = World()
    world.beat("a", "t")
    world.settle("a")
    epoch = world.epochs["a"]
    assert world.beat("a", epoch=epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("a", epoch=epoch - 1).error_code == ErrorCode.NONE, "its answer may have been lost"
    assert world.beat("a", epoch=epoch - 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("a", "t", epoch=0).error_code == ErrorCode.NONE
    assert world.beat("x", epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.send("x", 1, group="other")[0].response.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_full_group_takes_no_more_members() -> None:
    world = World({"group.share.max.size": "2"})
    world.beat("a", "t")
    world.beat("b", "t")
    assert world.beat("c", "t").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.beat("b", "u").error_code == ErrorCode.NONE


def test_a_changed_subscription_takes_effect_at_once() -> None:
    world = World()
    world.beat("a", "t", "u")
    world.settle("a")
    changed = world.beat("a", "u")
    assert changed.assignment is not None
    assert {each.topic_id for each in changed.assignment.topic_partitions} == {U}


def test_new_partitions_and_topics_are_initialized_and_assigned() -> None:
    world = World()
    world.beat("a", "t", "v")
    world.settle("a")
    world.topics.put(topic("t", 6), topic("v", 1))
    world.run(world.coordinator.topics_changed({"t", "v"}, world.now_ms))
    assert world.settle("a") == {"a": {T: [0, 1, 2, 3, 4, 5], b"v" * 16: [0]}}
    assert world.asked[-1].partitions == {T: frozenset({4, 5}), b"v" * 16: frozenset({0})}


def test_deleted_topics_are_forgotten() -> None:
    world = World()
    world.beat("a", "t", "u")
    world.settle("a")
    world.topics.put(gone=["t"])
    world.run(world.coordinator.forget_topics({"t"}, world.now_ms))
    world.run(world.coordinator.topics_changed({"t"}, world.now_ms))
    assert world.settle("a") == {"a": {U: [0, 1]}}
    world.start()
    assert world.coordinator.share.initialized_partitions(GROUP) == (ErrorCode.NONE, {U: frozenset({0, 1})})


# Initialization


def test_initialization_is_tried_again_after_a_while() -> None:
    world = World(initializes=False)
    world.beat("a", "t")
    world.beat("a")
    assert len(world.asked) == 1
    world.tick(30_000)
    world.beat("a")
    assert len(world.asked) == 2 and world.asked[1].partitions == world.asked[0].partitions


def test_a_failed_initialization_is_tried_again_with_the_next_heartbeat() -> None:
    world = World(initializes=False)
    world.beat("a", "t")
    world.run(world.coordinator.share.not_initialized(GROUP, world.asked[0].partitions, world.now_ms))
    world.initializes = True
    world.beat("a")
    assert len(world.asked) == 2
    assert world.settle("a") == {"a": {T: [0, 1, 2, 3]}}


def test_what_the_persister_says_of_a_group_that_is_gone_changes_nothing() -> None:
    world = World()
    world.run(world.coordinator.share.initialized(GROUP, {T: frozenset({0})}, 0))
    world.run(world.coordinator.share.not_initialized(GROUP, {T: frozenset({0})}, 0))
    assert world.log == []


# Large groups


def _large() -> World:
    world = World()
    world.topics.put(topic("p", ASSIGNED_IN_PLACE_MAX))
    world.beat("a", "p")
    world.beat("a")
    return world


def test_the_assignment_of_a_large_group_is_computed_elsewhere() -> None:
    world = _large()
    assert len(world.computing) == 1
    world.beat("b", "p")
    assert len(world.computing) == 1, "one at a time"
    world.computed()
    assert world.group.target_epoch == 2 < world.group.epoch
    world.beat("b")
    world.computed()
    world.settle("a", "b")
    assert world.computing == []
    assert [len(each[b"p" * 16]) for each in world.settle("a", "b").values()] == [ASSIGNED_IN_PLACE_MAX // 2] * 2


def test_an_assignment_that_fails_is_computed_again() -> None:
    world = _large()
    world.computed(fails=True)
    world.beat("a")
    world.computed()
    assert len(world.settle("a")["a"][b"p" * 16]) == ASSIGNED_IN_PLACE_MAX


def test_an_assignment_comes_too_late_for_a_group_that_moved() -> None:
    world = _large()
    world.start()
    before = len(world.log)
    world.computed()
    assert len(world.log) == before


# Writes


def test_a_heartbeat_is_answered_when_it_is_stored() -> None:
    world = World()
    world.holds_writes = True
    answers = world.send("a", 0, "t")
    assert answers == []
    world.write_ends()
    assert answers[0].response.error_code == ErrorCode.NONE


def test_a_heartbeat_that_cannot_be_stored_changes_nothing() -> None:
    world = World()
    world.holds_writes = True
    answers = world.send("a", 0, "t")
    world.write_ends(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert answers[0].response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group.members == {} and world.group.epoch == 1
    world.holds_writes = False
    assert world.beat("a", "t").member_epoch == 2
    assert world.settle("a") == {"a": {T: [0, 1, 2, 3]}}


# Administration


def _asked(world: World, name: str, *arguments: object) -> object:
    answers: list[object] = []
    world.run(getattr(world.coordinator.share, name)(GROUP, *arguments, answers.append, world.now_ms))
    (answer,) = answers
    return answer


def _emptied() -> World:
    world = World()
    world.beat("a", "t", "u")
    world.settle("a")
    world.beat("a", epoch=-1)
    return world


def test_offsets_are_altered_in_a_group_without_members() -> None:
    world = World()
    assert _asked(world, "alter_offsets", {T: frozenset({0, 2})}) == Altered(ErrorCode.NONE, 1)
    world.run(world.coordinator.share.initialized(GROUP, {T: frozenset({0, 2})}, world.now_ms))
    world.start()
    assert world.coordinator.share.initialized_partitions(GROUP)[1] == {T: frozenset({0, 2})}
    world.beat("a", "t")
    assert world.asked[0].partitions == {T: frozenset({1, 3})}
    assert _asked(world, "alter_offsets", {T: frozenset({0})}) == Altered(ErrorCode.NON_EMPTY_GROUP)


def test_each_alteration_of_offsets_has_an_epoch_of_its_own() -> None:
    world = World()
    assert _asked(world, "alter_offsets", {T: frozenset({0})}) == Altered(ErrorCode.NONE, 1)
    assert _asked(world, "alter_offsets", {T: frozenset({0})}) == Altered(ErrorCode.NONE, 2)
    assert _asked(world, "alter_offsets", {U: frozenset({0})}) == Altered(ErrorCode.NONE, 2), "nothing to tell apart"
    world.start()
    assert _asked(world, "alter_offsets", {U: frozenset({0})}) == Altered(ErrorCode.NONE, 3)


def test_offsets_of_topics_are_deleted() -> None:
    world = _emptied()
    to_delete = _asked(world, "delete_offsets", ["t", "x"])
    assert to_delete == ToDelete(ErrorCode.NONE, {T: frozenset(range(4))}, ("x",))
    assert _asked(world, "delete_offsets", ["t"]) == ToDelete(ErrorCode.NONE, {T: frozenset(range(4))}), "once more"
    assert _asked(world, "offsets_deleted", [T]) == ErrorCode.NONE
    assert _asked(world, "delete_offsets", ["t"]) == ToDelete(ErrorCode.NONE, {}, ("t",))
    world.start()
    assert world.coordinator.share.initialized_partitions(GROUP)[1] == {U: frozenset({0, 1})}


def test_a_group_is_deleted_with_its_state() -> None:
    world = _emptied()
    expected = ToDelete(ErrorCode.NONE, {T: frozenset(range(4)), U: frozenset(range(2))})
    assert _asked(world, "begin_deletion") == expected
    assert _asked(world, "begin_deletion") == expected, "the first time may have failed"
    error, actions = world.coordinator.delete_group(GROUP, world.now_ms)
    world.run(actions)
    assert error is ErrorCode.NONE
    assert world.coordinator.kind_of(GROUP) is None
    world.start()
    assert world.coordinator.kind_of(GROUP) is None
    assert set(dict(world.log).values()) == {None}


def test_a_group_with_members_is_neither_deleted_nor_altered() -> None:
    world = World()
    world.beat("a", "t")
    for name, arguments in (("begin_deletion", ()), ("delete_offsets", (["t"],))):
        assert _asked(world, name, *arguments) == ToDelete(ErrorCode.NON_EMPTY_GROUP)
    assert world.coordinator.delete_group(GROUP, 0)[0] is ErrorCode.NON_EMPTY_GROUP


def test_a_share_group_has_no_committed_offsets() -> None:
    world = World()
    world.beat("a", "t")
    assert world.coordinator.fetch_offsets(GROUP, None, False, "a", 1) == (ErrorCode.NONE, [])
    assert world.coordinator.delete_offsets(GROUP, [], 0)[0] is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.coordinator.share.describe("other").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_subscription_to_too_many_names_is_refused() -> None:
    answer = World().beat("a", *(f"u{number}" for number in range(SUBSCRIBED_TOPICS_MAX + 1)), epoch=0)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == "10001 topics are subscribed by name; a member may subscribe to 10000."
