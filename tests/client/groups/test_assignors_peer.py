"""Our assignors beside those of Apache Kafka's consumer, over drawn groups, with the bytes that members send."""

import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headrace.client.consumer.assignors.by_name import ASSIGNORS
from headrace.client.consumer.assignors.member import Assignment, Member
from headrace.client.consumer.consumer_protocol import Subscription, decode_member, encode_subscription
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests.client.groups.drawn_groups import Group, changed, drawn, kept, owners, squares
from tests.peers import kafka

SOURCE = Path(__file__).parent / "java" / "AssignMembers.java"
GROUPS = 300

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=str(kafka.missing_tools())),
]


def java(lines: Sequence[str]) -> list[str]:
    """What Kafka's classes answer."""
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka.jars()}/*", str(SOURCE)]
    told = "".join(f"{line}\n" for line in lines)
    return subprocess.run(
        command, input=told, capture_output=True, text=True, timeout=120, check=True
    ).stdout.splitlines()


def kafkas_assignments(name: str, groups: Sequence[Group]) -> list[Assignment]:
    lines = []
    for members, counts, racks in groups:
        for topic in counts:
            each = ",".join("+".join(sorted(here)) or "-" for here in racks[topic])
            lines.append(f"topic {topic} {each}")
        lines += [
            f"member {member.member_id} {member.group_instance_id or '-'} {sent(member, name).hex()}"
            for member in members
        ]
        lines.append(f"assign {name}")
    return [_read(line) for line in java(lines)]


def sent(member: Member, assignor: str) -> bytes:
    """The subscription as the member sends it."""
    owned = member.owned if assignor == "cooperative-sticky" else ()
    return encode_subscription(
        Subscription(sorted(member.topics), owned, member.owned, member.generation, member.rack), assignor
    )


def _read(line: str) -> Assignment:
    found: Assignment = {}
    for word in line.split():
        member_id, _, listed = word.partition("=")
        pairs = (each.split(":") for each in listed.split(",")[:-1])
        found[member_id] = sorted(TopicPartition(topic, int(partition)) for topic, partition in pairs)
    return found


def ours(name: str, groups: Sequence[Group]) -> list[Assignment]:
    return [ASSIGNORS[name](*group) for group in groups]


def later_groups(*, alike: bool, generations: int = 3) -> list[Group]:
    """Groups after some generations of the sticky assignor."""
    rng = random.Random(20261123)
    groups = []
    for _ in range(GROUPS):
        group = drawn(rng, alike=alike)
        for generation in range(1, rng.randrange(generations) + 1):
            group = changed(rng, group, ASSIGNORS["sticky"](*group), generation, alike=alike)
        groups.append(group)
    return groups


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@pytest.mark.parametrize("alike", [True, False], ids=["same topics", "different topics"])
def test_assignments_are_kafkas(name: str, alike: bool) -> None:
    rng = random.Random(1)
    groups = [drawn(rng, alike=alike, with_racks=number % 2 == 0) for number in range(GROUPS)]
    assert ours(name, groups) == kafkas_assignments(name, groups)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_the_first_sticky_assignment_is_kafkas(name: str) -> None:
    rng = random.Random(2)
    groups = [drawn(rng, alike=True) for _ in range(GROUPS)]
    assert ours(name, groups) == kafkas_assignments(name, groups)


def test_sticky_is_as_balanced_and_as_sticky_as_kafkas() -> None:
    groups = later_groups(alike=True)
    for group, one, other in zip(groups, ours("sticky", groups), kafkas_assignments("sticky", groups), strict=True):
        assert owners(one) == owners(other)
        assert sorted(map(len, one.values())) == sorted(map(len, other.values()))
        assert kept(group[0], one) == kept(group[0], other)


def test_cooperative_sticky_holds_back_as_much_as_kafkas() -> None:
    groups = later_groups(alike=True)
    theirs = kafkas_assignments("cooperative-sticky", groups)
    for group, one, other in zip(groups, ours("cooperative-sticky", groups), theirs, strict=True):
        assert sum(owners(one).values()) == sum(owners(other).values())
        assert kept(group[0], one) == kept(group[0], other)


def test_sticky_of_different_topics_is_as_balanced_and_as_sticky_as_kafkas() -> None:
    """Ties are broken differently, so that one is better here and the other there: on the whole they are equal."""
    groups = later_groups(alike=False)
    mine, theirs = ours("sticky", groups), kafkas_assignments("sticky", groups)
    for one, other in zip(mine, theirs, strict=True):
        assert owners(one) == owners(other)
    assert sum(map(squares, mine)) <= 1.01 * sum(map(squares, theirs))
    mine_kept, theirs_kept = (
        sum(kept(group[0], each) for group, each in zip(groups, results, strict=True)) for results in (mine, theirs)
    )
    assert mine_kept >= 0.98 * theirs_kept


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_subscription_bytes_are_kafkas(name: str, draw: Callable[[], Subscription]) -> None:
    subscriptions = [draw() for _ in range(50)]
    lines = [
        f"subscription {name} {each.generation} {each.rack or '-'} {','.join(each.topics)} "
        + (",".join(f"{topic}:{partition}" for topic, partition in each.previous) or "-")
        for each in subscriptions
    ]
    for each, theirs in zip(subscriptions, java(lines), strict=True):
        is_cooperative = name == "cooperative-sticky"
        mine = encode_subscription(each if is_cooperative else each._replace(owned=()), name)
        answer = m.JoinGroupResponse.JoinGroupResponseMember(member_id="m", metadata=bytes.fromhex(theirs))
        read = decode_member(answer, name)
        if name == "sticky" and len({topic for topic, _ in each.previous}) > 1:  # Java's order of topics is a hash's
            assert len(mine) == len(bytes.fromhex(theirs))
        else:
            assert mine.hex() == theirs
        assert (read.rack, read.topics) == (each.rack, frozenset(each.topics))
        if name.endswith("sticky"):
            assert (set(read.owned), read.generation) == (set(each.previous), each.generation)


@pytest.fixture
def draw() -> Callable[[], Subscription]:
    rng = random.Random(3)

    def subscription() -> Subscription:
        generation = rng.randrange(-1, 5)
        owned = [TopicPartition(f"t{rng.randrange(3)}", number) for number in range(rng.randrange(6))]
        previous = sorted(owned) if generation >= 0 else []
        return Subscription(["a", "t0"], previous, previous, generation, rng.choice([None, "rack-1"]))

    return subscription
