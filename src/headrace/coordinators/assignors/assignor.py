"""The interface of the assignors: the members of a group and its topics in, a target assignment out.

An assignor keeps what it can of the present target assignment, and returns the very same mapping for a member whose
partitions do not change. Its result is a function of its arguments alone, and members are taken in the mapping's order.
Source: Kafka's `PartitionAssignor`, `GroupSpec`, `SubscribedTopicDescriber`. Racks are left out: no assignor of Kafka
4.3 looks at them.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

TopicId = bytes
"""A topic's id, 16 bytes."""

Partitions = Mapping[TopicId, frozenset[int]]
"""Partitions of several topics. No topic has an empty set."""

NO_PARTITIONS: Partitions = {}


class AssignorMember(NamedTuple):
    """A member of a group, as an assignor knows it."""

    topics: frozenset[TopicId]
    """The topics that it subscribes to and that exist. Members that share one object are compared at no cost."""
    assignment: Partitions = NO_PARTITIONS
    """Its partitions in the present target assignment."""
    instance_id: str | None = None
    """The static member's id."""


TargetAssignment = dict[str, Partitions]
"""Member id to its partitions; every member of the group is in it."""

PartitionAssignor = Callable[[Mapping[str, AssignorMember], Mapping[TopicId, int]], TargetAssignment]
"""(members by id, partition count of each topic that a member subscribes to) -> who is to own what.

Raises PartitionAssignorError for a subscribed topic without a partition count.
"""


class PartitionAssignorError(Exception):
    """No assignment can be computed."""


def partition_count(topic: TopicId, partition_counts: Mapping[TopicId, int]) -> int:
    """How many partitions the topic has; raises PartitionAssignorError if it is unknown."""
    count = partition_counts.get(topic)
    if count is None:
        raise PartitionAssignorError(f"members subscribe to the topic with id {topic.hex()}, which does not exist")
    return count


def is_homogeneous(members: Mapping[str, AssignorMember]) -> bool:
    """Whether all members subscribe to the same topics."""
    first: frozenset[TopicId] | None = None
    for member in members.values():
        if first is None:
            first = member.topics
        elif member.topics is not first and member.topics != first:
            return False
    return True
