"""OffsetCommit, OffsetFetch, and when offsets are forgotten."""

import pytest

from headrace.config import BrokerConfig
from headrace.coordinators.deadlines import Deadlines
from headrace.coordinators.groups.group_event import GroupEvent
from headrace.coordinators.groups.kinds import replay_of
from headrace.coordinators.groups.loading import GroupLoading
from headrace.coordinators.groups.offsets import CommittedOffset, GroupOffsets
from headrace.coordinators.groups.records import write_offset, write_offset_key
from headrace.coordinators.groups.transactional_commits import TransactionalOffsetsStored
from headrace.coordinators.runtime import Append
from headrace.errors import ErrorCode
from headrace.limits import GROUP_BATCH_BYTES_MAX
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests.coordinators.groups.scenario import GROUP, PARTITION, World, play

DAY = 86_400_000
T0 = TopicPartition("t", 0)

STABLE = """
    0     A join v=3 topics=t
    3000  .                        -> A join: generation 1, range, leader A, of A
    3000  A sync A=a               -> A sync: a
"""
JOINED = """
    0     A join v=3
    3000  .                        -> A join: generation 1, range, leader A, of A
"""


def test_what_was_committed_is_fetched_and_what_was_not_is_minus_one() -> None:
    play(
        STABLE
        + """
        3000  A commit t-0=5 t-1=7 u-0=9   -> A commit: ok
        3000  fetch t-0 t-1 t-2            -> fetch: t-0=5 t-1=7 t-2=-1
        3000  fetch                        -> fetch: t-0=5 t-1=7 u-0=9
        3000  A commit t-0=3               -> A commit: ok
        3000  fetch t-0                    -> fetch: t-0=3
    """
    )


def test_a_commit_counts_and_is_answered_when_it_is_in_the_log() -> None:
    play(
        STABLE
        + """
        3000  log holds
        3000  A commit t-0=5
        3000  fetch t-0                    -> fetch: t-0=-1
        3000  fetch t-0 stable             -> fetch: t-0=-1
        3001  log writes                   -> A commit: ok
        3001  fetch t-0 stable             -> fetch: t-0=5
    """
    )


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "COORDINATOR_NOT_AVAILABLE"),
        ("KAFKA_STORAGE_ERROR", "NOT_COORDINATOR"),
        ("MESSAGE_TOO_LARGE", "INVALID_COMMIT_OFFSET_SIZE"),
        ("REQUEST_TIMED_OUT", "REQUEST_TIMED_OUT"),
    ],
)
def test_a_commit_that_cannot_be_written_is_refused_and_does_not_count(failure: str, answer: str) -> None:
    play(
        STABLE
        + f"""
        3000  A commit t-0=4               -> A commit: ok
        3000  log fails {failure}
        3000  A commit t-0=5               -> A commit: {answer}
        3000  fetch t-0 stable             -> fetch: t-0=4
    """
    )


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "COORDINATOR_NOT_AVAILABLE"),
        ("REQUEST_TIMED_OUT", "REQUEST_TIMED_OUT"),
    ],
)
def test_a_commit_that_is_durable_too_late_counts_from_then_on(failure: str, answer: str) -> None:
    world = play(
        STABLE
        + f"""
        3000  A commit t-0=4               -> A commit: ok
        3000  log lags {failure}
        3000  A commit t-0=5 u-0=1         -> A commit: {answer}
        3000  A commit t-0=3               -> A commit: {answer}
        3000  fetch t-0 u-0                -> fetch: t-0=4 u-0=-1
        3000  log writes
        3000  fetch t-0 u-0                -> fetch: t-0=3 u-0=1
    """
    )
    world.start()  # as the log says
    assert {str(key): each.offset for key, each in world.group.offsets.committed.items()} == {"t-0": 3, "u-0": 1}
    assert not world.group.offsets.late


def test_a_late_commit_does_not_win_against_a_newer_one() -> None:
    play(
        STABLE
        + """
        3000  log lags REQUEST_TIMED_OUT
        3000  A commit t-0=5               -> A commit: REQUEST_TIMED_OUT
        3000  log writes
        3000  A commit t-0=6               -> A commit: ok
        3000  fetch t-0                    -> fetch: t-0=6
    """
    )


