"""Describes groups of the kinds that came after the classic one: consumer (KIP-848), share and streams groups.

Each kind has a request of its own, which the group's coordinator answers. The answers become one description, in which
a member has its partitions; a member of a streams group has those of the source topics of its active tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.client.core.connection import Connection
from headrace.client.core.failures import error_for
from headrace.client.core.timing import Deadline
from headrace.protocol import messages as m
from headrace.types import Offset, TopicPartition

CLASSIC, CONSUMER, SHARE, STREAMS = "Classic", "Consumer", "Share", "Streams"
"""The kinds of groups, as ListGroups names them."""


class GroupMember(NamedTuple):
    """One member of a group, with its partitions."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group and its members; `assignor` is empty while there are none."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]


Describe = Callable[[Connection, Deadline], GroupDescription]


def _assigned(
    member: m.ConsumerGroupDescribeResponse.Member | m.ShareGroupDescribeResponse.Member,
) -> tuple[TopicPartition, ...]:
    """The partitions that a member has."""
    topics = member.assignment.topic_partitions
    return tuple(sorted(TopicPartition(each.topic_name, number) for each in topics for number in each.partitions))


def describe_consumer(group_id: str) -> Describe:
    """The description of a consumer group."""

    def call(connection: Connection, deadline: Deadline) -> GroupDescription:
        request = m.ConsumerGroupDescribeRequest(group_ids=[group_id])
        [group] = connection.call(request, m.ConsumerGroupDescribeResponse, deadline).groups
        if group.error_code:
            raise error_for(group.error_code, f"group {group_id}")
        members = (
            GroupMember(each.member_id, each.instance_id, each.client_id, each.client_host, _assigned(each))
            for each in group.members
        )
        return GroupDescription(group_id, group.group_state, "consumer", group.assignor_name, tuple(sorted(members)))

    return call


def describe_share(group_id: str) -> Describe:
    """The description of a share group, whose members have partitions in common."""

    def call(connection: Connection, deadline: Deadline) -> GroupDescription:
        request = m.ShareGroupDescribeRequest(group_ids=[group_id])
        [group] = connection.call(request, m.ShareGroupDescribeResponse, deadline).groups
        if group.error_code:
            raise error_for(group.error_code, f"group {group_id}")
        members = (
            GroupMember(each.member_id, None, each.client_id, each.client_host, _assigned(each))
            for each in group.members
        )
        return GroupDescription(group_id, group.group_state, "share", group.assignor_name, tuple(sorted(members)))

    return call


def describe_streams(group_id: str) -> Describe:
    """The description of a streams group."""

    def call(connection: Connection, deadline: Deadline) -> GroupDescription:
        request = m.StreamsGroupDescribeRequest(group_ids=[group_id])
        [group] = connection.call(request, m.StreamsGroupDescribeResponse, deadline).groups
        if group.error_code:
            raise error_for(group.error_code, f"group {group_id}")
        subtopologies = (group.topology.subtopologies or []) if group.topology is not None else []
        sources = {
            each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
            for each in subtopologies
        }
        members = (
            GroupMember(
                each.member_id, each.instance_id, each.client_id, each.client_host,
                tuple(sorted(_partitions(each.assignment.active_tasks, sources))),
            )
            for each in group.members
        )  # fmt: skip
        return GroupDescription(group_id, group.group_state, "streams", "", tuple(sorted(members)))

    return call


def share_offsets(group_id: str) -> Callable[[Connection, Deadline], dict[TopicPartition, Offset]]:
    """The start offset of each partition of a share group."""

    def call(connection: Connection, deadline: Deadline) -> dict[TopicPartition, Offset]:
        requested = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(
            group_id=group_id, topics=None
        )
        request = m.DescribeShareGroupOffsetsRequest(groups=[requested])
        [group] = connection.call(request, m.DescribeShareGroupOffsetsResponse, deadline).groups
        if group.error_code:
            raise error_for(group.error_code, f"offsets of group {group_id}")
        return {
            TopicPartition(topic.topic_name, part.partition_index): Offset(part.start_offset)
            for topic in group.topics
            for part in topic.partitions
            if not part.error_code and part.start_offset >= 0
        }

    return call


def _partitions(
    tasks: list[m.StreamsGroupDescribeResponse.TaskIds], sources: Mapping[str, list[str]]
) -> set[TopicPartition]:
    return {
        TopicPartition(topic, number)
        for task in tasks
        for topic in sources.get(task.subtopology_id, [])
        for number in task.partitions
    }
