"""Who comes into a group, under which id, and when a generation begins. The language is in `scenario`."""

from tests.coordinators.groups.scenario import play


def test_a_new_member_is_given_its_id_first_and_then_joins_with_it() -> None:
    play("""
        0     A join                -> A join: MEMBER_ID_REQUIRED
        0     A join
        2999  .
        3000  .                     -> A join: generation 1, range, leader A, of A
        3000  A sync A=all          -> A sync: all
        3000  A heartbeat           -> A heartbeat: ok
    """)


def test_before_version_4_a_new_member_joins_at_once() -> None:
    play("""
        0     A join v=3
        3000  .                     -> A join: generation 1, range, leader A, of A
    """)


def test_an_empty_group_waits_on_while_members_come_but_not_past_the_rebalance_timeout() -> None:
    play("""
        0      A join v=3 rebalance=8000
        2000   B join v=3 rebalance=8000
        3000   .
        5000   C join v=3 rebalance=8000
        6000   .
        7000   D join v=3 rebalance=8000
        8000   .  -> A join: generation 1, range, leader A, of A B C D; B join: generation 1, range, leader A; C join: generation 1, range, leader A; D join: generation 1, range, leader A
    """)  # noqa: E501


def test_version_0_has_one_timeout_for_session_and_rebalance() -> None:
    world = play("""
        0     A join v=0 session=7000 rebalance=60000
        3000  .                     -> A join: generation 1, range, leader A, of A
    """)
    assert world.group.members[world.ids["A"]].rebalance_timeout_ms == 7000


TWO_MEMBERS = """
        0     A join v=3
        0     B join v=3
        6000  .            -> A join: generation 1, range, leader A, of A B; B join: generation 1, range, leader A
        6000  B sync
        6000  A sync A=a B=b        -> B sync: b; A sync: a
"""


def test_the_others_wait_for_the_leaders_assignment() -> None:
    play(TWO_MEMBERS)


def test_a_third_member_makes_the_group_rebalance_and_heartbeats_tell() -> None:
    play(
        TWO_MEMBERS
        + """
        6100  C join v=3
        6200  A heartbeat           -> A heartbeat: REBALANCE_IN_PROGRESS
        6200  A join
        6300  B join  -> A join: generation 2, range, leader A, of A B C; B join: generation 2, range, leader A; C join: generation 2, range, leader A
    """  # noqa: E501
    )


def test_who_does_not_rejoin_in_time_is_out_and_a_new_leader_leads() -> None:
    play(
        TWO_MEMBERS
        + """
        6100   C join v=3
        6200   B join
        12000  A heartbeat          -> A heartbeat: REBALANCE_IN_PROGRESS
        20000  A heartbeat          -> A heartbeat: REBALANCE_IN_PROGRESS
        28000  A heartbeat          -> A heartbeat: REBALANCE_IN_PROGRESS
        36000  A heartbeat          -> A heartbeat: REBALANCE_IN_PROGRESS
        44000  A heartbeat          -> A heartbeat: REBALANCE_IN_PROGRESS
        52000  A heartbeat          -> A heartbeat: REBALANCE_IN_PROGRESS
        60000  A heartbeat          -> A heartbeat: REBALANCE_IN_PROGRESS
        66100  .  -> B join: generation 2, range, leader B, of B C; C join: generation 2, range, leader B
        66100  A heartbeat          -> A heartbeat: UNKNOWN_MEMBER_ID
    """
    )


def test_a_follower_that_joins_again_unchanged_is_told_the_generation_and_nobody_is_disturbed() -> None:
    play(
        TWO_MEMBERS
        + """
        7000  B join                -> B join: generation 1, range, leader A
        7000  B sync                -> B sync: b
        7000  A heartbeat           -> A heartbeat: ok
    """
    )


def test_a_leader_that_joins_again_asks_for_a_rebalance() -> None:
    play(
        TWO_MEMBERS
        + """
        7000  A join
        7000  B heartbeat           -> B heartbeat: REBALANCE_IN_PROGRESS
        7000  B join   -> A join: generation 2, range, leader A, of A B; B join: generation 2, range, leader A
    """
    )


