"""The records of streams groups in `__consumer_offsets`. Each kind of record is a value that changes a group in memory,
and that has a key and value in the log; replay reads the same values back.

    key version     record                   value
    17              the group                epoch, hash of its topics' metadata, validated topology, settings
    19              a member                 what it said about itself
    20              the target assignment    its epoch and time
    21              a member's target        its tasks
    22              a member's assignment    its epochs, state and tasks
    23              the topology             subtopologies with their topics

Source: Kafka's `StreamsCoordinatorRecordHelpers`, and the `replay` methods of `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.coordinators.groups.records import VERSION, value_version
from headrace.coordinators.groups.streams.group import StreamsGroup
from headrace.coordinators.groups.streams.member import StreamsMember, StreamsMemberState, UserEndpoint
from headrace.coordinators.groups.streams.tasks import NONE_ASSIGNED, AssignedTasks, Tasks, sorted_tasks, task_sets
from headrace.coordinators.groups.streams.topology import Topology, record_of, topology_of_record
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.groups.loading import GroupLoading
    from headrace.coordinators.runtime import KeyValue

_GROUP, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT, _TOPOLOGY = 17, 19, 20, 21, 22, 23
KEY_VERSIONS = (_GROUP, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT, _TOPOLOGY)
_VALUE_VERSIONS = range(1)
_LEFT_EPOCH = -1
_STATES = {int(each): each for each in StreamsMemberState}
_NO_ASSIGNMENT_EPOCH = -1

_Current = m.StreamsGroupCurrentMemberAssignmentValue
_Target = m.StreamsGroupTargetAssignmentMemberValue
_Metadata = m.StreamsGroupMemberMetadataValue


class StreamsChange(Protocol):
    """One record of a group: a change that was decided, or that is replayed."""

    def key_value(self, group_id: str) -> KeyValue:
        """The record."""

    def apply(self, group: StreamsGroup) -> None:
        """Changes the group."""


class _Message(Protocol):
    def encode(self, version: int) -> bytes: ...


class GroupChange(NamedTuple):
    """The group's epoch, and on what it depends."""

    epoch: int
    metadata_hash: int
    validated_topology_epoch: int
    assignment_configs: dict[str, str]

    def key_value(self, group_id: str) -> KeyValue:
        configs = m.StreamsGroupMetadataValue.LastAssignmentConfig
        value = m.StreamsGroupMetadataValue(
            epoch=self.epoch,
            metadata_hash=self.metadata_hash,
            validated_topology_epoch=self.validated_topology_epoch,
            last_assignment_configs=[configs(key=key, value=each) for key, each in self.assignment_configs.items()],
        )
        return _record(_GROUP, m.StreamsGroupMetadataKey(group_id=group_id), value)

    def apply(self, group: StreamsGroup) -> None:
        group.epoch, group.metadata_hash = self.epoch, self.metadata_hash
        group.validated_topology_epoch = self.validated_topology_epoch
        group.assignment_configs = self.assignment_configs


class MemberChange(NamedTuple):
    """What a member says about itself; None removes the member."""

    member_id: str
    member: StreamsMember | None

    def key_value(self, group_id: str) -> KeyValue:
        key = m.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=self.member_id)
        each = self.member
        if each is None:
            return _record(_MEMBER, key, None)
        endpoint = each.user_endpoint
        value = _Metadata(
            instance_id=each.instance_id,
            rack_id=each.rack_id,
            client_id=each.client_id,
            client_host=each.client_host,
            rebalance_timeout_ms=each.rebalance_timeout_ms,
            topology_epoch=each.topology_epoch,
            process_id=each.process_id,
            user_endpoint=None if endpoint is None else _Metadata.Endpoint(host=endpoint.host, port=endpoint.port),
            client_tags=[_Metadata.KeyValue(key=key, value=value) for key, value in each.client_tags],
        )
        return _record(_MEMBER, key, value)

    def apply(self, group: StreamsGroup) -> None:
        if self.member is None:
            group.remove_member(self.member_id)
            return
        known = group.members.get(self.member_id)
        if known is None:
            group.put_member(self.member)
        else:
            group.put_member(
                self.member._replace(
                    epoch=known.epoch,
                    previous_epoch=known.previous_epoch,
                    state=known.state,
                    assigned=known.assigned,
                    revoking=known.revoking,
                )
            )


class TargetEpochChange(NamedTuple):
    """The epoch of the target assignment, and when it was computed; a tombstone without."""

    assignment_epoch: int | None
    assigned_at_ms: int = 0

    def key_value(self, group_id: str) -> KeyValue:
        key = m.StreamsGroupTargetAssignmentMetadataKey(group_id=group_id)
        if self.assignment_epoch is None:
            return _record(_TARGET_EPOCH, key, None)
        value = m.StreamsGroupTargetAssignmentMetadataValue(
            assignment_epoch=self.assignment_epoch, assignment_timestamp=self.assigned_at_ms
        )
        return _record(_TARGET_EPOCH, key, value)

    def apply(self, group: StreamsGroup) -> None:
        epoch = self.assignment_epoch
        group.assignment_epoch = _NO_ASSIGNMENT_EPOCH if epoch is None else epoch
        group.assigned_at_ms = self.assigned_at_ms


