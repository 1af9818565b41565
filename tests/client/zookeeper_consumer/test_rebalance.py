"""The rebalance as a pure function: each partition has one owner, and every member computes the same."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.zookeeper_consumer.rebalance import (
    RANGE,
    ROUND_ROBIN,
    Owners,
    OwnershipPlan,
    Registries,
    assign_round_robin,
    java_hash,
    rebalance,
)
from headrace.client.zookeeper_consumer.subscription import ThreadId
from headrace.errors import InvalidConfig
from headrace.types import TopicPartition

TOPICS = ("clicks", "orders", "views")
groups = st.dictionaries(
    st.sampled_from([f"g_host-{number}-{number:08x}" for number in range(12)]),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1),
    min_size=1,
    max_size=6,
)
topics = st.fixed_dictionaries({topic: st.sets(st.integers(0, 40), max_size=30).map(list) for topic in TOPICS})


def plans(streams: dict[str, dict[str, int]], partitions: dict[str, list[int]], strategy: str = RANGE) -> Owners:
    """What all members claim that own nothing; fails if two claim the same."""
    owners: Owners = {}
    for consumer, counts in streams.items():
        seen = Registries(streams, {topic: partitions[topic] for topic in counts})  # it reads no other topics
        plan = rebalance(consumer, seen, {}, strategy)
        assert not plan.release
        assert not plan.claim.keys() & owners.keys()
        assert {thread.consumer_id for thread in plan.claim.values()} <= {consumer}
        owners |= plan.claim
    return owners


def test_the_first_threads_have_one_partition_more() -> None:
    streams = {"C1": {"t": 2}, "C2": {"t": 2}}
    owners = plans(streams, {"t": [4, 0, 3, 1, 2]})
    assert {partition.partition: str(thread) for partition, thread in owners.items()} == {
        0: "C1-0", 1: "C1-0", 2: "C1-1", 3: "C2-0", 4: "C2-1",
    }  # fmt: skip


def test_threads_are_sorted_as_text_as_every_other_member_does() -> None:
    owners = plans({"C": {"t": 11}}, {"t": list(range(11))})
    assert [str(owners[TopicPartition("t", number)]) for number in range(4)] == ["C-0", "C-1", "C-10", "C-2"]


@given(streams=groups, partitions=topics)
def test_each_partition_of_a_consumed_topic_has_exactly_one_owner(
    streams: dict[str, dict[str, int]], partitions: dict[str, list[int]]
) -> None:
    owners = plans(streams, partitions)
    consumed = {topic for counts in streams.values() for topic in counts}
    assert owners.keys() == {TopicPartition(topic, number) for topic in consumed for number in partitions[topic]}
    for topic in consumed:
        threads = [ThreadId(name, n) for name, counts in streams.items() for n in range(counts.get(topic, 0))]
        shares = [sum(owner == thread for p, owner in owners.items() if p.topic == topic) for thread in threads]
        assert max(shares) - min(shares) <= 1


@given(streams=groups, partitions=topics, seed=st.integers())
def test_every_member_computes_the_same_in_whatever_order_it_read(
    streams: dict[str, dict[str, int]], partitions: dict[str, list[int]], seed: int
) -> None:
    order = random.Random(seed)
    names = list(streams)
    order.shuffle(names)
    shuffled = {topic: order.sample(numbers, len(numbers)) for topic, numbers in partitions.items()}
    assert plans({name: streams[name] for name in names}, shuffled) == plans(streams, partitions)


@given(before=groups, after=groups, partitions=topics, seed=st.integers())
def test_a_changed_group_settles_and_no_partition_ever_has_two_owners(
    before: dict[str, dict[str, int]], after: dict[str, dict[str, int]], partitions: dict[str, list[int]], seed: int
) -> None:
    order = random.Random(seed)
    registry = plans(before, partitions)
    registry = {
        p: thread for p, thread in registry.items() if thread.consumer_id in after
    }  # the others' nodes are gone
    owned = {name: {p: t for p, t in registry.items() if t.consumer_id == name} for name in after}
    for _ in range(len(after) + 1):  # rounds of retries
        for name in order.sample(list(after), len(after)):
            plan = rebalance(name, Registries(after, {t: partitions[t] for t in after[name]}), owned[name])
            apply(plan, registry, owned[name])
    assert registry == plans(after, partitions)
    for name in after:
        assert rebalance(name, Registries(after, {t: partitions[t] for t in after[name]}), owned[name]) == ({}, {})


def apply(plan: OwnershipPlan, registry: Owners, owned: Owners) -> None:
    """Steps 8 and 9: an entry that another member still has stays."""
    for partition, thread in plan.release.items():
        assert registry.pop(partition) == thread
        del owned[partition]
    for partition, thread in plan.claim.items():
        if partition not in registry:
            registry[partition] = owned[partition] = thread


@given(
    counts=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 4), min_size=1),
    partitions=st.fixed_dictionaries({topic: st.sets(st.integers(0, 40), max_size=20).map(list) for topic in TOPICS}),
)
def test_round_robin_spreads_all_partitions_over_all_threads(
    counts: dict[str, int], partitions: dict[str, list[int]]
) -> None:
    streams = {name: dict.fromkeys(TOPICS, count) for name, count in counts.items()}
    owners = plans(streams, partitions, ROUND_ROBIN)
    assert owners.keys() == {TopicPartition(topic, number) for topic in TOPICS for number in partitions[topic]}
    threads = [ThreadId(name, n) for name, count in counts.items() for n in range(count)]
    shares = [list(owners.values()).count(thread) for thread in threads]
    assert max(shares) - min(shares) <= 1


def test_round_robin_refuses_members_that_differ() -> None:
    seen = Registries({"a": {"t": 1, "u": 2}}, {"t": [0], "u": [0]})
    with pytest.raises(InvalidConfig, match="the streams of u and t differ"):
        assign_round_robin(seen)


def test_hashes_are_those_of_java() -> None:
    assert java_hash("hello") == 99162322
    assert java_hash("[orders,0]") == _java_hash("[orders,0]")
    assert java_hash("") == 0
    assert java_hash("polygenelubricants") == -(1 << 31)


def _java_hash(text: str) -> int:
    value: int = sum(ord(letter) * pow(31, len(text) - 1 - pos) for pos, letter in enumerate(text)) % (1 << 32)
    return value - (1 << 32) * (value >= 1 << 31)
