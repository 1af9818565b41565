"""Administration of consumer groups: list, describe, set offsets, delete.

The coordinator of a group returns its offsets and members, and sets its offsets. The list of groups comes from every
broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import NamedTuple, TypeVar

from headrace.client.consumer.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection
from headrace.client.core.failures import error_for
from headrace.client.core.group_metadata import OffsetAndMetadata
from headrace.client.core.settings import Address
from headrace.client.core.timing import Deadline
from headrace.client.operations.group_kinds import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
    GroupDescription,
    GroupMember,
    describe_consumer,
    describe_share,
    describe_streams,
    share_offsets,
)
from headrace.errors import KafkaError
from headrace.protocol import messages as m
from headrace.types import Offset, TopicPartition

T = TypeVar("T")
_DESCRIBE = {CONSUMER: describe_consumer, SHARE: describe_share, STREAMS: describe_streams}

_GROUP_KEY_TYPE = 0
_ALL_TOPICS: list[m.OffsetFetchRequest.OffsetFetchRequestTopic] | None = None


class GroupListing(NamedTuple):
    """One group as a broker lists it; `state` is empty if the broker is older than Kafka 2.6, `kind` (Classic,
    Consumer, Share or Streams) if it is older than 3.8."""

    group_id: str
    state: str
    protocol_type: str
    kind: str = ""


class GroupAdmin:
    """Calls about groups on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list_groups(self) -> list[GroupListing]:
        """Every group of the cluster, by name."""
        deadline = self._cluster.deadline()
        return self._cluster.retry(lambda: self._list(deadline), deadline)

    def kind_of(self, group_id: str) -> str:
        """The kind of a group; Classic if it does not exist, or the brokers know no other kind."""
        return next((each.kind for each in self.list_groups() if each.group_id == group_id), "") or CLASSIC

    def describe_group(self, group_id: str, kind: str = CLASSIC) -> GroupDescription:
        """One group of a `kind`; the state of a classic one is Dead if it does not exist."""
        if kind in _DESCRIBE:
            return self._at_coordinator(group_id, _DESCRIBE[kind](group_id))

        def call(connection: Connection, deadline: Deadline) -> GroupDescription:
            request = m.DescribeGroupsRequest(groups=[group_id])
            answer = connection.call(request, m.DescribeGroupsResponse, deadline)
            described = answer.groups[0]
            if described.error_code:
                raise error_for(described.error_code, f"group {group_id}")
            return _description(described)

        return self._at_coordinator(group_id, call)

    def offsets(self, group_id: str, kind: str = CLASSIC) -> dict[TopicPartition, Offset]:
        """Every offset that the group has committed; of a share group, the start of each partition."""
        if kind == SHARE:
            return self._at_coordinator(group_id, share_offsets(group_id))
        return {partition: Offset(place.offset) for partition, place in self.committed(group_id).items()}

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that the group has committed for `partitions` (None: all), with their commit metadata.

        `require_stable` waits for transactions that may still change one; brokers before Kafka 2.5 do not wait.
        """
        topics = _ALL_TOPICS
        if partitions is not None:
            topics = [
                m.OffsetFetchRequest.OffsetFetchRequestTopic(
                    name=name, partition_indexes=[each.partition for each in some]
                )
                for name, some in groupby(sorted(partitions), lambda each: each.topic)
            ]

        def call(connection: Connection, deadline: Deadline) -> dict[TopicPartition, OffsetAndMetadata]:
            request = m.OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)
            answer = connection.call(request, m.OffsetFetchResponse, deadline)
            if answer.error_code:
                raise error_for(answer.error_code, f"offsets of group {group_id}")
            for topic in answer.topics:
                for part in topic.partitions:
                    if part.error_code:
                        where = TopicPartition(topic.name, part.partition_index)
                        raise error_for(part.error_code, f"offset of group {group_id} for {where}")
            return {
                TopicPartition(topic.name, part.partition_index): OffsetAndMetadata(
                    part.committed_offset, part.metadata or ""
                )
                for topic in answer.topics
                for part in topic.partitions
                if part.committed_offset >= 0
            }

        return self._at_coordinator(group_id, call)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Set offsets of a group, and create it if necessary. Raises UNKNOWN_MEMBER_ID while it has members."""
        if not offsets:
            return
        topics: dict[str, list[m.OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
        for (topic, index), offset in offsets.items():
            part = m.OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
            topics.setdefault(topic, []).append(part)
        requested = m.OffsetCommitRequest.OffsetCommitRequestTopic
        request = m.OffsetCommitRequest(
            group_id=group_id, topics=[requested(name=name, partitions=parts) for name, parts in topics.items()]
        )

        def call(connection: Connection, deadline: Deadline) -> None:
            for answered in connection.call(request, m.OffsetCommitResponse, deadline).topics:
                for part in answered.partitions:
                    if part.error_code:
                        where = TopicPartition(answered.name, part.partition_index)
                        raise error_for(part.error_code, f"commit of group {group_id} for {where}")

        self._at_coordinator(group_id, call)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets. Raises GROUP_SUBSCRIBED_TO_TOPIC for a topic that a member subscribes to."""
        requested = m.OffsetDeleteRequest.OffsetDeleteRequestTopic
        request = m.OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                requested(
                    name=name,
                    partitions=[
                        m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=each.partition)
                        for each in some
                    ],
                )
                for name, some in groupby(sorted(partitions), lambda each: each.topic)
            ],
        )

        def call(connection: Connection, deadline: Deadline) -> None:
            answer = connection.call(request, m.OffsetDeleteResponse, deadline)
            if answer.error_code:
                raise error_for(answer.error_code, f"offsets of group {group_id}")
            for topic in answer.topics:
                for part in topic.partitions:
                    if part.error_code:
                        where = TopicPartition(topic.name, part.partition_index)
                        raise error_for(part.error_code, f"offset of group {group_id} for {where}")

        self._at_coordinator(group_id, call)

    def delete_group(self, group_id: str) -> None:
        """Delete a group with its offsets. Raises NON_EMPTY_GROUP while it has members."""

        def call(connection: Connection, deadline: Deadline) -> None:
            request = m.DeleteGroupsRequest(groups_names=[group_id])
            answer = connection.call(request, m.DeleteGroupsResponse, deadline)
            for result in answer.results:
                if result.error_code:
                    raise error_for(result.error_code, f"group {group_id}")

        self._at_coordinator(group_id, call)

    def _list(self, deadline: Deadline) -> list[GroupListing]:
        found: set[GroupListing] = set()
        for broker in self._cluster.refresh([], deadline).brokers:
            answer = self._cluster.call(broker, m.ListGroupsRequest(), m.ListGroupsResponse, deadline)
            if answer.error_code:
                raise error_for(answer.error_code, f"groups of broker {broker}")
            found |= {
                GroupListing(group.group_id, group.group_state, group.protocol_type, group.group_type.capitalize())
                for group in answer.groups
            }
        return sorted(found)

    def _at_coordinator(self, group_id: str, call: Callable[[Connection, Deadline], T]) -> T:
        deadline = self._cluster.deadline()

        def attempt() -> T:
            request = m.FindCoordinatorRequest(key=group_id, key_type=_GROUP_KEY_TYPE)
            found = self._cluster.call_any(request, m.FindCoordinatorResponse, deadline)
            if found.error_code:
                raise error_for(found.error_code, f"coordinator of group {group_id}")
            limit = deadline.sooner(self._cluster.settings.request_timeout_ms)
            connection = self._cluster.dial(Address(found.host, found.port), limit)
            try:
                return call(connection, limit)
            finally:
                connection.close()

        return self._cluster.retry(attempt, deadline)


def _description(described: m.DescribeGroupsResponse.DescribedGroup) -> GroupDescription:
    members = [
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assignment(described.protocol_type, bytes(member.member_assignment)),
        )
        for member in described.members
    ]
    return GroupDescription(
        described.group_id,
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        tuple(sorted(members)),
    )


def _assignment(protocol_type: str, data: bytes) -> tuple[TopicPartition, ...]:
    """A consumer's partitions; empty for groups of other protocol types (Connect), which encode something else."""
    if protocol_type != PROTOCOL_TYPE:
        return ()
    try:
        return tuple(decode_assignment(data))
    except KafkaError:
        return ()