class TargetChange(NamedTuple):
    """A member's part of the target assignment; None removes it."""

    member_id: str
    tasks: Tasks | None

    def key_value(self, group_id: str) -> KeyValue:
        key = m.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=self.member_id)
        if self.tasks is None:
            return _record(_TARGET, key, None)
        active, standby, warmup = (
            [_Target.TaskIds(subtopology_id=name, partitions=each) for name, each in sorted_tasks(tasks)]
            for tasks in self.tasks
        )
        return _record(_TARGET, key, _Target(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup))

    def apply(self, group: StreamsGroup) -> None:
        if self.tasks is None:
            group.targets.pop(self.member_id, None)
        else:
            group.targets[self.member_id] = self.tasks


class CurrentChange(NamedTuple):
    """A member's epochs, state and tasks; None takes everything from it."""

    member_id: str
    member: StreamsMember | None

    def key_value(self, group_id: str) -> KeyValue:
        key = m.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.member_id)
        each = self.member
        if each is None:
            return _record(_CURRENT, key, None)
        value = _Current(
            member_epoch=each.epoch,
            previous_member_epoch=each.previous_epoch,
            state=each.state,
            active_tasks=_active_ids(each.assigned),
            standby_tasks=_ids(each.assigned.standby),
            warmup_tasks=_ids(each.assigned.warmup),
            active_tasks_pending_revocation=_active_ids(each.revoking),
            standby_tasks_pending_revocation=_ids(each.revoking.standby),
            warmup_tasks_pending_revocation=_ids(each.revoking.warmup),
        )
        return _record(_CURRENT, key, value)

    def apply(self, group: StreamsGroup) -> None:
        known = group.members.get(self.member_id)
        each = self.member
        if each is not None:
            group.put_member(
                (known or StreamsMember(self.member_id))._replace(
                    epoch=each.epoch,
                    previous_epoch=each.previous_epoch,
                    state=each.state,
                    assigned=each.assigned,
                    revoking=each.revoking,
                )
            )
        elif known is not None:
            group.put_member(
                known._replace(
                    epoch=_LEFT_EPOCH, previous_epoch=_LEFT_EPOCH, assigned=NONE_ASSIGNED, revoking=NONE_ASSIGNED
                )
            )


class TopologyChange(NamedTuple):
    """The topology of the group; None removes it."""

    topology: Topology | None

    def key_value(self, group_id: str) -> KeyValue:
        value = None if self.topology is None else record_of(self.topology)
        return _record(_TOPOLOGY, m.StreamsGroupTopologyKey(group_id=group_id), value)

    def apply(self, group: StreamsGroup) -> None:
        group.put_topology(self.topology)


def removal_of(member_id: str) -> list[StreamsChange]:
    """The changes that remove a member."""
    return [CurrentChange(member_id, None), TargetChange(member_id, None), MemberChange(member_id, None)]


def everything_of(group: StreamsGroup, lost_members: Iterable[str]) -> list[StreamsChange]:
    """The changes that make the group out of any earlier state of it whose other members were `lost_members`."""
    changes = [each for name in sorted(lost_members) if name not in group.members for each in removal_of(name)]
    changes += [
        GroupChange(group.epoch, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs),
        TargetEpochChange(group.assignment_epoch, group.assigned_at_ms),
        TopologyChange(group.topology),
    ]
    for member_id, member in group.members.items():
        changes += [MemberChange(member_id, member), CurrentChange(member_id, member)]
    return [*changes, *(TargetChange(member_id, tasks) for member_id, tasks in group.targets.items())]


def tombstones_of(group: StreamsGroup) -> list[KeyValue]:
    """The tombstones of all records of a group, in Kafka's order."""
    member_ids = list(group.members)
    changes: list[StreamsChange] = [
        *(CurrentChange(each, None) for each in member_ids),
        *(TargetChange(each, None) for each in member_ids),
        TargetEpochChange(None),
        *(MemberChange(each, None) for each in member_ids),
    ]
    records = [each.key_value(group.group_id) for each in changes]
    records.append(_record(_GROUP, m.StreamsGroupMetadataKey(group_id=group.group_id), None))
    return [*records, TopologyChange(None).key_value(group.group_id)]


def replay(loading: GroupLoading, version: int, key: bytes, value: bytes | None) -> None:
    """Replays one record. Raises `CorruptMessage`. A tombstone of a group that is gone changes nothing."""
    if value is not None:
        value_version(value, _VALUE_VERSIONS)
    group_id, change = read_change(version, key, value)
    group = loading.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        if value is None:
            return
        group = loading.groups[group_id] = StreamsGroup(group_id, loading.partition)
    if change is None:
        del loading.groups[group_id]
    else:
        change.apply(group)


