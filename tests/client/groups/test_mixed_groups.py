"""Classic groups of our consumers, librdkafka's and Java's, on our broker and on Apache Kafka."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.client.operations.admin import Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.producer.producer import Producer
from headrace.errors import ErrorCode
from tests import rotation
from tests.client.brokers import topic_name
from tests.client.groups.members import Polling, confluent_member, eventually_shared, java_member, shares
from tests.eventually import eventually, eventually_equal
from tests.peers import kafka

QUICK = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6_000}
MakeMember = Callable[..., Polling]


@pytest.fixture
def topic(broker: str, admin: Admin) -> str:
    """Six partitions of ten records."""
    name = topic_name("mixed")
    admin.create_topic(name, 6, 1)
    with Producer(broker) as producer:
        for number in range(60):
            producer.send(name, b"%d" % number, partition=number % 6)
    return name


@pytest.fixture
def group() -> str:
    return topic_name("group")


@pytest.fixture
def groups(admin: Admin) -> GroupAdmin:
    return GroupAdmin(admin.cluster)


@pytest.fixture
def member(broker: str, topic: str, group: str) -> Iterator[MakeMember]:
    with ExitStack() as stack:

        def make(**options: object) -> Polling:
            made = Polling(broker, [topic], group_id=group, **{**QUICK, **options})
            stack.callback(made.stop)
            return made

        yield make


def test_cooperative_members_keep_what_does_not_move(member: MakeMember, groups: GroupAdmin, group: str) -> None:
    first = member(partition_assignment_strategy="cooperative-sticky")
    eventually_shared(groups, group, 1, 6)
    eventually_equal(lambda: len(first.assigned), 6)
    second = member(partition_assignment_strategy="cooperative-sticky")
    eventually_shared(groups, group, 2, 6)
    eventually_equal(lambda: sorted(first.assigned + second.assigned), sorted(first.told[0][1]))
    assert first.names() == ["assigned", "revoked"]
    assert first.told[-1] != ("lost", second.assigned)
    assert sorted(partition for name, each in first.told if name == "revoked" for partition in each) == second.assigned
    second.stop()
    eventually_equal(lambda: len(first.assigned), 6)
    assert first.names() == ["assigned", "revoked", "assigned"]
    eventually_equal(lambda: sorted(set(map(int, first.values + second.values))), list(range(60)))
    assert len(first.values + second.values) == 60


@pytest.mark.slow
def test_cooperative_members_share_with_librdkafka(
    broker: str, member: MakeMember, groups: GroupAdmin, group: str, topic: str
) -> None:
    ours = member(partition_assignment_strategy="cooperative-sticky")
    eventually_equal(lambda: len(ours.assigned), 6)
    settings = {"group_id": group, "partition_assignment_strategy": "cooperative-sticky", **QUICK}
    with confluent_member(broker, topic, **settings):
        eventually_shared(groups, group, 2, 6)
        eventually_equal(lambda: len(ours.assigned), 3)
        assert ours.names() == ["assigned", "revoked"]
    eventually_equal(lambda: len(ours.assigned), 6)


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_eager_members_share_with_librdkafka(
    broker: str, member: MakeMember, groups: GroupAdmin, group: str, topic: str, strategy: str
) -> None:
    with confluent_member(broker, topic, group_id=group, partition_assignment_strategy=strategy, **QUICK):
        eventually_shared(groups, group, 1, 6)  # librdkafka leads
        ours = member(partition_assignment_strategy=strategy)
        eventually_shared(groups, group, 2, 6)
        eventually_equal(lambda: len(ours.assigned), 3)
    eventually_equal(lambda: len(ours.assigned), 6)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=str(kafka.missing_tools()))
@pytest.mark.parametrize(
    ("name", "leads"),
    [
        pytest.param(name, leads, marks=rotation.unless_today(number, 2, turn))
        for turn, name in enumerate(("Range", "RoundRobin", "Sticky", "CooperativeSticky"))
        for number, leads in enumerate(("ours leads", "Java leads"))
    ],
)
def test_members_share_with_java(
    broker: str, member: MakeMember, groups: GroupAdmin, group: str, topic: str, tmp_path: Path, name: str, leads: str
) -> None:
    strategy = f"org.apache.kafka.clients.consumer.{name}Assignor"
    first = member(partition_assignment_strategy=strategy) if leads == "ours leads" else None
    if first is not None:
        eventually_equal(lambda: len(first.assigned), 6)
    settings = {"heartbeat_interval_ms": "100", "session_timeout_ms": "6000"}
    with java_member(broker, topic, tmp_path, group_id=group, partition_assignment_strategy=strategy, **settings):
        eventually(lambda: shares(groups, group))
        ours = first or member(partition_assignment_strategy=strategy)
        found = eventually_shared(groups, group, 2, 6)
        eventually(lambda: ours.assigned in found.values())
        assert [len(each) for each in found.values()] == [3, 3]
    eventually_equal(lambda: len(ours.assigned), 6)
    is_cooperative = name == "CooperativeSticky" and first is not None
    assert len([each for each in ours.told if each[0] == "revoked" and len(each[1]) == 6]) == (
        0 if is_cooperative or first is None else 1
    )


def test_a_member_with_another_assignor_is_told_which_to_add(
    member: MakeMember, groups: GroupAdmin, group: str
) -> None:
    member(partition_assignment_strategy="range")
    eventually_shared(groups, group, 1, 6)
    other = member(partition_assignment_strategy="sticky")
    failure = eventually(lambda: other.failure)
    assert failure is not None
    assert failure.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "partition_assignment_strategy=sticky" in str(failure)


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    member: MakeMember, groups: GroupAdmin, group: str
) -> None:
    other = member(group_instance_id="a")
    static = member(group_instance_id="b")
    eventually_shared(groups, group, 2, 6)
    eventually_equal(lambda: (len(other.assigned), len(static.assigned)), (3, 3))
    before, told = static.assigned, list(other.told)
    generation = static.consumer.group_metadata().generation
    static.stop()
    again = member(group_instance_id="b")
    eventually_equal(lambda: again.assigned, before)
    assert again.consumer.group_metadata().generation == generation
    assert other.told == told


def test_a_member_whose_instance_id_is_taken_says_so(member: MakeMember, groups: GroupAdmin, group: str) -> None:
    old = member(group_instance_id="a")
    eventually_shared(groups, group, 1, 6)
    member(group_instance_id="a")
    failure = eventually(lambda: old.failure)
    assert failure is not None
    assert failure.code == ErrorCode.FENCED_INSTANCE_ID
    assert "group_instance_id='a'" in str(failure)
