"""Consumer groups of KIP-848: members join, reconcile, fall silent, and come back, beside Apache Kafka's semantics."""

from dataclasses import replace

from headrace.coordinators.groups.consumer.assigning import Assigning, ToAssign
from headrace.coordinators.groups.consumer.heartbeat import Resolving
from headrace.coordinators.groups.consumer.members import MemberState
from headrace.coordinators.groups.group import Committer
from headrace.errors import ErrorCode
from headrace.limits import ASSIGNED_IN_PLACE_MAX, GROUP_BATCH_BYTES_MAX, SUBSCRIBED_TOPICS_MAX
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests.coordinators.groups.consumer.consumers import CONFIG, GROUP, Consumer, World, beat_all, state_of, topic
from tests.coordinators.groups.scenario import GivenTopics


def two(world: World) -> tuple[Consumer, Consumer]:
    """Two members that share four partitions."""
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    beat_all((a, b))
    assert (a.partitions(), b.partitions()) == ([0, 1], [2, 3])
    return a, b


def test_a_member_alone_owns_everything_in_its_first_answer() -> None:
    world = World()
    a = Consumer(world, "a")
    answer = a.join()
    assert (answer.member_epoch, a.partitions()) == (2, [0, 1, 2, 3])
    assert world.describe().group_state == "Stable"
    assert a.beat().assignment is None
    assert len(world.log) == 5, "subscription, group epoch, target, its epoch, and the member's partitions"


def test_a_partition_moves_only_when_its_owner_says_that_it_has_given_it_up() -> None:
    world = World()
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    a.is_quiet = True
    b.join()
    assert (b.epoch, b.partitions()) == (3, [])
    assert world.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    told = a.beat()
    assert (told.member_epoch, [each.partitions for each in told.assignment.topic_partitions]) == (2, [[0, 1]])
    a.beat()
    b.beat()
    assert b.partitions() == [], "the owner still reports them"
    assert world.describe().group_state == "Reconciling"
    a.is_quiet, a.owned = False, {world.topics.by_name("t").topic_id: [0, 1]}  # type: ignore[union-attr]
    assert a.beat().member_epoch == 3
    b.beat()
    assert b.partitions() == [2, 3]
    assert world.describe().group_state == "Stable"


def test_a_member_may_report_a_topic_in_several_parts() -> None:
    world = World()
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    a.beat()
    owned, part = a.owned, m.ConsumerGroupHeartbeatRequest.TopicPartitions
    ((topic_id, _),) = owned.items()
    request = m.ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="a",
        member_epoch=a.epoch,
        topic_partitions=[part(topic_id=topic_id, partitions=each) for each in ([2, 3], [0, 1])],
    )
    assert world.ask(request).member_epoch == 2, "it has not given up anything"
    b.beat()
    assert b.partitions() == []


def test_a_member_that_keeps_what_it_must_give_up_is_removed_after_its_rebalance_timeout() -> None:
    world = World()
    a, b = Consumer(world, "a", rebalance_ms=10_000), Consumer(world, "b")
    a.join()
    b.join()
    a.is_quiet = True
    for _ in range(3):
        a.beat()
        world.pass_time(4_000)
    assert "a" not in world.group.members
    b.beat()
    b.beat()
    assert b.partitions() == [0, 1, 2, 3]
    assert a.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_at_the_end_of_its_session() -> None:
    world = World()
    _, b = two(world)
    world.pass_time(30_000)
    b.beat()
    world.pass_time(30_000)
    assert list(world.group.members) == ["b"]
    b.beat()
    assert b.partitions() == [0, 1, 2, 3]


def test_a_new_coordinator_keeps_every_member_and_its_partitions() -> None:
    world = World()
    a, b = two(world)
    before = state_of(world.group)
    world.fail_over()
    assert state_of(world.group) == before
    for each in (a, b):
        answer = each.beat()
        assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, None)
    world.pass_time(50_000)
    assert world.group.is_empty, "sessions go on at the new coordinator"


