"""The cooperative sticky assignor: the sticky one in two generations, so that members keep consuming what stays.

A partition that moves is given to nobody as long as another member owns it. That member gives it up because it is not
in its assignment, and joins again; in the generation that follows, its new owner gets it. Source: Kafka's
`CooperativeStickyAssignor`, KIP-429.
"""

from collections.abc import Mapping, Sequence

from headrace.client.consumer.assignors.member import NO_RACKS, Assignment, Member, Racks
from headrace.client.consumer.assignors.sticky import assign_sticky
from headrace.types import TopicPartition


def assign_cooperative_sticky(
    members: Sequence[Member], partition_counts: Mapping[str, int], partition_racks: Racks = NO_RACKS
) -> Assignment:
    """The sticky assignment without the partitions that other members must give up first."""
    owners: dict[TopicPartition, list[Member]] = {}
    for member in members:
        for partition in member.owned:
            owners.setdefault(partition, []).append(member)
    generations = {member.member_id: member.generation for member in members}

    def is_free_for(member_id: str, partition: TopicPartition) -> bool:
        """Whether nobody else owns it: a member that also does wins by the newer generation alone."""
        claimed = owners.get(partition, ())
        owns_it = any(owner.member_id == member_id for owner in claimed)
        return all(
            owner.member_id == member_id or (owns_it and owner.generation < generations[member_id]) for owner in claimed
        )

    wanted = assign_sticky(members, partition_counts, partition_racks)
    return {
        member_id: [partition for partition in partitions if is_free_for(member_id, partition)]
        for member_id, partitions in wanted.items()
    }
