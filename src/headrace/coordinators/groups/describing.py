"""The group descriptions of ListGroups and DescribeGroups. Source: Kafka's `GroupOverview`, `GroupSummary`."""

from typing import NamedTuple

from headrace.coordinators.groups.group import Group, State
from headrace.errors import ErrorCode
from headrace.types import TopicPartition


class Position(NamedTuple):
    """The committed offset of a group in one partition."""

    group_id: str
    partition: TopicPartition
    offset: int


class GroupOverview(NamedTuple):
    """One group of ListGroups."""

    group_id: str
    protocol_type: str
    state: State


class MemberDescription(NamedTuple):
    """One member of DescribeGroups; metadata and assignment only while the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """One group of DescribeGroups; `state` is empty if there is an error."""

    error: ErrorCode
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = ()


def describe(group: Group | None, error: ErrorCode) -> GroupDescription:
    """Describes a group. One that does not exist is Dead."""
    if error is not ErrorCode.NONE:
        return GroupDescription(error, "")
    if group is None:
        return GroupDescription(ErrorCode.NONE, State.DEAD.value)
    protocol = (group.protocol_name or "") if group.state is State.STABLE else ""
    members = tuple(
        MemberDescription(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            each.metadata(protocol) if protocol else b"",
            each.assignment if protocol else b"",
        )
        for each in group.members.values()
    )
    return GroupDescription(ErrorCode.NONE, group.state.value, group.protocol_type or "", protocol, members)
