"""Groups as the tests of the client's assignors draw and judge them."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from headrace.client.consumer.assignors.member import Assignment, Member, Racks
from headrace.types import TopicPartition

RACKS = ("a", "b", "c")
Group = tuple[list[Member], dict[str, int], Racks]
"""Members, partition count of each topic, racks of each partition."""


def drawn(rng: random.Random, *, alike: bool, with_racks: bool = False) -> Group:
    """A new group; `alike`: all members subscribe to the same topics."""
    counts = {f"t{number}": rng.randrange(1, 15) for number in range(rng.randrange(1, 6))}
    topics = _some(rng, counts)
    members = [
        Member(
            f"member-{number:02}",
            topics if alike else _some(rng, counts),
            f"static-{number}" if rng.random() < 0.2 else None,
            rack=rng.choice(RACKS) if with_racks and rng.random() < 0.8 else None,
        )
        for number in rng.sample(range(40), rng.randrange(1, 9))
    ]
    copies = rng.randrange(1, 3)
    racks = {
        topic: [frozenset(rng.sample(RACKS, copies)) for _ in range(count)]
        if with_racks
        else [frozenset[str]()] * count
        for topic, count in counts.items()
    }
    return members, counts, racks


def changed(rng: random.Random, group: Group, given: Assignment, generation: int, *, alike: bool) -> Group:
    """The group later: members hold what they were given, and some came, went, or claim what is old."""
    members, counts, _ = group
    counts = {topic: count + (rng.randrange(4) if rng.random() < 0.2 else 0) for topic, count in counts.items()}
    topics = members[0].topics
    later = [
        member._replace(
            owned=tuple(given[member.member_id]),
            generation=generation if rng.random() < 0.9 else generation - 1,
            topics=member.topics if alike or rng.random() < 0.9 else _some(rng, counts),
        )
        for member in members
        if rng.random() < 0.85 or len(members) == 1
    ] or [members[0]]
    later += [
        Member(f"new-{generation}-{number}", topics if alike else _some(rng, counts))
        for number in range(rng.randrange(3))
    ]
    return later, counts, {topic: [frozenset[str]()] * count for topic, count in counts.items()}


def owners(assignment: Mapping[str, Sequence[TopicPartition]]) -> Counter[TopicPartition]:
    """How many members own each partition."""
    return Counter(chain.from_iterable(assignment.values()))


def subscribed_partitions(group: Group) -> set[TopicPartition]:
    """Every partition that some member subscribes to."""
    members, counts, _ = group
    return {
        TopicPartition(topic, partition)
        for topic in frozenset[str]().union(*(member.topics for member in members)) & counts.keys()
        for partition in range(counts[topic])
    }


def kept(members: Sequence[Member], assignment: Assignment) -> int:
    """How many partitions stay with a member that owned them."""
    return sum(len(set(member.owned) & set(assignment[member.member_id])) for member in members)


def squares(assignment: Assignment) -> int:
    """The imbalance: the smaller, the more balanced, as the total is the same."""
    return sum(len(partitions) ** 2 for partitions in assignment.values())


def _some(rng: random.Random, counts: Mapping[str, int]) -> frozenset[str]:
    return frozenset(rng.sample(sorted(counts), rng.randrange(1, len(counts) + 1)))
