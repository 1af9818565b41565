"""Members with an instance id (KIP-345): restarts that disturb nobody, and fences against doubles."""

from tests.coordinators.groups.scenario import play

STABLE = """
    0     A join static=iA
    0     B join static=iB
    6000  .   -> A join: generation 1, range, leader A, of A iB; B join: generation 1, range, leader A
    6000  B sync static=iB
    6000  A sync A=a B=b static=iA      -> B sync: b; A sync: a
"""


def test_a_static_member_joins_at_once_and_is_given_its_id_with_the_answer() -> None:
    play(STABLE)


def test_a_restarted_follower_takes_its_place_without_a_rebalance() -> None:
    play(
        STABLE
        + """
        7000  B join id=no static=iB    -> B join: generation 1, range, leader A
        7000  B sync static=iB          -> B sync: b
        7000  A heartbeat static=iA     -> A heartbeat: ok
    """
    )


def test_a_restarted_leader_is_told_from_version_9_that_it_leads_and_has_nothing_to_assign() -> None:
    play(
        STABLE
        + """
        7000  A join id=no static=iA  -> A join: generation 1, range, leader A, of A B, nothing to assign
        7000  A sync static=iA        -> A sync: a
    """
    )


def test_a_restarted_leader_before_version_9_must_not_take_itself_for_one() -> None:
    play(
        STABLE
        + """
        7000  A join v=8 id=no static=iA  -> A join: generation 1, range, leader old A
        7000  A sync static=iA            -> A sync: a
    """
    )


def test_whoever_still_uses_the_old_member_id_is_fenced() -> None:
    world = play(STABLE)
    old_id = world.ids["B"]
    world.do("B join id=no static=iB")
    world.said.clear()
    for event in ("heartbeat", "sync", "commit t-0=1", "join", "leave"):
        world.do(f"B {event} static=iB id={old_id}")
    assert world.said == [
        "B heartbeat: FENCED_INSTANCE_ID",
        "B sync: FENCED_INSTANCE_ID",
        "B commit: FENCED_INSTANCE_ID",
        "B join: FENCED_INSTANCE_ID",
        "B leave: FENCED_INSTANCE_ID",
    ]


def test_an_instance_id_that_nobody_has_is_unknown() -> None:
    play(STABLE + "6000  A heartbeat static=other  -> A heartbeat: UNKNOWN_MEMBER_ID")


def test_a_double_that_joins_while_the_first_waits_fences_it() -> None:
    play("""
        0     A join static=iA
        100   A join id=no static=iA   -> A join: FENCED_INSTANCE_ID
        3000  .                        -> A join: generation 1, range, leader A, of A
    """)


def test_a_restart_while_the_assignment_is_awaited_begins_again() -> None:
    play("""
        0     A join static=iA
        0     B join static=iB
        6000  .   -> A join: generation 1, range, leader A, of A iB; B join: generation 1, range, leader A
        6000  B sync static=iB
        6100  B join id=no static=iB   -> B sync: FENCED_INSTANCE_ID
        6100  A heartbeat static=iA    -> A heartbeat: REBALANCE_IN_PROGRESS
        6200  A join static=iA  -> A join: generation 2, range, leader A, of A iB; B join: generation 2, range, leader A
    """)


def test_a_restart_that_changes_the_common_protocol_rebalances() -> None:
    play("""
        0     A join static=iA protocols=range,sticky
        0     B join static=iB protocols=range,sticky
        6000  .   -> A join: generation 1, range, leader A, of A iB; B join: generation 1, range, leader A
        6000  A sync static=iA         -> A sync: nothing
        6000  B sync static=iB         -> B sync: nothing
        7000  B join id=no static=iB protocols=sticky
        7000  A join static=iA protocols=range,sticky -> A join: generation 2, sticky, leader A, of A iB; B join: generation 2, sticky, leader A
    """)  # noqa: E501


def test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends() -> None:
    play("""
        0      A join static=iA rebalance=6000
        0      B join static=iB rebalance=6000 session=30000
        6000   .   -> A join: generation 1, range, leader A, of A iB; B join: generation 1, range, leader A
        6000   B sync static=iB
        6000   A sync A=a B=b static=iA      -> B sync: b; A sync: a
        7000   A join static=iA rebalance=6000
        13000  .                       -> A join: generation 2, range, leader A, of A B
        13000  A sync A=a B=b static=iA      -> A sync: a
        13000  B heartbeat static=iB   -> B heartbeat: ILLEGAL_GENERATION
        19000  A heartbeat static=iA   -> A heartbeat: REBALANCE_IN_PROGRESS
    """)


def test_when_only_static_members_are_left_and_none_is_back_the_rebalance_waits_for_one() -> None:
    play("""
        0      A join static=iA rebalance=6000 session=60000
        0      B join static=iB rebalance=6000 session=60000
        6000   .   -> A join: generation 1, range, leader A, of A iB; B join: generation 1, range, leader A
        6000   B sync static=iB
        6000   A sync A=a B=b static=iA      -> B sync: b; A sync: a
        7000   C join v=3 rebalance=6000
        8000   C leave id=clientC-3    -> C leave: ok; C join: UNKNOWN_MEMBER_ID
        40000  A heartbeat static=iA   -> A heartbeat: REBALANCE_IN_PROGRESS
        40000  A join static=iA rebalance=6000
        43000  .                       -> A join: generation 2, range, leader A, of A B
    """)


def test_a_restart_that_cannot_be_written_is_taken_back() -> None:
    world = play(
        STABLE
        + """
        7000  log fails NOT_ENOUGH_REPLICAS
        7000  B join id=no static=iB   -> B join: COORDINATOR_NOT_AVAILABLE
        7000  B heartbeat static=iB    -> B heartbeat: ok
    """
    )
    assert world.ids["B"] in world.group.members


def test_a_restart_that_meets_a_rebalance_while_it_is_written_waits_for_that() -> None:
    play(
        STABLE
        + """
        7000  log holds
        7000  B join id=no static=iB
        7001  A join static=iA  -> A join: generation 2, range, leader A, of A iB; B join: generation 2, range, leader A
        7002  log writes
        7003  B sync static=iB
    """
    )


def test_an_administrator_takes_a_static_member_out_by_its_instance_id() -> None:
    play(
        STABLE
        + """
        7000  leave static=iB          -> leave: ok
        7000  leave static=iB          -> leave: UNKNOWN_MEMBER_ID
        7000  A heartbeat static=iA    -> A heartbeat: REBALANCE_IN_PROGRESS
        7000  A join static=iA         -> A join: generation 2, range, leader A, of A
    """
    )
