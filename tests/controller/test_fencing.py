"""Who has seen whom dead, and what follows from it."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.decisions.cluster_state import ClusterState
from headrace.controller.decisions.fencing import (
    NEIGHBOURS,
    Budget,
    Suspicion,
    all_know_marks,
    is_confirmed,
    neighbours,
    parse_suspicion,
    without_successor,
    witnesses,
)
from headrace.controller.loading import load_brokers
from headrace.metadata import znodes
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.model import Broker, Endpoint, PartitionLeadership, Replicas, Topic
from headrace.metadata.registry import ensure_cluster, register_broker
from headrace.metadata.suspected_brokers import SuspectedBrokers
from headrace.metastore.store import ensure_path
from headrace.protocol import messages as m
from headrace.types import BrokerId, LeaderEpoch, TopicPartition
from tests.simulation.store import open_alone

numbers = st.integers(0, 2**31 - 1)


def broker(number: int, epoch: int = 1, directory: str | None = "d") -> Broker:
    endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092 + number),)
    return Broker(BrokerId(number), endpoints, epoch=epoch, directory=directory, supports_fencing=True)


def live(*brokers: Broker) -> dict[BrokerId, Broker]:
    return {each.id: each for each in brokers}


def seen(number: int, epoch: int, observer: int, observer_epoch: int) -> Suspicion:
    return Suspicion(BrokerId(number), epoch, BrokerId(observer), observer_epoch)


@given(st.builds(Suspicion, numbers, st.integers(0, 2**63), numbers, st.integers(0, 2**63)))
def test_a_sighting_is_read_back_from_its_name(suspicion: Suspicion) -> None:
    assert parse_suspicion(suspicion.name) == suspicion


@pytest.mark.parametrize("name", ("", "1-2-3", "1-2-3-4-5", "1-2-3-x", "1--3-4", "1-2-3-²"))
def test_other_nodes_are_no_suspicions(name: str) -> None:
    assert parse_suspicion(name) is None


def test_a_sighting_counts_for_one_registration_of_each_side_only() -> None:
    brokers = live(broker(1, 10), broker(2, 20), broker(3, 30))
    said = [
        seen(1, 10, 2, 20),
        seen(1, 9, 3, 30),  # of an earlier life
        seen(1, 10, 3, 29),  # by an earlier life
        seen(1, 10, 1, 10),  # of itself
        seen(1, 10, 4, 40),  # by nobody who is there
    ]
    assert witnesses(brokers[BrokerId(1)], said, brokers) == said[:1]


def test_the_controller_and_another_one_must_have_seen_it() -> None:
    two, three, four = seen(1, 10, 2, 20), seen(1, 10, 3, 30), seen(1, 10, 4, 40)
    assert is_confirmed([two, three], BrokerId(2))
    assert not is_confirmed([two], BrokerId(2))
    assert not is_confirmed([three, four], BrokerId(2))
    assert not is_confirmed([], BrokerId(2))


@given(st.sets(st.integers(0, 50), min_size=1))
def test_everybody_is_looked_after_by_as_many_as_there_can_be(ids: set[int]) -> None:
    brokers = {BrokerId(each) for each in ids}
    watched = {each: neighbours(each, brokers) for each in brokers}
    for each in brokers:
        observers = [other for other in brokers if each in watched[other]]
        assert each not in observers
        assert len(observers) == min(NEIGHBOURS, len(brokers) - 1)


def test_beside_brokers_that_do_not_know_marks_nobody_is_fenced() -> None:
    assert all_know_marks(live(broker(1), broker(2)))
    assert not all_know_marks(live(broker(1), broker(2, directory=None)))


def test_what_would_be_left_without_a_leader() -> None:
    state = ClusterState(brokers=live(broker(1), broker(2), broker(3)))
    replicas = Replicas((BrokerId(1), BrokerId(2)))
    state.topics["t"] = Topic("t", bytes(16), {0: replicas, 1: replicas, 2: replicas, 3: replicas})
    for number, (leader, isr) in enumerate(((1, (1, 2)), (1, (1,)), (1, (1, 9)), (2, (2,)))):
        state.leadership[TopicPartition("t", number)] = PartitionLeadership(
            BrokerId(leader), LeaderEpoch(0), tuple(map(BrokerId, isr)), 1
        )
    assert without_successor(state, BrokerId(1)) == (3, [TopicPartition("t", 1), TopicPartition("t", 2)])
    assert without_successor(state, BrokerId(3)) == (0, [])


def test_so_many_in_a_period_and_no_more() -> None:
    budget = Budget(2, 60)
    assert [budget.take(at) for at in (0, 1, 2, 59.9, 60, 60.5, 61)] == [True, True, False, False, True, False, True]


async def test_a_mark_is_for_one_registration_and_goes_with_the_next(tmp_path) -> None:  # type: ignore[no-untyped-def]
    store = await open_alone(tmp_path)
    await ensure_cluster(store)
    await ensure_path(store, znodes.FENCED)
    registered = await register_broker(store, broker(1), 0)
    other = await register_broker(store, broker(2), 0)
    await store.create(znodes.fenced(1), znodes.encode_fenced(registered.epoch))
    await store.create(znodes.fenced(2), znodes.encode_fenced(other.epoch - 1))
    assert set(await load_brokers(store)) == {2}
    again = await register_broker(store, broker(1), 0)
    assert again.epoch > registered.epoch
    assert set(await load_brokers(store)) == {1, 2}
    assert await store.exists(znodes.fenced(1)) is None
    await store.close()


async def test_a_doubt_is_over_when_the_broker_answers_or_is_known_to_be_gone() -> None:
    suspected_brokers = SuspectedBrokers()
    assert suspected_brokers.among(lambda: pytest.fail("nobody is in doubt")) == []
    suspected_brokers.begin(BrokerId(1))
    suspected_brokers.begin(BrokerId(2))
    suspected_brokers.begin(BrokerId(2))
    assert suspected_brokers.among(lambda: {BrokerId(3)}) == []
    (first,), (second,) = suspected_brokers.among(lambda: {BrokerId(1)}), suspected_brokers.among(lambda: {BrokerId(2)})
    suspected_brokers.end(BrokerId(1))
    assert (first.done(), second.done()) == (True, False)
    suspected_brokers.keep(lambda: {BrokerId(1)})
    assert second.done()


async def test_a_doubt_that_nobody_ends_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.metadata.suspected_brokers.SUSPICION_MAX_S", 0.01)
    suspected_brokers = SuspectedBrokers()
    suspected_brokers.begin(BrokerId(1))
    await asyncio.wait_for(asyncio.gather(*suspected_brokers.among(lambda: {BrokerId(1)})), 30)
    assert suspected_brokers.among(lambda: {BrokerId(1)}) == []


async def test_who_leads_something_still_stays_in_doubt_until_its_successor_is_told() -> None:
    def told(leader: int, *live: int, has_partition: bool = True) -> m.UpdateMetadataRequest:
        state = m.UpdateMetadataRequest.UpdateMetadataPartitionState(
            topic_name="t", partition_index=0, leader=leader, leader_epoch=1, isr=[leader], replicas=[1, 2]
        )
        topic = m.UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name="t", topic_id=bytes(15) + b"t", partition_states=[state]
        )
        brokers = [m.UpdateMetadataRequest.UpdateMetadataBroker(id=each, endpoints=[], rack=None) for each in live]
        return m.UpdateMetadataRequest(
            controller_id=2,
            controller_epoch=1,
            broker_epoch=1,
            topic_states=[topic] if has_partition else [],
            live_brokers=brokers,
        )

    metadata = MetadataCache()
    metadata.apply(told(1, 1, 2))
    metadata.suspected_brokers.begin(BrokerId(1))
    metadata.apply(told(1, 2, has_partition=False))  # a new controller says first who lives
    assert metadata.suspected_brokers.among(lambda: {BrokerId(1)})
    metadata.apply(told(2, 2))
    assert not metadata.suspected_brokers.among(lambda: {BrokerId(1)})