def test_epochs_that_are_not_the_members_fence_it() -> None:
    world = World()
    a = Consumer(world, "a")
    a.join()
    for epoch in (7, 1):
        answer = world.ask(m.ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=epoch))
        assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert a.beat().error_code == ErrorCode.NONE


def test_a_lost_answer_with_a_new_epoch_does_not_fence() -> None:
    world = World()
    _, b = two(world)
    Consumer(world, "c").join()
    owned, epoch = dict(b.owned), b.epoch
    assert b.beat().member_epoch == epoch, "it gives up a partition first"
    b.beat()
    assert b.epoch == epoch + 1
    b.epoch = epoch
    assert b.beat().error_code == ErrorCode.NONE
    b.epoch, b.owned = epoch, owned
    assert b.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH, "it owns more than it is assigned"


def test_a_static_member_comes_back_to_its_partitions() -> None:
    world = World()
    a, b = Consumer(world, "a", instance_id="one"), Consumer(world, "b")
    a.join()
    b.join()
    beat_all((a, b))
    before, epoch = a.partitions(), world.group.epoch
    again = Consumer(world, "a2", instance_id="one")
    assert again.join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    a.leave(-2)
    assert b.beat().assignment is None, "its partitions wait for it"
    assert again.join().error_code == ErrorCode.NONE
    assert (again.partitions(), world.group.epoch) == (before, epoch)
    a.epoch = epoch
    assert a.beat().error_code == ErrorCode.FENCED_INSTANCE_ID
    again.leave(-2)
    world.pass_time(50_000)
    assert "a2" not in world.group.members, "its session ends although it has left"


def test_the_deadlines_of_a_replaced_member_harm_nobody() -> None:
    world = World()
    a, again = Consumer(world, "a", instance_id="one"), Consumer(world, "a2", instance_id="one")
    a.join()
    a.leave(-2)
    world.pass_time(1_000)
    again.join()
    world.pass_time(44_500)
    assert list(world.group.members) == ["a2"]
    again.leave()
    other = Consumer(world, "b", instance_id="two")
    other.join()
    other.leave(-2)
    Consumer(world, "b2", instance_id="two").join()
    Consumer(world, "b2", instance_id="two").leave()
    error, actions = world.coordinator.delete_group(GROUP, world.now_ms)
    world.run(actions)
    assert error is ErrorCode.NONE
    world.pass_time(100_000)


def test_a_full_group_takes_no_further_member() -> None:
    world = World(replace(CONFIG, consumer_group_max_size=2))
    two(world)
    answer = Consumer(world, "c").join()
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert answer.error_message == "The consumer group has reached its maximum capacity of 2 members."


def test_topics_that_appear_grow_and_go_lead_to_new_assignments() -> None:
    world = World()
    a = Consumer(world, "a", topics=("t", "later"))
    a.join()
    world.topics.put(topic("later", 2))
    assert a.beat().assignment is None, "nobody has said so"
    world.run(world.coordinator.topics_changed({"later"}, world.now_ms))
    a.beat()
    assert (a.partitions("t"), a.partitions("later")) == ([0, 1, 2, 3], [0, 1])
    world.topics.put(topic("t", 6))
    world.run(world.coordinator.topics_changed({"t"}, world.now_ms))
    a.beat()
    assert a.partitions("t") == [0, 1, 2, 3, 4, 5]
    world.topics.put(gone=["later"])
    world.run(world.coordinator.topics_changed({"later"}, world.now_ms))
    beat_all([a], 2)
    assert list(a.owned) == [topic("t", 6).topic_id]