def test_a_member_that_missed_its_answer_gets_it_again_while_the_assignment_is_awaited() -> None:
    play("""
        0     A join v=3
        0     B join v=3
        6000  .       -> A join: generation 1, range, leader A, of A B; B join: generation 1, range, leader A
        6000  A join                -> A join: generation 1, range, leader A, of A B
        6000  B join                -> B join: generation 1, range, leader A
        6000  B join protocols=sticky -> B join: INCONSISTENT_GROUP_PROTOCOL
        6000  B join protocols=range,sticky
        6000  A join   -> A join: generation 2, range, leader A, of A B; B join: generation 2, range, leader A
    """)


def test_the_protocol_is_one_that_all_support_and_most_want() -> None:
    play("""
        0     A join v=3 protocols=sticky,range,mine
        0     B join v=3 protocols=range,sticky
        0     C join v=3 protocols=range,sticky,other
        0     D join v=3 protocols=other              -> D join: INCONSISTENT_GROUP_PROTOCOL
        0     D join v=3 type=connect                 -> D join: INCONSISTENT_GROUP_PROTOCOL
        6000  .  -> A join: generation 1, range, leader A, of A B C; B join: generation 1, range, leader A; C join: generation 1, range, leader A
    """)  # noqa: E501


def test_a_group_needs_a_protocol_and_its_type() -> None:
    play("""
        0  A join protocols=        -> A join: INCONSISTENT_GROUP_PROTOCOL
        0  A join type=             -> A join: INCONSISTENT_GROUP_PROTOCOL
    """)


def test_a_session_timeout_out_of_bounds_is_refused() -> None:
    play("""
        0  A join session=5999      -> A join: INVALID_SESSION_TIMEOUT
        0  A join session=1800001   -> A join: INVALID_SESSION_TIMEOUT
    """)


def test_a_member_of_a_group_that_does_not_exist_is_unknown() -> None:
    play("""
        0  A join id=stranger       -> A join: UNKNOWN_MEMBER_ID
        0  A heartbeat id=stranger  -> A heartbeat: UNKNOWN_MEMBER_ID
        0  A sync id=stranger       -> A sync: UNKNOWN_MEMBER_ID
        0  A leave id=stranger      -> A leave: UNKNOWN_MEMBER_ID
    """)


def test_an_id_that_was_given_out_and_not_used_is_forgotten_when_its_session_ends() -> None:
    play("""
        0      A join               -> A join: MEMBER_ID_REQUIRED
        10000  A join               -> A join: UNKNOWN_MEMBER_ID
    """)


def test_a_rebalance_waits_for_members_that_were_given_an_id() -> None:
    play(
        TWO_MEMBERS
        + """
        7000   C join               -> C join: MEMBER_ID_REQUIRED
        7000   A join
        7000   B join
        16000  .
        17000  .  -> A join: generation 2, range, leader A, of A B; B join: generation 2, range, leader A
    """
    )


def test_a_full_group_takes_nobody_and_keeps_who_is_in() -> None:
    play(
        """
        0     A join v=3
        0     B join v=3
        0     C join v=3            -> C join: GROUP_MAX_SIZE_REACHED
        6000  .   -> A join: generation 1, range, leader A, of A B; B join: generation 1, range, leader A
        6000  C join v=3            -> C join: GROUP_MAX_SIZE_REACHED
        6000  A join                -> A join: generation 1, range, leader A, of A B
    """,
        group_max_size=2,
    )


def test_a_new_member_whose_client_is_gone_is_dropped_after_five_minutes() -> None:
    play("""
        0       A join v=3 rebalance=600000 session=1000000
        3000    .                   -> A join: generation 1, range, leader A, of A
        3000    A sync A=a          -> A sync: a
        4000    B join v=3 rebalance=600000
        303999  .
        304000  .                   -> B join: UNKNOWN_MEMBER_ID
    """)


def test_a_client_that_asks_again_frees_its_first_request() -> None:
    play(
        TWO_MEMBERS
        + """
        7000  A join
        7000  A join                -> A join: REBALANCE_IN_PROGRESS
        7000  B join   -> A join: generation 2, range, leader A, of A B; B join: generation 2, range, leader A
        7000  B sync
        7000  B sync                -> B sync: REBALANCE_IN_PROGRESS
        7000  A sync B=b            -> B sync: b; A sync: nothing
    """
    )
