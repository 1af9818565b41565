"""The descriptions of DescribeGroups, which knows classic groups only. Source: Kafka's `ClassicGroup`."""

from typing import NamedTuple

from headrace.coordinators.groups.classic.group import ClassicGroup, GroupState
from headrace.coordinators.groups.group import Group
from headrace.errors import ErrorCode


class MemberDescription(NamedTuple):
    """One member of DescribeGroups; metadata only while the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class ClassicGroupDescription(NamedTuple):
    """One group of DescribeGroups; `state` is empty if there is an error."""

    error: ErrorCode
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = ()
    missing: str | None = None
    """Why there is no classic group of this id."""


def describe(group_id: str, group: Group | None, error: ErrorCode) -> ClassicGroupDescription:
    """Describes a group. One that does not exist, or is of another kind, is Dead."""
    if error is not ErrorCode.NONE:
        return ClassicGroupDescription(error, "")
    if not isinstance(group, ClassicGroup):
        missing = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        return ClassicGroupDescription(ErrorCode.NONE, GroupState.DEAD.value, missing=missing)
    protocol = (group.protocol_name or "") if group.state is GroupState.STABLE else ""
    members = tuple(
        MemberDescription(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            each.metadata(protocol) if protocol else b"",
            each.assignment,
        )
        for each in group.members.values()
    )
    return ClassicGroupDescription(ErrorCode.NONE, group.state.value, group.protocol_type or "", protocol, members)
