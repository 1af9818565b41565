"""The share coordinator: what each request writes and answers, in which order, and what is found after a failover."""

from itertools import pairwise

import pytest

from headrace.coordinators.runtime import Append
from headrace.coordinators.share_state.persister import (
    InitialState,
    PersisterOutcome,
    SharePartitionKey,
    SharePartitionState,
    StateBatch,
    StateUpdate,
    Summary,
)
from headrace.coordinators.share_state.records import read_record, write_snapshot
from headrace.coordinators.share_state.requests import Prune, ReadState, Request
from headrace.coordinators.share_state.state import ShareState
from headrace.errors import ErrorCode
from headrace.limits import (
    SHARE_STATE_BATCH_BYTES_MAX,
    SHARE_STATE_BATCHES_MAX,
    SHARE_STATE_WAITING_MAX,
    SHARE_STATES_PER_TICK_MAX,
)
from tests.coordinators.share_state.world import KEY, OTHER, PARTITION, SETTINGS, TOPIC, World, update

OK = PersisterOutcome()


def test_an_initialized_share_partition_is_read_after_a_failover() -> None:
    world = World()
    assert world.begin(start_offset=5, state_epoch=2) == OK
    assert world.read(leader_epoch=3) == SharePartitionState(state_epoch=2, start_offset=5)
    assert world.ask(update((5, 9, 2, 1), leader=3, state=2, start=5, done=5)) == OK
    world.fail_over()
    assert world.read(leader_epoch=3) == SharePartitionState(ErrorCode.NONE, None, 2, 5, (StateBatch(5, 9, 2, 1),))
    assert world.summary() == Summary(ErrorCode.NONE, None, 2, 3, 5, 5)


def test_a_repeated_initialization_leaves_a_share_partition_in_use_alone() -> None:
    world = World()
    world.begin(state_epoch=2)
    world.ask(update((0, 9, 2, 1), leader=-1, state=2, start=0, done=10))
    in_use = world.read()
    assert in_use.state_batches == (StateBatch(0, 9, 2, 1),)
    assert world.begin(state_epoch=2) == OK
    assert world.read() == in_use
    assert world.begin(start_offset=5, state_epoch=2) == OK  # an administrator's of before the members came
    assert world.read() == in_use
    assert world.begin(start_offset=5, state_epoch=3) == OK
    assert (world.read().start_offset, world.read().state_batches) == (5, ())
    assert world.begin(state_epoch=4) == OK
    assert world.read() == SharePartitionState(state_epoch=4, start_offset=-1)


