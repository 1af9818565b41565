"""The descriptions of ConsumerGroupDescribe. Source: Kafka's `ConsumerGroup.asDescribedGroup`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.coordinators.groups.consumer.group import ConsumerGroup
from headrace.coordinators.groups.consumer.members import ConsumerMember
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.groups.modern.topics import Topics
    from headrace.errors import ErrorCode

CLASSIC_TYPE, CONSUMER_TYPE = 0, 1


def describe_refused(
    group_id: str, error: ErrorCode, message: str | None = None
) -> m.ConsumerGroupDescribeResponse.DescribedGroup:
    return m.ConsumerGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=error, error_message=message)


def describe(
    group: ConsumerGroup, assignors: Sequence[str], topics: Topics
) -> m.ConsumerGroupDescribeResponse.DescribedGroup:
    """Describes a group with its members; topics that do not exist any more are left out."""
    return m.ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor(assignors),
        members=[_member(each, group, topics) for each in group.members.values()],
    )


def _member(member: ConsumerMember, group: ConsumerGroup, topics: Topics) -> m.ConsumerGroupDescribeResponse.Member:
    owned: dict[bytes, list[int]] = {}
    for partitions in (member.assigned, member.revoking):  # it has what it is asked to give up
        for topic_id, numbers in partitions.items():
            owned.setdefault(topic_id, []).extend(numbers)
    return m.ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(owned, topics),
        target_assignment=_assignment(group.target.get(member.member_id, {}), topics),
        member_type=CONSUMER_TYPE if member.classic is None else CLASSIC_TYPE,
    )


def _assignment(
    partitions: Mapping[bytes, Iterable[int]], topics: Topics
) -> m.ConsumerGroupDescribeResponse.Assignment:
    return m.ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            m.ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=topic_id, topic_name=topic.name, partitions=sorted(numbers)
            )
            for topic_id, numbers in partitions.items()
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )
