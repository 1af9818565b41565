"""The sticky assignor: members own as many partitions as possible alike, and as few as possible move.

Balance comes before stickiness. Who owned a partition in the newest generation keeps it. If two members claim a
partition in the same generation, neither keeps it for having claimed it.

    all subscribe to the same topics    n div m partitions each, n mod m members one more
    else                                no partition can move to another subscriber that has two fewer than its owner

Source: Kafka's `AbstractStickyAssignor`. Left out: racks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from headrace.client.consumer.assignors.member import NO_RACKS, Assignment, Member, Racks, subscribed_topics
from headrace.client.consumer.assignors.sticky_balance import Balance
from headrace.types import TopicPartition


def assign_sticky(
    members: Sequence[Member], partition_counts: Mapping[str, int], partition_racks: Racks = NO_RACKS
) -> Assignment:
    """Assigns each partition to one subscriber, to its owner where that keeps the balance."""
    if not members:
        return {}
    topics = subscribed_topics(members, partition_counts)
    kept = claims(members, {topic: partition_counts[topic] for topic in topics})
    if len({member.topics for member in members}) == 1:
        found = _assign_alike([TopicPartition(t, p) for t in topics for p in range(partition_counts[t])], kept)
    else:
        balance = Balance(members, {topic: partition_counts[topic] for topic in topics}, kept)
        balance.give_unowned()
        balance.move_until_balanced()
        found = balance.owned()
    return {member_id: sorted(partitions) for member_id, partitions in found.items()}


def claims(members: Sequence[Member], partition_counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """What each member may keep: what it owned of its topics, and no other member in as new a generation."""
    newest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        for partition in set(member.owned):
            generation, _ = newest.get(partition, (None, None))
            if generation is None or member.generation > generation:
                newest[partition] = (member.generation, member.member_id)
            elif member.generation == generation:
                newest[partition] = (generation, None)
    return {
        member.member_id: [
            partition
            for partition in dict.fromkeys(member.owned)
            if newest[partition][1] == member.member_id
            and partition.topic in member.topics
            and partition.partition < partition_counts.get(partition.topic, 0)
        ]
        for member in members
    }


def _assign_alike(partitions: list[TopicPartition], kept: Mapping[str, list[TopicPartition]]) -> Assignment:
    """Assigns to members who all subscribe to the same topics."""
    share, extras = divmod(len(partitions), len(kept))
    found: Assignment = {}
    for member_id, owned in kept.items():
        takes_extra = extras > 0 and len(owned) > share
        extras -= takes_extra
        by_number = sorted(owned, key=lambda each: (each.partition, each.topic))  # spreads what moves over the topics
        found[member_id] = by_number[: share + takes_extra]
    taken = {partition for owned in found.values() for partition in owned}
    below = deque(sorted(member_id for member_id, owned in found.items() if len(owned) < share))
    even = deque(sorted(member_id for member_id, owned in found.items() if len(owned) == share))
    for partition in partitions:
        if partition in taken:
            continue
        member_id = (below or even).popleft()
        found[member_id].append(partition)
        if len(found[member_id]) < share:
            below.append(member_id)
        elif len(found[member_id]) == share:
            even.append(member_id)
    return found
