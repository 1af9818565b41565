"""Plans of moves: they end where they should, and move no more than they must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.operations.placement import NoRoom, plan_move
from headrace.types import BrokerId, TopicPartition

BROKERS = [BrokerId(number) for number in range(6)]
Assignment = dict[TopicPartition, list[BrokerId]]

assignments = st.lists(
    st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True), min_size=1, max_size=20
).map(lambda each: {TopicPartition("t", number): replicas for number, replicas in enumerate(each)})


@given(
    current=assignments,
    allowed=st.sets(st.sampled_from(BROKERS), min_size=1),
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=6, max_size=6),
    factor=st.none() | st.integers(1, 4),
)
def test_a_plan_ends_on_the_brokers_that_are_allowed_and_keeps_what_it_can(
    current: Assignment, allowed: set[BrokerId], racks: list[str | None], factor: int | None
) -> None:
    rack_of = dict(zip(BROKERS, racks, strict=True))
    widest = max(len(replicas) if factor is None else factor for replicas in current.values())
    if widest > len(allowed):
        with pytest.raises(NoRoom):
            plan_move(current, allowed, rack_of, replication_factor=factor)
        return
    plan = plan_move(current, allowed, rack_of, replication_factor=factor)
    for partition, old in current.items():
        new = plan.get(partition, old)
        assert len(new) == len(set(new)) == (len(old) if factor is None else factor)
        assert set(new) <= allowed
        stay = [broker for broker in old if broker in allowed]
        assert len(set(stay) & set(new)) == min(len(stay), len(new))  # no replica moves that need not
        if old[0] in allowed:
            assert new[0] == old[0]  # nor does a leader
        assert partition not in plan or list(old) != new
    assert not plan_move({**current, **plan}, allowed, rack_of, replication_factor=factor)  # done is done


def test_what_must_move_is_spread_over_brokers_and_leaders() -> None:
    current = {TopicPartition("t", number): [BROKERS[0], BROKERS[1]] for number in range(8)}
    plan = plan_move(current, BROKERS[2:6], {})
    assert sorted(broker for replicas in plan.values() for broker in replicas) == sorted([2, 3, 4, 5] * 4)
    assert sorted(replicas[0] for replicas in plan.values()) == [2, 2, 3, 3, 4, 4, 5, 5]


def test_a_replica_goes_to_a_rack_that_has_none() -> None:
    racks = {BROKERS[0]: "a", BROKERS[1]: "a", BROKERS[2]: "a", BROKERS[3]: "b"}
    full = {TopicPartition("other", number): [BROKERS[3]] for number in range(5)}
    plan = plan_move(
        {TopicPartition("t", 0): [BROKERS[0], BROKERS[1]], **full},
        [BROKERS[0], BROKERS[2], BROKERS[3]],
        racks,
        moving=[TopicPartition("t", 0)],
    )
    assert plan == {TopicPartition("t", 0): [BROKERS[0], BROKERS[3]]}