def test_a_regular_expression_is_resolved_off_the_loop_and_again_for_a_new_topic() -> None:
    world = World()
    a = Consumer(world, "a", topics=(), regex="t.*")
    assert a.join().assignment.topic_partitions == []
    world.compute()
    a.beat()
    assert a.partitions() == [0, 1, 2, 3]
    world.topics.put(topic("t2", 1), topic("u", 1))
    a.beat()
    assert not world.effects, "not within ten seconds"
    world.pass_time(10_001)
    a.beat()
    world.compute()
    a.beat()
    assert (a.partitions("t2"), a.partitions("u")) == ([0], [])
    world.fail_over()
    assert world.group.resolved["t.*"].topics == {"t", "t2"}
    bad = Consumer(world, "b", topics=(), regex="[").join()
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    a.leave()
    assert not world.group.resolved


def test_answers_wait_for_the_write_that_they_depend_on() -> None:
    world = World(holds=True)
    a = Consumer(world, "a")
    assert a.join() is None
    again = Consumer(world, "a")
    again.epoch = 2
    assert again.beat() is None, "it must not learn of an epoch that may be lost"
    world.answers.clear()
    world.settle()
    assert [each.member_epoch for each in world.answers] == [2, 2]


def test_a_write_that_the_log_refuses_changes_nothing() -> None:
    world = World()
    a, _ = two(world)
    before = state_of(world.group)
    world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert Consumer(world, "c").join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert a.leave().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert state_of(world.group) == before
    world.failure = ErrorCode.NONE
    world.pass_time(50_000)
    assert world.group.is_empty, "the sessions of those that did not leave end"


def test_a_group_whose_first_write_fails_does_not_exist() -> None:
    world = World()
    world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert Consumer(world, "a").join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.coordinator.overview()[1] == []


def many_topics() -> World:
    """A world where the records of a member that reads everything are more than a batch."""
    return World(topics=GivenTopics(*(topic(f"{'t' * 245}{number:04}", 1) for number in range(990))))


def test_the_records_of_a_large_event_go_as_several_batches() -> None:
    world = many_topics()
    names = tuple(world.topics.names())
    world.holds = True
    largest = 0
    for member_id in ("a", "b", "c"):
        Consumer(world, member_id, names).join()
        assert not world.answers, "it waits for the last batch"
        while world.held:
            append = world.held.pop(0)
            largest = max(largest, sum(len(key) + len(value or b"") for key, value in append.records))
            world.end(append)
        assert [each.error_code for each in world.answers] == [ErrorCode.NONE]
    assert largest <= GROUP_BATCH_BYTES_MAX
    assert state_of(world.group) == state_of(World(topics=world.topics, log=list(world.log)).group)


