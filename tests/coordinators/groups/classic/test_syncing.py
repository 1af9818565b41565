"""SyncGroup and Heartbeat: who gets an assignment, and what happens when it cannot be stored."""

import pytest

from tests.coordinators.groups.scenario import play

JOINED = """
    0     A join v=3
    0     B join v=3
    6000  .   -> A join: generation 1, range, leader A, of A B; B join: generation 1, range, leader A
"""
STABLE = JOINED + "6000  A sync A=a B=b  -> A sync: a\n 6000  B sync  -> B sync: b\n"


def test_a_member_that_the_leader_forgot_gets_nothing() -> None:
    play(JOINED + "6000  A sync A=a  -> A sync: a\n 6000  B sync  -> B sync: nothing")


def test_nobody_hears_of_an_assignment_before_it_is_in_the_log() -> None:
    play(
        JOINED
        + """
        6000  log holds
        6000  B sync
        6000  A sync A=a B=b
        6100  A heartbeat           -> A heartbeat: ok
        6200  log writes            -> B sync: b; A sync: a
    """
    )


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE"),
        ("UNKNOWN_TOPIC_OR_PARTITION", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR"),
        ("REQUEST_TIMED_OUT", "REBALANCE_IN_PROGRESS"),
        ("MESSAGE_TOO_LARGE", "UNKNOWN_SERVER_ERROR"),
        ("CORRUPT_MESSAGE", "CORRUPT_MESSAGE"),
    ],
)
def test_an_assignment_that_cannot_be_stored_is_refused_and_the_group_rebalances(failure: str, answer: str) -> None:
    play(
        JOINED
        + f"""
        6000  log fails {failure}
        6000  B sync
        6000  A sync A=a B=b        -> B sync: {answer}; A sync: {answer}
        6000  A heartbeat           -> A heartbeat: REBALANCE_IN_PROGRESS
    """
    )


def test_an_assignment_that_is_stored_too_late_does_not_count() -> None:
    play(
        JOINED
        + """
        6000  log holds
        6000  A sync A=a B=b
        6100  C join v=3            -> A sync: REBALANCE_IN_PROGRESS
        6200  log writes
        6300  A heartbeat           -> A heartbeat: REBALANCE_IN_PROGRESS
    """
    )


def test_a_sync_must_be_of_this_generation_protocol_and_type() -> None:
    play(
        JOINED
        + """
        6000  B sync generation=0                    -> B sync: ILLEGAL_GENERATION
        6000  B sync generation=2                    -> B sync: ILLEGAL_GENERATION
        6000  B sync type=connect protocol=range     -> B sync: INCONSISTENT_GROUP_PROTOCOL
        6000  B sync type=consumer protocol=sticky   -> B sync: INCONSISTENT_GROUP_PROTOCOL
        6000  B sync id=stranger                     -> B sync: UNKNOWN_MEMBER_ID
        6000  B sync type=consumer protocol=range
    """
    )


def test_a_heartbeat_must_be_of_this_generation() -> None:
    play(
        STABLE
        + """
        6000  B heartbeat generation=0    -> B heartbeat: ILLEGAL_GENERATION
        6000  B heartbeat id=stranger     -> B heartbeat: UNKNOWN_MEMBER_ID
        6000  B heartbeat                 -> B heartbeat: ok
    """
    )


def test_members_that_joined_and_never_ask_for_their_assignment_are_dropped() -> None:
    play("""
        0      A join v=3 rebalance=8000 session=30000
        0      B join v=3 rebalance=8000 session=30000
        6000   .   -> A join: generation 1, range, leader A, of A B; B join: generation 1, range, leader A
        6000   A sync A=a B=b       -> A sync: a
        13999  A heartbeat          -> A heartbeat: ok
        14000  A heartbeat          -> A heartbeat: REBALANCE_IN_PROGRESS
        14000  A join               -> A join: generation 2, range, leader A, of A
        14000  B heartbeat          -> B heartbeat: UNKNOWN_MEMBER_ID
    """)


def test_when_the_leader_never_brings_an_assignment_the_others_join_again() -> None:
    play("""
        0      A join v=3 rebalance=8000 session=60000
        0      B join v=3 rebalance=8000 session=60000
        6000   .   -> A join: generation 1, range, leader A, of A B; B join: generation 1, range, leader A
        6000   B sync
        14000  .                    -> B sync: REBALANCE_IN_PROGRESS
        14000  B join               -> B join: generation 2, range, leader B, of B
    """)


def test_who_waits_for_an_answer_of_ours_is_not_taken_for_dead() -> None:
    play("""
        0      A join v=3 session=60000
        0      B join v=3 session=6000
        6000   .   -> A join: generation 1, range, leader A, of A B; B join: generation 1, range, leader A
        6000   B sync
        40000  A sync A=a B=b       -> B sync: b; A sync: a
        45999  B heartbeat          -> B heartbeat: ok
    """)


def test_who_is_silent_for_a_session_is_dropped_and_the_rest_rebalances() -> None:
    play(
        STABLE
        + """
        15999  A heartbeat          -> A heartbeat: ok
        16000  A heartbeat          -> A heartbeat: REBALANCE_IN_PROGRESS
        16000  B heartbeat          -> B heartbeat: UNKNOWN_MEMBER_ID
    """
    )
