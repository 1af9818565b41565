"""The target assignment of a consumer group: computed at once for a small group, off the event loop for a large one.

A result that comes later counts for the group epoch for which it was computed. Members that have left since are left
out; those that have come since wait for the next one. Source: Kafka's `TargetAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.config.group_settings import APACHE_KAFKA_ASSIGNORS
from headrace.coordinators.assignors.assignor import (
    NO_PARTITIONS,
    AssignorMember,
    PartitionAssignorError,
    Partitions,
    TargetAssignment,
    TopicId,
)
from headrace.coordinators.assignors.by_name import CONSUMER_ASSIGNORS
from headrace.coordinators.groups.consumer.group import ConsumerGroup
from headrace.coordinators.groups.consumer.records import Target, TargetEpoch
from headrace.coordinators.groups.modern.modern_group import changed_targets, is_interval_over
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import ASSIGNED_IN_PLACE_MAX

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.coordinators.groups.modern.topics import Topics
    from headrace.coordinators.groups.modern.writes import EventChange
    from headrace.coordinators.groups.registry import Groups


class Assigning(NamedTuple):
    """A target assignment that is to be computed."""

    group: ConsumerGroup
    epoch: int
    assignor: str
    members: Mapping[str, AssignorMember]
    partition_counts: Mapping[TopicId, int]
    taken_back: int = 0
    """How many changes of the group had been taken back."""

    def compute(self) -> TargetAssignment:
        """Computes it. Everything it reads is immutable, so it may run on a thread. Raises `PartitionAssignorError`."""
        return CONSUMER_ASSIGNORS[self.assignor](self.members, self.partition_counts)

    @property
    def size(self) -> int:
        return len(self.members) + sum(self.partition_counts.values())


class ToAssign(NamedTuple):
    """A group of many topics, whose target assignment is to be computed: to read the topics takes a turn of its own."""

    group: ConsumerGroup
    topics: Topics
    assignors: Sequence[str]

    def prepare(self) -> Assigning:
        """The input of the assignor."""
        return prepare(self.group, self.topics, self.assignors)


def assignor_names(config: BrokerConfig) -> tuple[str, ...]:
    """The assignors that members may choose, the default one first."""
    return tuple(APACHE_KAFKA_ASSIGNORS.get(each, each) for each in config.consumer_group_assignors)


def update_target(
    groups: Groups, group: ConsumerGroup, change: EventChange[ConsumerGroup], group_event: GroupEvent
) -> None:
    """Computes the target assignment of the group epoch if it is due, or has it computed. Raises
    UNKNOWN_SERVER_ERROR."""
    interval_ms = groups.number(group.group_id, "consumer.assignment.interval.ms")
    if (
        group.target_epoch >= group.epoch
        or group.is_assigning
        or not is_interval_over(group.target_timestamp_ms, interval_ms, group_event.now_ms)
    ):
        return
    may_offload = group_event.config.consumer_group_assignor_offload_enable
    assignors = assignor_names(group_event.config)
    if may_offload and len(group.subscriptions) > ASSIGNED_IN_PLACE_MAX:
        group.is_assigning = True
        group_event.effect(ToAssign(group, groups.topics, assignors))
        return
    assigning = prepare(group, groups.topics, assignors)
    if may_offload and assigning.size > ASSIGNED_IN_PLACE_MAX:
        group.is_assigning = True
        group_event.effect(assigning)
        return
    try:
        target = assigning.compute()
    except PartitionAssignorError as error:
        raise KafkaError(
            f"Failed to compute a new target assignment for epoch {group.epoch}: {error}",
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ) from None
    take_target(assigning, target, change, group_event.now_ms)


def prepare(group: ConsumerGroup, topics: Topics, assignors: Sequence[str]) -> Assigning:
    """The input of the assignor, from the group and the topics as they are."""
    ids_of: dict[frozenset[str], frozenset[TopicId]] = {}  # members with the same topics share one object
    counts: dict[TopicId, int] = {}
    members = {}
    for member in group.members.values():
        names = group.topics_of(member)
        ids = ids_of.get(names)
        if ids is None:
            found = group.existing(names, topics)
            counts.update(found)
            ids = ids_of[names] = frozenset(found)
        present = group.target.get(member.member_id, NO_PARTITIONS)
        members[member.member_id] = AssignorMember(ids, present, member.instance_id)
    return Assigning(group, group.epoch, group.preferred_assignor(assignors), members, counts, group.writes.taken_back)


def take_target(
    assigning: Assigning, target: TargetAssignment, change: EventChange[ConsumerGroup], now_ms: int
) -> None:
    """Stores what is new in a target assignment, and its epoch. A static member that has come back under another id
    gets what was computed for its earlier self: that leads to no new epoch."""
    group = assigning.group
    present: dict[str, Partitions] = {}
    for member_id, partitions in target.items():
        if member_id in group.members:
            present[member_id] = partitions
        elif (again := group.static_member(assigning.members[member_id].instance_id)) is not None:
            present[again.member_id] = partitions
    for member_id, partitions in changed_targets(group.target, present).items():
        change.add(Target(member_id, partitions))
    change.add(TargetEpoch(assigning.epoch, now_ms))
