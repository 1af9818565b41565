"""The uniform assignor: all members own as many partitions, give or take one, and as few partitions as possible move.

Balance comes before stickiness. Source: Kafka's `UniformAssignor`, `UniformHomogeneousAssignmentBuilder`.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

from headrace.coordinators.assignors.assignor import (
    NO_PARTITIONS,
    AssignorMember,
    Partitions,
    TargetAssignment,
    TopicId,
    is_homogeneous,
    partition_count,
)
from headrace.coordinators.assignors.uniform_heterogeneous import assign_heterogeneous


def assign_uniform(members: Mapping[str, AssignorMember], partition_counts: Mapping[TopicId, int]) -> TargetAssignment:
    """Assigns each partition of each subscribed topic to one member. Time: linear in members and partitions if all
    members subscribe to the same topics, else in the sum of their subscriptions too, times the logarithm of members."""
    if not members:
        return {}
    if is_homogeneous(members):
        return _assign_homogeneous(members, partition_counts)
    return assign_heterogeneous(members, partition_counts)


def _assign_homogeneous(members: Mapping[str, AssignorMember], counts: Mapping[TopicId, int]) -> TargetAssignment:
    topics = sorted(next(iter(members.values())).topics)
    unowned = {topic: set(range(partition_count(topic, counts))) for topic in topics}
    share, extras = divmod(sum(map(len, unowned.values())), len(members))
    target: TargetAssignment = {}
    open_slots: list[tuple[str, int]] = []
    for left, (member_id, member) in zip(range(len(members), 0, -1), members.items(), strict=True):
        present = _subscribed(member.assignment, unowned)
        # An extra partition goes to members that own one, and to the last ones if too few do.
        takes_extra = extras > 0 and (sum(map(len, present.values())) > share or left == extras)
        extras -= takes_extra
        kept, free = _keep(present, unowned, share + takes_extra)
        target[member_id] = kept
        if free:
            open_slots.append((member_id, free))
    rest = ((topic, partition) for topic in topics for partition in sorted(unowned[topic]))
    for member_id, free in open_slots:
        target[member_id] = _grown(target[member_id], islice(rest, free))
    return target


def _subscribed(present: Partitions, unowned: Mapping[TopicId, set[int]]) -> Partitions:
    """What the member owns of the group's topics and no member before it does; the same object if that is all."""
    changed: dict[TopicId, frozenset[int]] | None = None
    for topic, partitions in present.items():
        valid = unowned.get(topic)
        if valid is not None and partitions <= valid:
            continue
        if changed is None:
            changed = dict(present)
        remaining = partitions & valid if valid else frozenset[int]()
        if remaining:
            changed[topic] = remaining
        else:
            del changed[topic]
    return present if changed is None else changed


def _keep(present: Partitions, unowned: Mapping[TopicId, set[int]], limit: int) -> tuple[Partitions, int]:
    """Takes up to `limit` of the member's partitions out of `unowned`; returns them, and how many it lacks."""
    kept: dict[TopicId, frozenset[int]] = {}
    is_cut = False
    for topic, partitions in present.items():
        if len(partitions) > limit:
            is_cut = True
            partitions = frozenset(sorted(partitions)[:limit])
        if partitions:
            kept[topic] = partitions
            unowned[topic] -= partitions
            limit -= len(partitions)
    return (kept if is_cut else present), limit


def _grown(present: Partitions, added: Iterator[tuple[TopicId, int]]) -> Partitions:
    """The partitions with the added ones; the same object if none are."""
    by_topic: dict[TopicId, list[int]] = {}
    for topic, partition in added:
        by_topic.setdefault(topic, []).append(partition)
    if not by_topic:
        return present
    grown = dict(present)
    for topic, partitions in by_topic.items():
        grown[topic] = grown.get(topic, frozenset()).union(partitions)
    return grown or NO_PARTITIONS