def test_a_coordinator_that_was_replaced_does_not_answer_a_leader() -> None:
    world = World()
    world.begin(start_offset=0)
    world.read(leader_epoch=5)
    world.holds_writes = True
    for _ in range(2):
        answer = world.ask(ReadState(5))
        assert answer == [], "it waits until the log has taken a record"
        world.write_ends(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert [each.error for each in answer] == [ErrorCode.NOT_COORDINATOR]


def test_every_so_many_updates_there_is_a_snapshot_of_all() -> None:
    world = World()
    world.begin(start_offset=0)
    for number in range(9):
        assert world.ask(update((number * 10, number * 10, 2, 1), leader=-1, done=number)) == OK
    assert world.kinds == "suuusuuusu"
    last = [each.content for each in world.records if isinstance(each.content, ShareState)][-1]
    assert (last.snapshot_epoch, len(last.state_batches), last.delivery_complete_count) == (2, 8, 7)
    assert [each.content.snapshot_epoch for each in world.records if each.content] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


def test_without_updates_each_write_is_a_snapshot() -> None:
    world = World(settings=SETTINGS._replace(updates_per_snapshot=0))
    world.begin(start_offset=0)
    world.ask(update((0, 0, 2, 1), leader=-1))
    world.ask(update((1, 1, 2, 1), leader=-1))
    assert world.kinds == "sss"
    assert world.read().state_batches == (StateBatch(0, 1, 2, 1),)


def test_a_write_moves_the_start_offset_and_drops_what_is_below() -> None:
    world = World()
    world.begin(start_offset=0)
    world.ask(update((0, 9, 0, 1), (10, 19, 2, 1), leader=-1))
    world.ask(update(start=15, leader=-1, done=5))
    for _ in range(2):
        assert world.read() == SharePartitionState(ErrorCode.NONE, None, 1, 15, (StateBatch(15, 19, 2, 1),))
        world.fail_over()


def test_an_initialization_begins_anew() -> None:
    world = World()
    world.begin(start_offset=0)
    world.read(leader_epoch=4)
    world.ask(update((0, 9, 0, 1), leader=4))
    assert world.begin(start_offset=100, state_epoch=2) == OK
    assert world.summary() == Summary(ErrorCode.NONE, None, 2, 0, 100, 0)
    assert world.read() == SharePartitionState(state_epoch=2, start_offset=100)
    assert world.records[-1].content is not None and world.records[-1].content.snapshot_epoch == 1


def test_without_a_start_offset_there_is_no_count_of_finished_records() -> None:
    world = World()
    world.begin()
    assert world.summary() == Summary(state_epoch=1, start_offset=-1, delivery_complete_count=-1)


def test_a_read_of_a_leader_stores_its_epoch() -> None:
    world = World()
    world.begin(start_offset=0)
    for epoch in (-1, 5, 5, -1):
        assert world.read(leader_epoch=epoch).error is ErrorCode.NONE
    assert world.kinds == "suu"
    assert world.summary().leader_epoch == 5


@pytest.mark.parametrize("is_after_failover", [False, True])
def test_older_epochs_are_fenced(is_after_failover: bool) -> None:
    world = World()
    world.begin(start_offset=0, state_epoch=3)
    world.read(leader_epoch=5)
    if is_after_failover:
        world.fail_over()
    assert world.ask(update(leader=4, state=3)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert world.read(leader_epoch=4).error is ErrorCode.FENCED_LEADER_EPOCH
    assert world.ask(update(leader=5, state=2)).error is ErrorCode.FENCED_STATE_EPOCH
    assert world.begin(start_offset=9, state_epoch=2).error is ErrorCode.FENCED_STATE_EPOCH
    assert world.kinds == "su"
    assert world.ask(update(leader=-1, state=-1)) == OK
    assert world.ask(update(leader=6, state=4)) == OK


def test_the_leader_epoch_of_before_an_initialization_still_fences() -> None:
    world = World()
    world.begin(start_offset=0)
    world.read(leader_epoch=5)
    world.begin(start_offset=9, state_epoch=2)
    assert world.ask(update(leader=4, state=2)).error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_share_partition_that_was_not_initialized_is_neither_read_nor_written() -> None:
    world = World()
    for what in (update(), ReadState(1)):
        assert world.ask(what).error is ErrorCode.INVALID_REQUEST
    assert world.summary() == Summary()
    assert world.delete() == OK
    assert world.kinds == ""


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (SharePartitionKey("queue", TOPIC, -1), ErrorCode.INVALID_REQUEST),
        (SharePartitionKey("queue", TOPIC, 4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (SharePartitionKey("queue", b"x" * 16, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_partitions_that_do_not_exist_are_refused(key: SharePartitionKey, error: ErrorCode) -> None:
    world = World()
    assert world.begin(key=key).error is error
    assert world.delete(key=key).error is error
    assert world.summary(key=key).error is error


def test_a_deleted_share_partition_has_no_state() -> None:
    world = World()
    world.begin(start_offset=0)
    assert world.delete() == OK
    assert world.summary() == Summary()
    world.fail_over()
    assert world.read().error is ErrorCode.INVALID_REQUEST
    assert world.coordinator.share_partitions == 0
    assert world.begin(start_offset=0, state_epoch=0) == OK


# One record of a share partition at a time


def test_requests_wait_for_the_record_that_is_being_written() -> None:
    world = World()
    world.holds_writes = True
    begun = world.begin(start_offset=0)
    written = world.ask(update((0, 4, 2, 1), leader=-1))
    read, summary = world.read(), world.summary()
    assert (begun, written, read, summary) == ([], [], [], [])
    assert len(world.writes) == 1
    world.write_ends()
    assert (begun, written, read) == ([OK], [], [])
    world.write_ends()
    assert written == [OK]
    assert read[0].state_batches == (StateBatch(0, 4, 2, 1),)
    assert summary[0].start_offset == 0
    assert not world.writes


def test_other_share_partitions_do_not_wait() -> None:
    world = World()
    world.holds_writes = True
    world.begin(start_offset=0)
    other = KEY._replace(partition=1)
    world.begin(start_offset=7, key=other)
    assert len(world.writes) == 2


def test_a_write_that_fails_leaves_the_state_as_it_was() -> None:
    world = World()
    world.begin(start_offset=0)
    world.holds_writes = True
    written = world.ask(update((0, 4, 2, 1), leader=-1))
    world.write_ends(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert [each.error for each in written] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.read().state_batches == ()


def test_a_failed_initialization_leaves_nothing() -> None:
    world = World()
    world.holds_writes = True
    begun, read = world.begin(start_offset=0), world.read()
    world.write_ends(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [each.error for each in begun] == [ErrorCode.NOT_COORDINATOR]
    assert [each.error for each in read] == [ErrorCode.INVALID_REQUEST]
    assert world.coordinator.share_partitions == 0


def test_a_record_in_the_log_counts_though_its_write_timed_out() -> None:
    world = World()
    world.begin(start_offset=0)
    world.holds_writes = True
    written = world.ask(update((0, 4, 2, 1), leader=-1))
    world.write_ends(ErrorCode.REQUEST_TIMED_OUT, is_in_log=True)
    assert [each.error for each in written] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    before = world.read()
    assert before.state_batches == (StateBatch(0, 4, 2, 1),)
    world.holds_writes = False
    world.fail_over()
    assert world.read() == before


def test_a_coordinator_that_loses_its_partition_answers_all_that_wait() -> None:
    world = World()
    world.begin(start_offset=0)
    world.holds_writes = True
    first, second = world.ask(update(leader=-1)), world.read()
    world.coordinator.partitions.release(PARTITION)
    world.run(world.coordinator.unloaded(PARTITION, world.now_ms))
    assert [each.error for each in second] == [ErrorCode.NOT_COORDINATOR]
    world.write_ends(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [each.error for each in first] == [ErrorCode.NOT_COORDINATOR]
    assert world.read().error is ErrorCode.NOT_COORDINATOR
    assert world.coordinator.share_partitions == 0


def test_a_write_of_an_earlier_term_changes_nothing_in_the_next() -> None:
    world = World()
    world.begin(start_offset=0)
    world.holds_writes = True
    world.ask(update((0, 4, 2, 1), leader=-1))
    world.coordinator.partitions.release(PARTITION)
    world.run(world.coordinator.unloaded(PARTITION, world.now_ms))
    world.load(9)
    late = world.writes.popleft()
    assert late.then is not None
    world.run(world.coordinator.appended(late.then, ErrorCode.NONE, 99, world.now_ms))
    assert world.read().state_batches == ()


def test_while_it_loads_clients_are_told_so() -> None:
    world = World()
    world.coordinator.partitions.release(PARTITION)
    world.run(world.coordinator.unloaded(PARTITION, world.now_ms))
    world.coordinator.partitions.begin(PARTITION, 9)
    assert world.read().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# Periodic work


def test_records_before_the_oldest_needed_snapshot_are_pruned() -> None:
    world = World()
    other = KEY._replace(partition=1)
    world.begin(start_offset=0)  # at 0
    world.begin(start_offset=0, key=other)  # at 1
    for _ in range(4):
        world.ask(update(leader=-1))  # 2, 3, 4, and a snapshot at 5
    world.tick(SETTINGS.prune_interval_ms)
    assert world.pruned == [Prune(PARTITION, 1)]
    world.delete(other)  # at 6
    world.tick(SETTINGS.prune_interval_ms)
    assert world.pruned[-1] == Prune(PARTITION, 5)
    world.delete()  # at 7
    world.tick(SETTINGS.prune_interval_ms)
    assert world.pruned[-1] == Prune(PARTITION, 7)
    world.log[:7] = [(b"\0\7", None)] * 7  # gone
    world.fail_over()
    assert world.coordinator.share_partitions == 0


def test_nothing_is_lost_by_pruning() -> None:
    world = World()
    keys = [KEY._replace(partition=number) for number in range(3)]
    for key in keys:
        world.begin(start_offset=0, key=key)
    for number in range(40):
        world.ask(update((number, number, 2, 1), leader=-1), keys[number % 3])
        world.tick(SETTINGS.prune_interval_ms)
        before = [world.read(key=key) for key in keys]
        if world.pruned:
            world.log[: world.pruned[-1].before_offset] = [(b"\0\7", None)] * world.pruned[-1].before_offset
        world.fail_over()
        assert [world.read(key=key) for key in keys] == before
    assert world.pruned[-1].before_offset > 30


def test_a_share_partition_that_does_not_change_gets_a_new_snapshot_for_the_sake_of_others() -> None:
    world = World()
    quiet = KEY._replace(partition=1)
    world.begin(start_offset=3, key=quiet)
    world.begin(start_offset=0)
    world.tick(SETTINGS.cold_snapshot_interval_ms)
    assert world.kinds == "ssss"
    again = world.records[2].content
    assert isinstance(again, ShareState)
    assert (again.snapshot_epoch, again.created_ms, again.written_ms) == (1, 1_000_000, 1_005_000)
    world.tick(2 * SETTINGS.cold_snapshot_interval_ms)
    assert world.kinds == "ssss", "nothing has changed since"
    assert world.read(key=quiet) == SharePartitionState(state_epoch=1, start_offset=3)


def test_the_state_of_a_deleted_topic_is_removed() -> None:
    world = World()
    kept = KEY._replace(topic_id=OTHER)
    for key in (KEY, KEY._replace(partition=1), KEY._replace(group_id="another"), kept):
        world.begin(start_offset=0, key=key)
    del world.topics[TOPIC]
    world.run(world.coordinator.forget_topics([TOPIC], world.now_ms))
    world.tick(1)
    assert world.kinds == "ssssttt"
    assert world.coordinator.share_partitions == 1
    world.fail_over()
    assert world.read(key=kept).error is ErrorCode.NONE
    assert world.coordinator.share_partitions == 1


def test_the_state_of_a_deleted_topic_is_removed_when_its_last_write_has_ended() -> None:
    world = World()
    world.begin(start_offset=0)
    world.holds_writes = True
    world.ask(update(leader=-1))
    del world.topics[TOPIC]
    world.run(world.coordinator.forget_topics([TOPIC], world.now_ms))
    world.tick(1)
    world.write_ends()
    world.write_ends()
    assert world.kinds == "sut"


def test_the_clock_can_be_set() -> None:
    world = World()
    world.begin(start_offset=0)
    world.coordinator.clock_was_set(-900_000)
    world.now_ms -= 900_000
    assert world.coordinator.next_deadline_ms() == world.now_ms + SETTINGS.prune_interval_ms


# Sizes


def test_requests_that_come_together_share_a_batch() -> None:
    world = World()
    world.holds_writes = True
    keys = [SharePartitionKey("queue", TOPIC, number % 4)._replace(group_id=f"q{number}") for number in range(100)]
    answers: list[PersisterOutcome] = []
    world.run(world.coordinator.submit([Request(key, InitialState(1, 0), answers.append) for key in keys], 1))
    assert [len(each.records) for each in world.writes] == [100]
    world.write_ends()
    assert answers == [OK] * 100


def test_a_batch_has_a_bounded_size() -> None:
    world = World()
    for number in range(20):
        world.begin(start_offset=0, key=KEY._replace(group_id=f"q{number}"))
    world.holds_writes = True
    batches = tuple((2 * number, 2 * number, 2, 1) for number in range(2000))
    requests = [
        Request(KEY._replace(group_id=f"q{number}"), update(*batches, leader=-1), lambda _: None)
        for number in range(20)
    ]
    world.run(world.coordinator.submit(requests, 1))
    sizes = [sum(len(key) + len(value or b"") for key, value in each.records) for each in world.writes]
    assert sum(len(each.records) for each in world.writes) == 20
    assert len(sizes) > 1 and max(sizes) <= SHARE_STATE_BATCH_BYTES_MAX


def test_too_many_state_batches_are_refused() -> None:
    world = World()
    world.begin(start_offset=0)
    too_many = tuple((2 * number, 2 * number, 2, 1) for number in range(SHARE_STATE_BATCHES_MAX + 1))
    assert world.ask(update(*too_many, leader=-1)).error is ErrorCode.INVALID_REQUEST
    assert world.ask(update(*too_many[1:], leader=-1)) == OK
    further = tuple((2 * number + 100_000, 2 * number + 100_000, 2, 1) for number in range(SHARE_STATE_BATCHES_MAX))
    assert world.ask(update(*further, leader=-1)) == OK
    assert world.ask(update((300_000, 300_000, 2, 1), leader=-1)).error is ErrorCode.INVALID_REQUEST
    assert world.ask(update(start=100_000, leader=-1)) == OK
    assert world.ask(update((300_000, 300_000, 2, 1), leader=-1)) == OK


def test_so_many_requests_of_one_share_partition_wait_and_no_more() -> None:
    world = World()
    world.holds_writes = True
    world.begin(start_offset=0)
    waiting = [world.summary() for _ in range(SHARE_STATE_WAITING_MAX)]
    assert world.summary().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.write_ends()
    assert [each[0].start_offset for each in waiting] == [0] * SHARE_STATE_WAITING_MAX


@pytest.mark.parametrize("work", ["cold", "deleted"])
def test_work_on_thousands_of_share_partitions_is_done_in_ticks(work: str) -> None:
    state = ShareState(0, 1, 0, 0, created_ms=1, written_ms=1)
    count = 3 * SHARE_STATES_PER_TICK_MAX + 1
    world = World([write_snapshot(KEY._replace(group_id=f"q{number}"), state) for number in range(count)])
    if work == "deleted":
        world.run(world.coordinator.forget_topics([TOPIC], world.now_ms))
    else:
        world.now_ms += SETTINGS.cold_snapshot_interval_ms
    sizes = [count]
    for _ in range(10):
        world.run(world.coordinator.tick(world.now_ms))
        world.now_ms += 10
        sizes.append(len(world.log))
    assert sizes[-1] == 2 * count
    assert max(after - before for before, after in pairwise(sizes)) <= SHARE_STATES_PER_TICK_MAX


def test_loads_in_steps() -> None:
    state = ShareState(0, 1, 0, 0, created_ms=1, written_ms=1)
    world = World()
    replay = world.coordinator.partitions._new_replay(5)
    for number in range(1200):
        replay.record(*write_snapshot(KEY._replace(group_id=f"q{number}"), state), number)
    assert len(list(world.coordinator.loaded(replay, 0))) == 3


def test_unknown_records_are_skipped_when_loading() -> None:
    world = World([(b"\0\2rest", b"\0\0"), (b"\0\1" + b"\0\1q" + TOPIC + b"\0\0\0\0", None)])
    assert world.coordinator.share_partitions == 0


def test_a_write_in_kafkas_schema_is_read_again() -> None:
    world = World()
    world.begin(start_offset=0)
    world.ask(StateUpdate(1, -1, -1, 2, (StateBatch(3, 4, 2, 1),)))
    (_, value), (key, update_value) = world.log
    assert key == b"\0\1" + b"\0\5queue" + TOPIC + b"\0\0\0\0"
    assert update_value is not None and value is not None
    assert update_value[:2] == b"\0\0" and read_record(key, update_value) is not None
    assert update_value.hex().endswith("010004" + "00000002"), "one tagged field: tag 0, 4 bytes"


def test_appends_name_their_partition_and_time() -> None:
    world = World()
    world.holds_writes = True
    world.begin(start_offset=0)
    (append,) = world.writes
    assert isinstance(append, Append)
    assert (append.partition, append.timestamp_ms) == (PARTITION, world.now_ms)
