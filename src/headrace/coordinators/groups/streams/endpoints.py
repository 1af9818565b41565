"""Where interactive queries go: the partitions of each process that has an endpoint (`application.server`).

A heartbeat's answer has them when the member's knowledge is older than the group's. Source: Kafka's
`EndpointToPartitionsManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from headrace.coordinators.assignors.sticky_tasks import TaskSets
    from headrace.coordinators.groups.streams.configured_topology import (
        ConfiguredSubtopology,
        ConfiguredTopology,
        PartitionCount,
    )
    from headrace.coordinators.groups.streams.member import StreamsMember, UserEndpoint
    from headrace.coordinators.groups.streams.tasks import TaskEpochs

TopicPartitions: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


class EndpointPartitions(NamedTuple):
    """The partitions of source and repartition topics that one member's tasks read."""

    endpoint: UserEndpoint
    active: TopicPartitions
    standby: TopicPartitions


def partitions_by_endpoint(
    members: Iterable[StreamsMember],
    known: dict[str, EndpointPartitions],
    configured: ConfiguredTopology | None,
    partition_count: PartitionCount,
) -> list[EndpointPartitions]:
    """The partitions of every member that has an endpoint. `known` has those computed before, by member id, and gets
    the others."""
    subtopologies = {} if configured is None else configured.subtopologies
    found = []
    for member in members:
        each = known.get(member.member_id)
        if each is None and member.user_endpoint is not None:
            each = known[member.member_id] = EndpointPartitions(
                member.user_endpoint,
                _topic_partitions(member.assigned.active, subtopologies, partition_count),
                _topic_partitions(member.assigned.standby, subtopologies, partition_count),
            )
        if each is not None:
            found.append(each)
    return found


def _topic_partitions(
    tasks: TaskEpochs | TaskSets, subtopologies: Mapping[str, ConfiguredSubtopology], partition_count: PartitionCount
) -> TopicPartitions:
    found = []
    for name, partitions in tasks.items():
        subtopology = subtopologies.get(name)
        if subtopology is None:
            continue  # the topics do not fit any more: the next assignment takes the task away
        numbers = sorted(partitions)
        for topic in (*subtopology.source_topics, *(each.name for each in subtopology.repartition_sources)):
            count = partition_count(topic)
            if count is not None:
                found.append((topic, tuple(numbers[:count])))
    return tuple(found)