def test_a_commit_counts_though_one_that_came_after_it_was_refused() -> None:
    world = play(
        STABLE
        + """
        3000  log holds
        3000  A commit t-0=5
    """
    )
    held, world.held = world.held, []
    world.set_log("fails", "NOT_ENOUGH_REPLICAS")
    world.do("A commit t-0=6")
    world.set_log("writes")
    for append in held:
        world.carry_out(world.write(append))
    assert world.said == ["A commit: COORDINATOR_NOT_AVAILABLE", "A commit: ok"]
    world.do("fetch t-0")
    assert world.said[-1] == "fetch: t-0=5"
    assert not world.group.offsets.pending


def test_a_late_commit_is_deleted_with_its_topic_and_with_its_group() -> None:
    for is_group in (False, True):
        world = play(
            """
            3000  log lags REQUEST_TIMED_OUT
            3000  simple commit t-0=5          -> simple commit: REQUEST_TIMED_OUT
            """
        )
        world.set_log("writes")
        if is_group:
            error, actions = world.coordinator.delete_group(GROUP, 3000)
            assert error is ErrorCode.NONE
        else:
            actions = world.coordinator.forget_topics(["t"], 3000)
        world.carry_out(actions)
        assert world.log[-1] == (write_offset_key(GROUP, T0), None)
        world.do("fetch t-0")
        assert world.said[-1] == "fetch: t-0=-1"


def test_a_late_commit_keeps_its_partition_from_expiring() -> None:
    world = play(
        """
        0     simple commit t-0=4                -> simple commit: ok
        0     log lags REQUEST_TIMED_OUT
        0     simple commit t-0=5                -> simple commit: REQUEST_TIMED_OUT
        """
    )
    world.pass_time(8 * DAY)
    assert (write_offset_key(GROUP, T0), None) not in world.log and world.group.offsets.late[T0].offset == 5
    world.do("log writes")
    world.do("fetch t-0")
    assert world.said[-1] == "fetch: t-0=5"


def test_a_simple_consumer_commits_into_a_group_without_members_only() -> None:
    play(
        """
        0     simple commit t-0=5          -> simple commit: ok
        0     fetch t-0                    -> fetch: t-0=5
    """
        + STABLE
        + """
        3000  simple commit t-0=6          -> simple commit: UNKNOWN_MEMBER_ID
        3000  A leave                      -> A leave: ok
        3000  simple commit t-0=6          -> simple commit: ok
        3000  fetch t-0                    -> fetch: t-0=6
    """
    )


def test_a_member_commits_only_in_its_own_generation_and_under_its_own_name() -> None:
    play(
        STABLE
        + """
        3000  A commit t-0=5 generation=0       -> A commit: ILLEGAL_GENERATION
        3000  A commit t-0=5 generation=-1      -> A commit: ILLEGAL_GENERATION
        3000  A commit t-0=5 id=stranger        -> A commit: UNKNOWN_MEMBER_ID
        3000  A commit t-0=5 static=stranger    -> A commit: UNKNOWN_MEMBER_ID
    """
    )
    play("0  A commit t-0=5 generation=1 id=x  -> A commit: ILLEGAL_GENERATION")


def test_a_member_may_commit_while_a_rebalance_is_prepared_but_not_while_the_assignment_is_awaited() -> None:
    play(
        STABLE
        + """
        3000  B join v=3
        3000  A commit t-0=5               -> A commit: ok
        3000  A join topics=t  -> A join: generation 2, range, leader A, of A B; B join: generation 2, range, leader A
        3000  A commit t-0=6               -> A commit: REBALANCE_IN_PROGRESS
        3000  fetch t-0                    -> fetch: t-0=5
    """
    )


def test_a_commit_is_a_sign_of_life() -> None:
    play(
        STABLE
        + """
        12999  A commit t-0=5              -> A commit: ok
        22998  A heartbeat                 -> A heartbeat: ok
    """
    )


