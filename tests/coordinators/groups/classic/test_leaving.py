"""LeaveGroup, unloading and administration."""

from headrace.errors import ErrorCode
from headrace.types import TopicPartition
from tests.coordinators.groups.scenario import GROUP, PARTITION, play

STABLE = """
    0     A join v=3
    0     B join v=3
    6000  .   -> A join: generation 1, range, leader A, of A B; B join: generation 1, range, leader A
    6000  A sync A=a B=b  -> A sync: a
    6000  B sync  -> B sync: b
"""


def test_who_leaves_is_gone_and_the_rest_rebalances() -> None:
    play(
        STABLE
        + """
        7000  A leave               -> A leave: ok
        7000  A leave               -> A leave: UNKNOWN_MEMBER_ID
        7000  B heartbeat           -> B heartbeat: REBALANCE_IN_PROGRESS
        7000  B join                -> B join: generation 2, range, leader B, of B
    """
    )


def test_when_the_last_one_leaves_the_group_is_empty_and_keeps_its_offsets() -> None:
    world = play(
        STABLE
        + """
        7000  A commit t-0=5        -> A commit: ok
        7000  A,B leave             -> A,B leave: ok, ok
        7000  fetch t-0             -> fetch: t-0=5
        7000  A join                -> A join: UNKNOWN_MEMBER_ID
    """
    )
    assert world.coordinator.classic.describe(GROUP).state == "Empty"
    assert world.group.generation == 2


def test_each_member_of_a_batch_has_its_own_error() -> None:
    play(STABLE + "7000  A,C,B leave  -> A,C,B leave: ok, UNKNOWN_MEMBER_ID, ok")


def test_a_pending_member_may_leave_and_the_rebalance_no_longer_waits_for_it() -> None:
    play(
        STABLE
        + """
        7000  C join                -> C join: MEMBER_ID_REQUIRED
        7000  A join
        7000  B join
        7500  C leave  -> C leave: ok; A join: generation 2, range, leader A, of A B; B join: generation 2, range, leader A
    """  # noqa: E501
    )


def test_who_is_taken_out_while_it_waits_is_told() -> None:
    play("""
        0     A join v=3
        0     B join v=3
        6000  .   -> A join: generation 1, range, leader A, of A B; B join: generation 1, range, leader A
        6000  B sync
        6100  B leave               -> B leave: ok; B sync: UNKNOWN_MEMBER_ID
    """)


def test_when_the_partition_moves_everybody_who_waits_is_sent_to_the_new_coordinator() -> None:
    play(
        STABLE
        + """
        7000  A join
        7000  unload                -> A join: NOT_COORDINATOR
        7000  A join                -> A join: NOT_COORDINATOR
        7000  B sync                -> B sync: NOT_COORDINATOR
        7000  B heartbeat           -> B heartbeat: NOT_COORDINATOR
        7000  B commit t-0=1        -> B commit: NOT_COORDINATOR
        7000  B leave               -> B leave: NOT_COORDINATOR
        7000  fetch t-0             -> fetch: NOT_COORDINATOR
        9000  load
        9000  A heartbeat           -> A heartbeat: ok
        9000  B sync                -> B sync: b
    """
    )


def test_while_the_partition_is_read_members_are_kept_waiting_and_not_thrown_out() -> None:
    world = play(STABLE + "7000  unload")
    assert world.coordinator.partitions.begin(PARTITION, 0) is not None
    world.said.clear()
    for event in ("heartbeat", "sync", "join", "commit t-0=1", "leave"):
        world.do(f"A {event}")
    assert world.said == [
        "A heartbeat: ok",
        "A sync: REBALANCE_IN_PROGRESS",
        "A join: COORDINATOR_LOAD_IN_PROGRESS",
        "A commit: COORDINATOR_LOAD_IN_PROGRESS",
        "A leave: COORDINATOR_LOAD_IN_PROGRESS",
    ]
    assert world.coordinator.overview() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


def test_a_group_is_described_with_subscriptions_only_while_it_is_stable() -> None:
    world = play(STABLE)
    description = world.coordinator.classic.describe(GROUP)
    assert (description.state, description.protocol_type, description.protocol) == ("Stable", "consumer", "range")
    assert [(each.client_id, each.client_host, each.metadata, each.assignment) for each in description.members] == [
        ("clientA", "/127.0.0.1", b"A:range", b"a"),
        ("clientB", "/127.0.0.1", b"B:range", b"b"),
    ]
    world.do("A leave")
    description = world.coordinator.classic.describe(GROUP)
    assert (description.state, description.protocol) == ("PreparingRebalance", "")
    assert [(each.client_id, each.metadata, each.assignment) for each in description.members] == [
        ("clientB", b"", b"b")
    ]
    assert world.coordinator.classic.describe("nobody").state == "Dead"


def test_only_a_group_without_members_is_deleted_and_its_records_with_it() -> None:
    world = play(STABLE + "7000  A commit t-0=5  -> A commit: ok")
    assert world.coordinator.delete_group(GROUP, 7000) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert world.coordinator.delete_group("nobody", 7000) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    world.do("A,B leave")
    error, actions = world.coordinator.delete_group(GROUP, 7000)
    assert error is ErrorCode.NONE
    world.carry_out(actions)
    assert world.coordinator.classic.describe(GROUP).state == "Dead"
    assert [value for _, value in world.log[-2:]] == [None, None]
    world.start()
    assert world.coordinator.overview() == (ErrorCode.NONE, [])


def test_offsets_of_topics_that_members_read_are_not_deleted() -> None:
    world = play("""
        0     A join v=3 topics=t
        3000  .                       -> A join: generation 1, range, leader A, of A
        3000  A sync A=a              -> A sync: a
        3000  A commit t-0=5 u-0=6    -> A commit: ok
    """)
    t, u = TopicPartition("t", 0), TopicPartition("u", 0)
    error, errors, actions = world.coordinator.delete_offsets(GROUP, [t, u], 3000)
    assert (error, errors) == (ErrorCode.NONE, {t: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, u: ErrorCode.NONE})
    world.carry_out(actions)
    world.said.clear()
    world.do("fetch t-0 u-0")
    assert world.said == ["fetch: t-0=5 u-0=-1"]
