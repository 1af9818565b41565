"""Which partitions a consumer owns: Kafka 0.7's rebalancing algorithm. Pure: every member computes the same.

    1. for each topic T that Ci subscribes to
    2.   let PT be all partitions producing topic T
    3.   let CG be all consumers in the same group as Ci that consume topic T
    4.   sort PT
    5.   sort CG
    6.   let i be the index position of Ci in CG and let N = size(PT)/size(CG)
    7.   assign partitions from i*N to (i+1)*N - 1 to consumer Ci
    8.   remove current entries owned by Ci from the partition owner registry
    9.   add newly assigned partitions to the partition owner registry

The consumers of steps 3 to 7 are threads, one for each stream, as since 0.7. The remainder of step 6 goes to the first
size(PT) % size(CG) threads, one partition each. An entry that step 8 would remove and step 9 add for the same thread
stays, so that its stream goes on; Kafka's consumer removes all. The strategy `roundrobin` of 0.8.2 replaces steps 4 to
7. Source: Kafka 0.8.2's `PartitionAssignor`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.client.zookeeper_consumer.subscription import ThreadId, in_java_order, thread_ids
from headrace.errors import InvalidConfig
from headrace.types import TopicPartition

RANGE, ROUND_ROBIN = "range", "roundrobin"
STRATEGIES = (RANGE, ROUND_ROBIN)

Owners = dict[TopicPartition, ThreadId]


class Registries(NamedTuple):
    """What a member reads before it decides."""

    streams: Mapping[str, Mapping[str, int]]
    """The number of streams by consumer id and topic."""
    partitions: Mapping[str, Sequence[int]]
    """The partitions of each topic that the member subscribes to."""


class OwnershipPlan(NamedTuple):
    """What a member changes in the partition owner registry."""

    release: Owners
    """Step 8: the entries to remove."""
    claim: Owners
    """Step 9: the entries to add. Each may have to wait until its owner removes it."""


def rebalance(consumer_id: str, seen: Registries, owned: Owners, strategy: str = RANGE) -> OwnershipPlan:
    """The nine steps for the consumer Ci, which has the entries `owned`. Raises InvalidConfig if `roundrobin` is not
    possible."""
    assigned = assign_round_robin(seen) if strategy == ROUND_ROBIN else assign_ranges(consumer_id, seen)
    mine = {partition: thread for partition, thread in assigned.items() if thread.consumer_id == consumer_id}
    return OwnershipPlan(
        release={partition: thread for partition, thread in owned.items() if mine.get(partition) != thread},
        claim={partition: thread for partition, thread in mine.items() if owned.get(partition) != thread},
    )


def assign_ranges(consumer_id: str, seen: Registries) -> Owners:
    """Steps 1 to 7: the owners of the topics that the consumer subscribes to."""
    owners: Owners = {}
    for topic in seen.streams.get(consumer_id, {}):  # 1
        producing = sorted(seen.partitions.get(topic, ()))  # 2, 4
        consuming = thread_ids(seen.streams, topic)  # 3, 5
        share, remainder = divmod(len(producing), len(consuming))  # 6
        start = 0
        for position, thread in enumerate(consuming):  # 7
            end = start + share + (position < remainder)
            owners.update((TopicPartition(topic, number), thread) for number in producing[start:end])
            start = end
    return owners


def assign_round_robin(seen: Registries) -> Owners:
    """The owners of all partitions, dealt out to the threads in turn. Raises InvalidConfig if members differ."""
    topics = sorted({topic for counts in seen.streams.values() for topic in counts})
    threads = {topic: thread_ids(seen.streams, topic) for topic in topics}
    for topic in topics[1:]:
        if threads[topic] != threads[topics[0]]:
            raise InvalidConfig(
                f"partition_assignment_strategy=roundrobin: the streams of {topic} and {topics[0]} differ; all members "
                "of the group must read the same topics with the same numbers of streams, or use range"
            )
    everything = [
        TopicPartition(topic, number) for topic in topics for number in sorted(seen.partitions.get(topic, ()))
    ]
    everything.sort(key=lambda each: java_hash(f"[{each.topic},{each.partition}]"))
    dealt = sorted(threads[topics[0]], key=in_java_order) if topics else []
    return {partition: dealt[turn % len(dealt)] for turn, partition in enumerate(everything)}


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, by which 0.8.2 orders partitions."""
    value = 0
    units = text.encode("utf-16-be")
    for pos in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[pos : pos + 2], "big")) & 0xFFFF_FFFF
    return value - (1 << 32) if value >= 1 << 31 else value