def read_change(version: int, key: bytes, value: bytes | None) -> tuple[str, StreamsChange | None]:
    """The group id and the change; None for the tombstone of the group."""
    after = VERSION.size
    if version == _GROUP:
        group_key, _ = m.StreamsGroupMetadataKey.decode(version, key, after)
        return group_key.group_id, None if value is None else _read_group(value)
    if version == _MEMBER:
        member_key, _ = m.StreamsGroupMemberMetadataKey.decode(version, key, after)
        member = None if value is None else _read_member(member_key.member_id, value)
        return member_key.group_id, MemberChange(member_key.member_id, member)
    if version == _TARGET_EPOCH:
        epoch_key, _ = m.StreamsGroupTargetAssignmentMetadataKey.decode(version, key, after)
        if value is None:
            return epoch_key.group_id, TargetEpochChange(None)
        epoch, _ = m.StreamsGroupTargetAssignmentMetadataValue.decode(0, value, after)
        return epoch_key.group_id, TargetEpochChange(epoch.assignment_epoch, epoch.assignment_timestamp)
    if version == _TARGET:
        target_key, _ = m.StreamsGroupTargetAssignmentMemberKey.decode(version, key, after)
        return target_key.group_id, TargetChange(target_key.member_id, None if value is None else _read_target(value))
    if version == _CURRENT:
        current_key, _ = m.StreamsGroupCurrentMemberAssignmentKey.decode(version, key, after)
        current = None if value is None else _read_current(current_key.member_id, value)
        return current_key.group_id, CurrentChange(current_key.member_id, current)
    topology_key, _ = m.StreamsGroupTopologyKey.decode(version, key, after)
    if value is None:
        return topology_key.group_id, TopologyChange(None)
    topology, _ = m.StreamsGroupTopologyValue.decode(0, value, after)
    return topology_key.group_id, TopologyChange(topology_of_record(topology))


def _read_group(value: bytes) -> GroupChange:
    each, _ = m.StreamsGroupMetadataValue.decode(0, value, VERSION.size)
    configs = {pair.key: pair.value for pair in each.last_assignment_configs or ()}
    return GroupChange(each.epoch, each.metadata_hash, each.validated_topology_epoch, configs)


def _read_member(member_id: str, value: bytes) -> StreamsMember:
    each, _ = _Metadata.decode(0, value, VERSION.size)
    endpoint = each.user_endpoint
    return StreamsMember(
        member_id,
        each.instance_id,
        each.rack_id,
        each.client_id,
        each.client_host,
        each.rebalance_timeout_ms,
        each.topology_epoch,
        each.process_id,
        None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        tuple(sorted((tag.key, tag.value) for tag in each.client_tags)),
    )


def _read_target(value: bytes) -> Tasks:
    each, _ = _Target.decode(0, value, VERSION.size)
    return Tasks(task_sets(each.active_tasks), task_sets(each.standby_tasks), task_sets(each.warmup_tasks))


def _read_current(member_id: str, value: bytes) -> StreamsMember:
    each, _ = _Current.decode(0, value, VERSION.size)

    def tasks(
        active: list[_Current.TaskIds], standby: list[_Current.TaskIds], warmup: list[_Current.TaskIds]
    ) -> AssignedTasks:
        epochs = {ids.subtopology_id: _epochs(ids, each.member_epoch) for ids in active}
        return AssignedTasks(epochs, task_sets(standby), task_sets(warmup))

    return StreamsMember(
        member_id,
        epoch=each.member_epoch,
        previous_epoch=each.previous_member_epoch,
        state=_STATES.get(each.state, StreamsMemberState.UNKNOWN),
        assigned=tasks(each.active_tasks, each.standby_tasks, each.warmup_tasks),
        revoking=tasks(
            each.active_tasks_pending_revocation,
            each.standby_tasks_pending_revocation,
            each.warmup_tasks_pending_revocation,
        ),
    )


def _epochs(ids: _Current.TaskIds, member_epoch: int) -> Mapping[int, int]:
    """The epochs of active tasks. Kafka 4.1 wrote none: the member's epoch stands for them, as it does if their number
    is wrong."""
    epochs = ids.assignment_epochs
    if epochs is not None and len(epochs) == len(ids.partitions):
        return dict(zip(ids.partitions, epochs, strict=True))
    return dict.fromkeys(ids.partitions, member_epoch)


def _ids(tasks: Mapping[str, Iterable[int]]) -> list[_Current.TaskIds]:
    return [_Current.TaskIds(subtopology_id=name, partitions=each) for name, each in sorted_tasks(tasks)]


def _active_ids(tasks: AssignedTasks) -> list[_Current.TaskIds]:
    return [
        _Current.TaskIds(
            subtopology_id=name, partitions=each, assignment_epochs=[tasks.active[name][number] for number in each]
        )
        for name, each in sorted_tasks(tasks.active)
    ]


def _record(version: int, key: _Message, value: _Message | None) -> KeyValue:
    written = VERSION.pack(version) + key.encode(version)
    return written, None if value is None else VERSION.pack(0) + value.encode(0)
