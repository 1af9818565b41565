"""When an append is durable, and what its producer is told when it will not be.

The leader is broker 1 of replicas 1, 2, 3; the append ends at offset 5.
"""

import pytest

from headrace.errors import ErrorCode
from headrace.replication.commit_wait import CommitWait, outcome
from headrace.replication.partition_state import LeaderAndIsr, PartitionState, Transition
from headrace.types import BrokerId, LeaderEpoch


def told(leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2, 3), version: int = 0) -> LeaderAndIsr:
    members = tuple(BrokerId(each) for each in isr)
    return LeaderAndIsr(BrokerId(leader), LeaderEpoch(epoch), members, version, (BrokerId(1), BrokerId(2), BrokerId(3)))


def a_leader(min_isr: int = 1, isr: tuple[int, ...] = (1, 2, 3)) -> PartitionState:
    state = PartitionState(BrokerId(1), min_insync_replicas=min_isr)
    state.apply(told(isr=isr), 0)
    state.on_leader_append(5, 0)
    return state


def fetch(state: PartitionState, *followers: int, offset: int = 5) -> None:
    for each in followers:
        state.follower_fetched(BrokerId(each), offset, 0)


def a_wait(state: PartitionState, commit_to: int = 5, flush_to: int = 0) -> CommitWait:
    return CommitWait(commit_to, flush_to, state.leading_since)


def end(wait: CommitWait, state: PartitionState, flushed: int = 0, is_offline: bool = False) -> ErrorCode | None:
    return outcome(wait, state, flushed, is_offline=is_offline)


def test_waits_for_the_whole_isr_not_for_min_insync_replicas() -> None:
    state = a_leader(min_isr=2)
    wait = a_wait(state)
    fetch(state, 2)
    assert end(wait, state) is None
    fetch(state, 3)
    assert end(wait, state) is ErrorCode.NONE
    assert end(a_wait(state, commit_to=6), state) is None


@pytest.mark.parametrize(
    ("commit_to", "flush_to", "flushed", "told"),
    [(5, 5, 4, None), (5, 5, 5, ErrorCode.NONE), (0, 5, 4, None), (0, 5, 5, ErrorCode.NONE), (5, 0, 0, ErrorCode.NONE)],
)
def test_waits_for_the_disk_too_where_that_is_asked_for(
    commit_to: int, flush_to: int, flushed: int, told: ErrorCode | None
) -> None:
    state = a_leader()
    fetch(state, 2, 3)
    assert end(a_wait(state, commit_to, flush_to), state, flushed) is told


def test_acks_one_does_not_wait_for_replicas_and_asks_for_no_isr() -> None:
    state = a_leader(min_isr=2, isr=(1,))
    assert end(a_wait(state, commit_to=0, flush_to=5), state, flushed=5) is ErrorCode.NONE


def test_fails_after_the_append_when_the_isr_became_too_small() -> None:
    state = a_leader(min_isr=2, isr=(1, 2))
    wait = a_wait(state)
    fetch(state, 2)
    state.apply(told(isr=(1,), version=1), 0)
    assert not state.has_min_isr
    assert end(wait, state) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_replica_that_is_about_to_join_counts_for_the_minimum_as_in_apache_kafka() -> None:
    state = a_leader(min_isr=2, isr=(1, 2))
    wait = a_wait(state)
    fetch(state, 2)
    state.apply(told(isr=(1,), version=1), 0)
    fetch(state, 2)
    assert state.isr_state.maximal == {1, 2}
    assert not state.has_min_isr, "nothing is appended until the controller has agreed"
    assert end(wait, state) is ErrorCode.NONE


def test_an_isr_below_its_minimum_is_told_only_once_the_record_is_committed() -> None:
    state = a_leader(min_isr=2, isr=(1, 2))
    wait = a_wait(state)
    state.apply(told(isr=(1,), version=1), 0)
    assert end(wait, state) is None


def test_fails_when_another_broker_leads() -> None:
    state = a_leader()
    wait = a_wait(state)
    fetch(state, 2, 3)
    assert state.apply(told(leader=2, epoch=1, isr=(2, 3), version=1), 0) is Transition.BECAME_FOLLOWER
    assert end(wait, state) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_goes_on_in_a_new_epoch_of_the_same_leader() -> None:
    state = a_leader()
    wait = a_wait(state)
    state.apply(told(epoch=1, isr=(1, 2), version=1), 0)
    assert end(wait, state) is None
    fetch(state, 2)
    assert end(wait, state) is ErrorCode.NONE


@pytest.mark.parametrize("is_told", [True, False])
def test_what_was_appended_before_leadership_was_lost_is_not_promised_when_it_is_back(is_told: bool) -> None:
    """Meanwhile another leader may have had it truncated, and other records may be at its offsets."""
    state = a_leader()
    wait = a_wait(state)
    if is_told:
        state.apply(told(leader=2, epoch=1, isr=(1, 2), version=1), 0)
    else:
        state.step_down()
    state.apply(told(epoch=2, isr=(1, 2), version=2), 0)
    fetch(state, 2)
    assert state.high_watermark == 5
    assert end(wait, state) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_disk_that_failed_promises_nothing() -> None:
    state = a_leader()
    fetch(state, 2, 3)
    assert end(a_wait(state), state, is_offline=True) is ErrorCode.KAFKA_STORAGE_ERROR