def test_a_note_that_is_too_long_is_refused_alone() -> None:
    play(
        STABLE
        + f"""
        3000  A commit t-0=5 metadata={"x" * 4096}   -> A commit: ok
        3000  A commit t-0=6 metadata={"x" * 4097}   -> A commit: OFFSET_METADATA_TOO_LARGE
        3000  fetch t-0                              -> fetch: t-0=5
    """
    )


def test_of_two_commits_under_way_the_later_one_wins_whatever_ends_first() -> None:
    first, second = CommittedOffset(1, -1, "", 0), CommittedOffset(2, -1, "", 0)
    offsets = GroupOffsets()
    offsets.prepare({T0: first})
    offsets.prepare({T0: second})
    offsets.appended({T0: second}, 11)
    offsets.appended({T0: first}, 10)
    assert offsets.committed[T0].offset == 2
    assert not offsets.pending


def test_a_partition_deleted_while_its_commit_is_written_stays_forgotten() -> None:
    offsets = GroupOffsets()
    deleted = {T0: CommittedOffset(1, -1, "", 0)}
    offsets.prepare(deleted)
    offsets.remove([T0])
    offsets.appended(deleted, 10)
    assert not offsets


@pytest.mark.parametrize(
    ("code", "record_offset", "counts"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, 7, 5),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 7, 5),
        (ErrorCode.NOT_ENOUGH_REPLICAS, -1, 4),
        (ErrorCode.KAFKA_STORAGE_ERROR, 7, 4),
    ],
)
def test_the_marker_decides_about_a_transactional_commit_that_was_durable_too_late(
    code: ErrorCode, record_offset: int, counts: int
) -> None:
    offsets = GroupOffsets()
    for offset, error, at in ((4, ErrorCode.NONE, 3), (5, code, record_offset)):
        told: list[object] = []
        accepted = {T0: CommittedOffset(offset, -1, "", 0)}
        replaced = offsets.prepare_in_transaction(9, accepted)
        event = GroupEvent(0, BrokerConfig(), Deadlines())
        stored = TransactionalOffsetsStored(offsets, 9, accepted, replaced, frozenset(), (T0,), told.append)
        stored.stored(error, at, event)
    offsets.end_transaction(9, committed=True)
    assert offsets.committed[T0].offset == counts


def test_offsets_of_a_transaction_count_with_its_commit_marker_only() -> None:
    loading = GroupLoading(0, replay_of)
    key = write_offset_key(GROUP, T0)
    loading.record(key, write_offset(CommittedOffset(1, -1, "", 0)), 0)
    loading.record(key, write_offset(CommittedOffset(2, -1, "", 0)), 1, producer_id=7)
    loading.marker(7, committed=False)
    loading.record(key, write_offset(CommittedOffset(3, -1, "", 0)), 3, producer_id=8)
    loading.marker(8, committed=True)
    loading.record(key, write_offset(CommittedOffset(4, -1, "", 0)), 5, producer_id=9)
    (group,) = loading.finish(0)
    assert group.offsets.committed[T0].offset == 3
    assert group.offsets.is_unstable(T0)
    group.offsets.end_transaction(9, committed=True)
    assert group.offsets.committed[T0].offset == 4
    assert not group.offsets.is_unstable(T0)


# retention


def test_offsets_of_a_simple_consumer_are_kept_for_the_time_of_retention_after_the_last_commit() -> None:
    world = play(f"""
        0                    simple commit t-0=5   -> simple commit: ok
        {DAY}                simple commit t-0=6   -> simple commit: ok
        {8 * DAY - 1}        fetch t-0             -> fetch: t-0=6
        {8 * DAY + 600_000}  fetch t-0             -> fetch: t-0=-1
    """)
    assert world.log[-1] == (write_offset_key(GROUP, T0), None)


