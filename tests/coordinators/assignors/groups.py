"""Groups as the tests of the assignors draw and judge them."""

import random
from collections import Counter
from collections.abc import Mapping

from headrace.coordinators.assignors.assignor import AssignorMember, Partitions, TargetAssignment, TopicId

Group = tuple[dict[str, AssignorMember], dict[TopicId, int]]
"""Members by id, partition count of each topic."""


def topic_id(number: int) -> TopicId:
    """The id of a topic of the tests."""
    return (7).to_bytes(8, "big") + number.to_bytes(8, "big")


def number_of(topic: TopicId) -> int:
    return int.from_bytes(topic[8:], "big")


def size(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def slots(partitions: Partitions) -> set[tuple[TopicId, int]]:
    """The partitions one by one."""
    return {(topic, partition) for topic, each in partitions.items() for partition in each}


def owners(target: Mapping[str, Partitions]) -> Counter[tuple[TopicId, int]]:
    """How many members own each partition."""
    return Counter(slot for partitions in target.values() for slot in slots(partitions))


def kept(members: Mapping[str, AssignorMember], target: Mapping[str, Partitions]) -> int:
    """How many partitions stay with a member that owned them."""
    return sum(len(slots(member.assignment) & slots(target[member_id])) for member_id, member in members.items())


def with_assignment(members: Mapping[str, AssignorMember], target: TargetAssignment) -> dict[str, AssignorMember]:
    """The group after it took the assignment."""
    return {member_id: member._replace(assignment=target.get(member_id, {})) for member_id, member in members.items()}


def changed(rng: random.Random, group: Group, *, alike: bool) -> Group:
    """The group after members came and went, subscriptions changed, and partitions were added."""
    members, counts = dict(group[0]), dict(group[1])
    for topic in counts:
        if rng.random() < 0.2:
            counts[topic] += rng.randrange(1, 4)
    for member_id in list(members):
        if rng.random() < 0.15 and len(members) > 1:
            del members[member_id]
    for number in range(rng.randrange(0, 3)):
        members[f"new-{rng.randrange(10_000)}-{number}"] = AssignorMember(_some(rng, counts))
    topics = _some(rng, counts) if rng.random() < 0.2 else max((each.topics for each in members.values()), key=len)
    for member_id, member in members.items():
        if alike:
            members[member_id] = member._replace(topics=topics)
        elif rng.random() < 0.1:
            members[member_id] = member._replace(topics=_some(rng, counts))
    return members, counts


def drawn(rng: random.Random, *, alike: bool) -> Group:
    """A new group; `alike`: all members subscribe to the same topics."""
    counts = {topic_id(number): rng.randrange(1, 25) for number in range(1, rng.randrange(2, 9))}
    topics = _some(rng, counts)
    members = {
        f"member-{number}": AssignorMember(
            topics if alike else _some(rng, counts), instance_id=f"static-{number}" if rng.random() < 0.2 else None
        )
        for number in rng.sample(range(50), rng.randrange(1, 13))
    }
    return members, counts


def _some(rng: random.Random, counts: Mapping[TopicId, int]) -> frozenset[TopicId]:
    return frozenset(rng.sample(sorted(counts), rng.randrange(1, len(counts) + 1)))
