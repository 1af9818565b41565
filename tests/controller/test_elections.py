"""Who leads: every case as one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.decisions.elections import SameElections, elect, elect_new
from headrace.metadata.model import Broker, PartitionLeadership, Replicas
from headrace.types import BrokerId, LeaderEpoch

WRITTEN = 100  # the zxid at which the state was written; broker epochs below were there before


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def live(*numbers: int, restarted: tuple[int, ...] = ()) -> dict[BrokerId, Broker]:
    return {
        BrokerId(number): Broker(BrokerId(number), (), None, WRITTEN + 1 if number in restarted else WRITTEN - 1)
        for number in numbers
    }


def state(leader: int, *isr: int) -> PartitionLeadership:
    return PartitionLeadership(BrokerId(leader), LeaderEpoch(5), ids(*isr), 1, 7, WRITTEN)


REPLICAS = Replicas(ids(1, 2, 3))

# what was, who is alive (! registered anew), unclean allowed -> leader and ISR in epoch 6, or "keep"
CASES = [
    ("the leader lives", state(1, 1, 2, 3), live(1, 2, 3), False, "keep"),
    ("a follower died", state(1, 1, 2, 3), live(1, 3), False, "1 of 1,3"),
    ("a follower restarted", state(1, 1, 2), live(1, 2, restarted=(2,)), False, "keep"),
    ("the leader restarted before anybody noticed", state(1, 1, 2), live(1, 2, restarted=(1,)), False, "1 of 1,2"),
    ("the only broker restarted", state(1, 1), live(1, restarted=(1,)), False, "1 of 1"),
    ("the leader died", state(1, 1, 2, 3), live(2, 3), False, "2 of 2,3"),
    ("the leader died and the next replica is not in sync", state(1, 1, 3), live(2, 3), False, "3 of 3"),
    ("order is that of the replicas, not of the ISR", state(1, 3, 2, 1), live(2, 3), False, "2 of 3,2"),
    ("nobody in sync is left", state(1, 1), live(2, 3), False, "-1 of 1"),
    ("nobody in sync is left, and losing records is allowed", state(1, 1), live(2, 3), True, "2 of 2 recovering"),
    ("unclean is the last resort", state(1, 1, 3), live(2, 3), True, "3 of 3"),
    ("nobody is left", state(1, 1, 2), live(), True, "-1 of 1,2"),
    ("still nobody", state(-1, 1, 2), live(3), False, "keep"),
    ("the last of the ISR came back", state(-1, 1), live(1, 2, restarted=(1,)), False, "1 of 1"),
    ("losing records is allowed by now", state(-1, 1), live(3), True, "3 of 3 recovering"),
]


@pytest.mark.parametrize(
    ("before", "alive", "unclean", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_elects(before: PartitionLeadership, alive: dict[BrokerId, Broker], unclean: bool, expected: str) -> None:
    after = elect(REPLICAS, before, alive, 2, unclean=unclean)
    if expected == "keep":
        assert after is None
        return
    assert after is not None
    recovering = " recovering" if after.is_recovering else ""
    assert f"{after.leader} of {','.join(map(str, after.isr))}{recovering}" == expected
    assert (after.leader_epoch, after.controller_epoch, after.partition_epoch) == (6, 2, 7)


SOME = st.lists(st.sampled_from(ids(1, 2, 3)), unique=True).map(tuple)
LEADERSHIPS = st.builds(
    PartitionLeadership,
    st.sampled_from(ids(-1, 1, 2, 3)),
    st.integers(0, 3).map(LeaderEpoch),
    SOME,
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([WRITTEN - 2, WRITTEN]),
    st.booleans(),
    SOME,
)
BROKERS = st.builds(
    lambda number, epoch, clean, directory: Broker(number, (), None, epoch, clean, directory),
    st.sampled_from(ids(1, 2, 3)),
    st.sampled_from([WRITTEN - 1, WRITTEN + 1]),
    st.booleans(),
    st.sampled_from([None, "d"]),
)


@given(
    st.lists(BROKERS, max_size=3),
    st.lists(st.tuples(st.permutations(ids(1, 2, 3)), LEADERSHIPS, st.integers(1, 3)), max_size=40),
    SOME,
    SOME,
)
def test_many_elections_are_those_of_each(
    brokers: list[Broker],
    partitions: list[tuple[list[BrokerId], PartitionLeadership, int]],
    leaving: tuple[BrokerId, ...],
    suspected: tuple[BrokerId, ...],
) -> None:
    alive = {each.id: each for each in brokers}
    together = SameElections(alive, 9, leaving=leaving, suspected=suspected)
    for order, before, min_isr in partitions:
        replicas = Replicas(tuple(order))
        expected = elect(replicas, before, alive, 9, min_isr=min_isr, leaving=leaving, suspected=suspected)
        assert together.elect(replicas, before, min_isr=min_isr) == expected


def test_a_new_partition_is_led_by_its_first_live_replica_and_everyone_alive_is_in_sync() -> None:
    assert elect_new(REPLICAS, live(2, 3), 4) == PartitionLeadership(BrokerId(2), LeaderEpoch(0), ids(2, 3), 4)
    assert elect_new(REPLICAS, live(9), 4) is None


def test_a_clean_election_ends_the_recovery_of_an_unclean_one() -> None:
    before = state(2, 2, 3)._replace(is_recovering=True)
    after = elect(REPLICAS, before, live(3), 2)
    assert after is not None and not after.is_recovering