def test_offsets_of_a_group_are_kept_as_long_after_its_last_member_left() -> None:
    world = play(
        STABLE
        + f"""
        3000                 A commit t-0=5        -> A commit: ok
        3000                 A leave               -> A leave: ok
        {7 * DAY}            fetch t-0             -> fetch: t-0=5
        {7 * DAY + 700_000}  fetch t-0             -> fetch: t-0=-1
    """
    )
    assert [value for _, value in world.log[-2:]] == [None, None]
    world.start()
    assert world.coordinator.overview()[1] == []


def test_offsets_of_topics_that_a_stable_group_reads_do_not_expire_and_others_do() -> None:
    world = play(
        STABLE.replace("v=3", "v=3 session=1800000")
        + """
        3000  A commit t-0=5 u-0=6                 -> A commit: ok
    """
    )
    for hour in range(1, 8 * 24 * 2):
        world.pass_time(3000 + hour * 1_799_000)
        world.do("A heartbeat")
    world.said.clear()
    world.do("fetch t-0 u-0")
    assert world.said == ["fetch: t-0=5 u-0=-1"]


def test_a_commit_may_bring_its_own_retention() -> None:
    play("""
        0          simple commit t-0=5 retention=1000   -> simple commit: ok
        599_999    fetch t-0                            -> fetch: t-0=5
        600_000    fetch t-0                            -> fetch: t-0=-1
    """)


def test_a_retention_beyond_the_end_of_time_is_for_ever() -> None:
    play("""
        5          simple commit t-0=5 retention=9223372036854775807   -> simple commit: ok
        600_000    fetch t-0                                           -> fetch: t-0=5
    """)


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    world = play(
        STABLE
        + """
        3000  A commit t-0=5 u-0=6   -> A commit: ok
    """
    )
    world.carry_out(world.coordinator.forget_topics({"t", "other"}, 3000))
    assert world.log[-1] == (write_offset_key(GROUP, T0), None)
    world.said.clear()
    world.do("fetch")
    assert world.said == ["fetch: u-0=6"]
    world.start()
    world.do("fetch")
    assert world.said[-1] == "fetch: u-0=6"


def test_a_commit_that_is_under_way_when_its_topic_is_deleted_is_not_there_after_a_restart() -> None:
    world = play(STABLE)
    world.mode = "holds"
    world.do("A commit t-0=5")
    world.carry_out(world.coordinator.forget_topics({"t"}, 3000))
    for append in list(world.held):  # in the order in which the log gets them
        world.carry_out(world.write(append))
    world.start()
    world.said.clear()
    world.do("fetch t-0")
    assert world.said == ["fetch: t-0=-1"]


def test_a_topic_that_is_deleted_while_its_groups_are_read_takes_their_offsets_along() -> None:
    world = play(
        STABLE
        + """
        3000  A commit t-0=5 u-0=6   -> A commit: ok
        3000  unload
    """
    )
    loading = world.coordinator.partitions.begin(PARTITION, 0)
    assert loading is not None
    for offset, (key, value) in enumerate(world.log):
        loading.record(key, value, offset)
    world.carry_out(world.coordinator.forget_topics({"t"}, 3000))
    world.finish(loading)
    world.said.clear()
    world.do("fetch")
    assert world.said == ["fetch: u-0=6"]
    assert world.log[-1] == (write_offset_key(GROUP, T0), None)


def test_the_tombstones_of_many_offsets_go_as_several_batches() -> None:
    world = World()
    topics = [
        m.OffsetCommitRequest.OffsetCommitRequestTopic(
            name=f"{'t' * 245}{number:04}",
            partitions=[m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
        )
        for number in range(2 * GROUP_BATCH_BYTES_MAX // 250)
    ]
    request = m.OffsetCommitRequest(group_id=GROUP, topics=topics)
    world.carry_out(world.coordinator.commit(request, 9, lambda _: None, 0))
    error, actions = world.coordinator.delete_group(GROUP, 0)
    assert error is ErrorCode.NONE
    sizes = [
        sum(len(key) + len(value or b"") for key, value in each.records) for each in actions if isinstance(each, Append)
    ]
    assert len(sizes) > 1
    assert max(sizes) <= GROUP_BATCH_BYTES_MAX
