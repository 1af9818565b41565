"""The assignment of a share group: when a new target is due, its computation, and a member's way to it.

Source: Kafka's `GroupMetadataManager.maybeUpdateTargetAssignment`, `ShareGroupAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.assignors.assignor import NO_PARTITIONS, AssignorMember, Partitions, TargetAssignment
from headrace.coordinators.assignors.simple import assign_simple
from headrace.coordinators.groups.modern.modern_group import changed_targets
from headrace.coordinators.groups.share.records import ShareRecord, TargetEpochRecord, TargetRecord
from headrace.coordinators.groups.share.share_topics import ShareTopics

if TYPE_CHECKING:
    from headrace.coordinators.groups.modern.topics import Topics
    from headrace.coordinators.groups.share.group import ShareGroup, ShareMember


def is_due(group: ShareGroup) -> bool:
    """Whether partitions of subscribed topics are initialized, and not assigned as they are."""
    if group.is_empty or group.share_topics is None:
        return False
    assigned: dict[bytes, set[int]] = {}
    for partitions in group.target.values():
        for topic_id, numbers in partitions.items():
            assigned.setdefault(topic_id, set()).update(numbers)
    return any(
        topic.name in group.subscriptions and assigned.get(topic_id, set()) != set(topic.partitions)
        for topic_id, topic in group.share_topics.initialized.items()
    )


class AssigningShares(NamedTuple):
    """A target assignment that is to be computed."""

    group: ShareGroup
    epoch: int
    members: Mapping[str, AssignorMember]
    partition_counts: Mapping[bytes, int]
    assignable: Mapping[bytes, frozenset[int]]

    def compute(self) -> TargetAssignment:
        """Computes it. Everything it reads is immutable, so it may run on a thread. Raises `PartitionAssignorError`."""
        return assign_simple(self.members, self.partition_counts, self.assignable)

    @property
    def size(self) -> int:
        """How much there is to assign."""
        return len(self.members) + sum(self.partition_counts.values())


def prepare(group: ShareGroup, joining: ShareMember, epoch: int, topics: Topics) -> AssigningShares:
    """The input of the assignor. `joining` is the member that sent a heartbeat, as it is now."""
    members = dict(group.members)
    members[joining.member_id] = joining
    ids_of: dict[frozenset[str], frozenset[bytes]] = {}  # members that subscribe to the same share one set
    counts: dict[bytes, int] = {}
    specs: dict[str, AssignorMember] = {}
    for member in members.values():
        ids = ids_of.get(member.topics)
        if ids is None:
            found = [topic for name in member.topics if (topic := topics.by_name(name)) is not None]
            counts.update((each.topic_id, each.partition_count) for each in found)
            ids = ids_of[member.topics] = frozenset(each.topic_id for each in found)
        specs[member.member_id] = AssignorMember(ids, group.target.get(member.member_id, NO_PARTITIONS))
    return AssigningShares(group, epoch, specs, counts, (group.share_topics or ShareTopics()).assignable)


def target_records(group: ShareGroup, epoch: int, target: TargetAssignment, now_ms: int) -> list[ShareRecord]:
    """The records of a new target assignment."""
    records: list[ShareRecord] = [
        TargetRecord(member_id, partitions) for member_id, partitions in changed_targets(group.target, target).items()
    ]
    records.append(TargetEpochRecord(epoch, now_ms))
    return records


def reconciled(
    member: ShareMember, target_epoch: int, target: Partitions, topics: Topics, *, is_changed: bool
) -> ShareMember:
    """The member with its target. `is_changed`: the subscription may be newer than the target."""
    if target_epoch != member.member_epoch:
        return member._replace(
            assigned=_subscribed(target, member, topics),
            member_epoch=target_epoch,
            previous_epoch=member.member_epoch,
        )
    return member._replace(assigned=_subscribed(target, member, topics)) if is_changed else member


def _subscribed(partitions: Partitions, member: ShareMember, topics: Topics) -> Partitions:
    """The partitions of topics that the member subscribes to."""
    known = {topic.topic_id for name in member.topics if (topic := topics.by_name(name)) is not None}
    if partitions.keys() <= known:
        return partitions
    return {topic_id: each for topic_id, each in partitions.items() if topic_id in known}