def test_what_the_log_has_of_a_large_event_stays_if_it_refuses_the_rest() -> None:
    world = many_topics()
    names = tuple(world.topics.names())
    Consumer(world, "a", names).join()
    world.holds = True
    Consumer(world, "b", names).join()
    first = world.held.pop(0)
    world.end(first)
    (second,) = world.held
    world.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert second.records
    assert [each.error_code for each in world.answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert state_of(world.group) == state_of(World(topics=world.topics, log=list(world.log)).group)


def test_what_waits_behind_a_refused_write_is_refused_too() -> None:
    world = World()
    a, _ = two(world)
    before, log = state_of(world.group), list(world.log)
    world.holds = True
    a.leave()
    Consumer(world, "c").join()
    world.answers.clear()
    assert len(world.held) == 1, "one batch at a time"
    world.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert [each.error_code for each in world.answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert (state_of(world.group), world.log) == (before, log), "it was decided upon the first: c got what a left"


def test_events_behind_a_write_go_as_one_batch() -> None:
    world = World(holds=True)
    consumers = [Consumer(world, f"{number}") for number in range(20)]
    for each in consumers:
        each.join()
    (first,) = world.held
    world.held = []
    world.answers.clear()
    world.end(first)
    (second,) = world.held
    assert len(second.records) > 19 * 3
    world.settle()
    assert len(world.group.members) == 20
    assert state_of(world.group) == state_of(World(log=list(world.log)).group)


def test_a_group_is_deleted_with_what_is_not_written_yet() -> None:
    world = World()
    a, b = two(world)
    world.holds = True
    a.leave()
    b.leave()
    error, actions = world.coordinator.delete_group(GROUP, world.now_ms)
    assert error is ErrorCode.NONE
    world.run(actions)
    world.settle()
    assert World(log=list(world.log)).coordinator.overview()[1] == []


def test_a_write_that_timed_out_is_in_the_log_and_stays() -> None:
    world = World()
    world.failure = ErrorCode.REQUEST_TIMED_OUT
    assert Consumer(world, "a").join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert state_of(world.group) == state_of(World(log=list(world.log)).group)


def test_the_assignment_of_a_large_group_is_computed_off_the_loop() -> None:
    world = World()
    world.topics.put(topic("t", 2000))
    a = Consumer(world, "a")
    assert a.join().assignment.topic_partitions == []
    (assigning,) = world.effects
    assert isinstance(assigning, Assigning)
    b = Consumer(world, "b")
    b.join()
    assert world.effects == [assigning], "one at a time"
    world.compute()
    a.beat()
    assert len(a.partitions()) == 2000, "for the epoch in which there was no other member"
    beat_all((a, b))
    assert (len(a.partitions()), len(b.partitions())) == (1000, 1000)


def test_a_member_of_many_topics_comes_to_own_them_step_by_step() -> None:
    """Reading ten thousand topics for the assignor takes a turn of its own, and so does each step of a member."""
    names = [f"topic-{number:05}" for number in range(ASSIGNED_IN_PLACE_MAX + 1)]
    world = World(topics=GivenTopics(*(topic(each, 1) for each in names)))
    a, b = Consumer(world, "a", topics=tuple(names)), Consumer(world, "b", topics=tuple(names))
    a.join()
    (to_assign,) = world.effects
    assert isinstance(to_assign, ToAssign)
    b.join()
    assert world.effects == [to_assign], "one at a time"
    beat_all((a, b))
    assert sorted((len(a.owned), len(b.owned))) == [len(names) // 2, len(names) // 2 + 1]
    assert a.owned.keys().isdisjoint(b.owned)
    assert state_of(world.group) == state_of(World(log=list(world.log), topics=world.topics).group)


def test_a_late_assignment_is_dropped_by_a_coordinator_that_no_longer_serves_the_group() -> None:
    world = World()
    world.topics.put(topic("t", 2000))
    Consumer(world, "a").join()
    (assigning,) = world.effects
    world.effects.clear()
    world.fail_over()
    lines = len(world.log)
    assert isinstance(assigning, Assigning)
    world.run(world.coordinator.consumer.assigned(assigning, assigning.compute(), world.now_ms))
    assert len(world.log) == lines


def test_a_static_member_that_came_back_meanwhile_gets_what_was_computed_for_it() -> None:
    """Its return leads to no new epoch, so that no other assignment would follow."""
    world = World()
    world.topics.put(topic("t", 2000))
    a, b = Consumer(world, "a", instance_id="one"), Consumer(world, "b")
    a.join()
    world.compute()
    a.beat()
    b.join()
    a.leave(-2)
    again = Consumer(world, "a2", instance_id="one")
    again.join()
    world.compute()
    beat_all((again, b))
    assert (len(again.partitions()), len(b.partitions())) == (1000, 1000)


def test_an_assignment_for_a_change_that_was_taken_back_is_dropped() -> None:
    """Its epoch is used again, with other members."""
    world = World()
    world.topics.put(topic("t", 2000))
    a, b, c = (Consumer(world, each) for each in "abc")
    a.join()
    world.compute()
    a.beat()
    world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert b.join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.failure = ErrorCode.NONE
    c.join()
    for _ in range(3):
        world.compute()
        beat_all((a, c))
    assert (len(a.partitions()), len(c.partitions())) == (1000, 1000)


def test_assignments_follow_each_other_after_the_interval_only() -> None:
    world = World(replace(CONFIG, consumer_group_assignment_interval_ms=1000), now_ms=5_000)
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    assert b.join().member_epoch == 2, "the epoch of the assignment there is"
    assert world.describe().group_state == "Assigning"
    world.pass_time(1_000)
    beat_all((a, b))
    assert (a.partitions(), b.partitions()) == ([0, 1], [2, 3])


def test_commits_need_an_epoch_in_which_the_member_owned_the_partition() -> None:
    world = World()
    a, _ = two(world)
    epoch = a.epoch

    def fault(epoch: int, partition: int, member_id: str = "a", version: int = 9) -> ErrorCode:
        committer = Committer(member_id, None, epoch, version)
        return world.group.commit_fault(committer, [TopicPartition("t", partition)])

    assert fault(epoch, 0) is ErrorCode.NONE
    assert fault(epoch, 3) is ErrorCode.NONE, "in its epoch a member may commit what others own, as in Apache Kafka"
    assert fault(epoch - 1, 0) is ErrorCode.NONE, "it owns the partition since then"
    assert fault(epoch - 1, 3) is ErrorCode.STALE_MEMBER_EPOCH
    assert fault(epoch + 1, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert fault(epoch, 0, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert fault(epoch, 0, "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert fault(-1, 0, "") is ErrorCode.UNKNOWN_MEMBER_ID, "a tool must not commit while members are there"
    assert world.group.fetch_fault("a", epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.group.fetch_fault(None, -1) is ErrorCode.NONE


def test_a_commit_by_topic_id_stores_it() -> None:
    world = World()
    a = Consumer(world, "a")
    a.join()
    request = m.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=a.epoch,
        member_id="a",
        topics=[
            m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t",
                topic_id=bytes(range(16)),
                partitions=[m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
        ],
    )
    world.run(world.coordinator.commit(request, 10, lambda _: None, 0))
    world.fail_over()
    assert world.group.offsets.committed[TopicPartition("t", 0)].topic_id == bytes(range(16))


def test_a_deleted_group_leaves_tombstones_only() -> None:
    world = World()
    a = Consumer(world, "a", topics=("t",), regex="t.*")
    a.join()
    world.compute()
    assert world.coordinator.delete_group(GROUP, world.now_ms)[0] is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    error, actions = world.coordinator.delete_group(GROUP, world.now_ms)
    world.run(actions)
    assert error is ErrorCode.NONE
    assert {key: value for key, value in world.log if value is not None and dict(world.log)[key] is not None} == {}
    assert World(log=list(world.log)).coordinator.overview()[1] == []


def test_a_resolution_that_fails_is_tried_again_after_the_pause_only() -> None:
    for fails_to_write in (False, True):
        world = World()
        a = Consumer(world, "a", topics=(), regex="t.*")
        a.join()
        (resolving,) = world.effects
        assert isinstance(resolving, Resolving)
        world.effects.clear()
        if fails_to_write:
            world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
        found = {"t.*": frozenset({"t"})} if fails_to_write else None
        world.run(world.coordinator.consumer.resolved(resolving, found, world.now_ms))
        world.failure = ErrorCode.NONE
        assert not world.group.resolved
        a.beat()
        assert not world.effects
        world.pass_time(10_001)
        a.beat()
        world.compute()
        assert world.group.resolved["t.*"].topics == {"t"}


def test_a_member_that_comes_back_at_once_has_its_expression_resolved_at_once() -> None:
    world = World()
    a = Consumer(world, "a", topics=(), regex="t.*")
    a.join()
    world.compute()
    a.leave()
    Consumer(world, "b", topics=(), regex="t.*").join()
    world.compute()
    assert world.group.resolved["t.*"].topics == {"t"}


def test_a_subscription_to_too_many_names_is_refused() -> None:
    world = World()
    names = tuple(f"u{number}" for number in range(SUBSCRIBED_TOPICS_MAX + 1))
    answer = Consumer(world, "a", names).join()
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == "10001 topics are subscribed by name; a member may subscribe to 10000."
    assert Consumer(world, "a", names[1:]).join().error_code == ErrorCode.NONE
