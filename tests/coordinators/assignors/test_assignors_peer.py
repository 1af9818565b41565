"""Our assignors beside Apache Kafka's own classes over drawn groups: as balanced, as sticky; range the very same."""

import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.coordinators.assignors.assignor import AssignorMember, PartitionAssignor, Partitions, TargetAssignment
from headrace.coordinators.assignors.range_assignor import assign_range
from headrace.coordinators.assignors.simple import assign_simple
from headrace.coordinators.assignors.uniform import assign_uniform
from tests.coordinators.assignors.groups import (
    Group,
    changed,
    drawn,
    kept,
    number_of,
    owners,
    size,
    topic_id,
    with_assignment,
)
from tests.peers import kafka

SOURCE = Path(__file__).parent / "java" / "Assign.java"
GROUPS = 400

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=str(kafka.missing_tools())),
]


def kafkas_assignments(name: str, groups: list[Group]) -> list[TargetAssignment]:
    """What Kafka's assignor of this name makes of each group."""
    lines = "".join(f"{line}\n" for group in groups for line in [*_lines(*group), f"assign {name}"])
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka.jars()}/*", str(SOURCE)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=True)
    return [_read(line) for line in done.stdout.splitlines()]


def _lines(members: Mapping[str, AssignorMember], counts: Mapping[bytes, int]) -> list[str]:
    lines = [f"topic {number_of(topic)} {count}" for topic, count in counts.items()]
    for member_id, member in members.items():
        topics = ",".join(str(number_of(topic)) for topic in member.topics)
        assigned = ",".join(
            f"{number_of(topic)}:{partition}" for topic, each in member.assignment.items() for partition in each
        )
        lines.append(f"member {member_id} {member.instance_id or '-'} {topics or '-'} {assigned or '-'}")
    return lines


def _read(line: str) -> TargetAssignment:
    target: TargetAssignment = {}
    for word in line.split():
        member_id, _, listed = word.partition("=")
        topics: dict[bytes, set[int]] = {}
        for each in listed.split(",")[:-1]:
            topic, partition = each.split(":")
            topics.setdefault(topic_id(int(topic)), set()).add(int(partition))
        target[member_id] = {topic: frozenset(partitions) for topic, partitions in topics.items()}
    return target


def groups_after_changes(assign: PartitionAssignor, *, alike: bool) -> list[Group]:
    rng = random.Random(20260731)
    groups = []
    for _ in range(GROUPS):
        members, counts = drawn(rng, alike=alike)
        for _ in range(rng.randrange(3)):
            members, counts = changed(rng, (with_assignment(members, assign(members, counts)), counts), alike=alike)
        groups.append((members, counts))
    return groups


def squares(target: Mapping[str, Partitions]) -> int:
    """The imbalance: the smaller, the more balanced, as the total is the same."""
    return sum(size(partitions) ** 2 for partitions in target.values())


@pytest.mark.parametrize("alike", [True, False], ids=["same topics", "different topics"])
def test_range_is_kafkas(alike: bool) -> None:
    groups = groups_after_changes(assign_range, alike=alike)
    for (members, counts), theirs in zip(groups, kafkas_assignments("range", groups), strict=True):
        assert assign_range(members, counts) == theirs


def test_uniform_is_as_balanced_and_as_sticky_as_kafkas() -> None:
    groups = groups_after_changes(assign_uniform, alike=True)
    for (members, counts), theirs in zip(groups, kafkas_assignments("uniform", groups), strict=True):
        ours = assign_uniform(members, counts)
        assert owners(ours) == owners(theirs)
        assert sorted(map(size, ours.values())) == sorted(map(size, theirs.values()))
        assert kept(members, ours) == kept(members, theirs)


def test_uniform_of_different_topics_is_as_balanced_and_as_sticky_as_kafkas() -> None:
    """Ties are broken differently, so that one is better here and the other there: on the whole they are equal."""
    groups = groups_after_changes(assign_uniform, alike=False)
    ours = [assign_uniform(*group) for group in groups]
    theirs = kafkas_assignments("uniform", groups)
    for (members, _), one, other in zip(groups, ours, theirs, strict=True):
        assert owners(one) == owners(other) or not owners(other), members
    assert sum(map(squares, ours)) <= 1.01 * sum(map(squares, theirs))
    moved = [
        sum(size(member.assignment) for member in members.values()) - kept(members, target)
        for targets in (ours, theirs)
        for (members, _), target in zip(groups, targets, strict=True)
    ]
    assert sum(moved[:GROUPS]) <= 1.02 * sum(moved[GROUPS:])


def test_simple_is_as_balanced_and_as_sticky_as_kafkas() -> None:
    groups = groups_after_changes(assign_simple, alike=True)
    ours = [assign_simple(*group) for group in groups]
    theirs = kafkas_assignments("simple", groups)
    for one, other in zip(ours, theirs, strict=True):
        assert owners(one).keys() == owners(other).keys()
        assert min(map(size, one.values())) >= min(map(size, other.values()), default=0)
        assert sum(owners(one).values()) >= sum(owners(other).values())
        if set(owners(other).values()) <= {1}:
            assert squares(one) <= squares(other)
    stays = [
        sum(kept(members, target) for (members, _), target in zip(groups, targets, strict=True))
        for targets in (ours, theirs)
    ]
    assert stays[0] >= 0.99 * stays[1]


def test_simple_of_different_topics_is_as_balanced_and_as_sticky_as_kafkas() -> None:
    groups = groups_after_changes(assign_simple, alike=False)
    ours = [assign_simple(*group) for group in groups]
    theirs = kafkas_assignments("simple", groups)
    stays = [0, 0]
    for (members, _), one, other in zip(groups, ours, theirs, strict=True):
        subscribed = frozenset[bytes]().union(*(member.topics for member in members.values()))
        dropped = {slot for slot in owners(other) if slot[0] not in subscribed}  # Kafka leaves them assigned
        assert owners(one).keys() == owners(other).keys() - dropped
        stays[0] += kept(members, one)
        stays[1] += kept(members, other)
    assert stays[0] >= 0.99 * stays[1]
