"""Kafka 0.8.2's high-level consumer and ours in one group split every partition once, and take over from each other."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.operations.group_admin import GroupAdmin
from tests import rotation
from tests.client.brokers import topic_name
from tests.client.zookeeper_consumer.conftest import Site
from tests.client.zookeeper_consumer.members import IN_KAFKA, Member, Seen, own_command, scala_command
from tests.conformance.programs import missing_tools
from tests.eventually import eventually, eventually_equal

PARTITIONS = 8
RECORDS = 800
SCALA, LAST_SCALA = "0.8.2.2", "0.10.2.2"

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.xdist_group("zookeeper-consumer")]


class Group:
    """The members of a group."""

    def __init__(self, site: Site, directory: Path) -> None:
        if reason := missing_tools(("java", "javac", "mvn")):
            pytest.skip(f"Kafka's consumer {reason}")
        self.site, self.name = site, topic_name("group")
        self._directory = directory
        self.members: list[Member] = []

    def start(self, kind: str, *what: str, settings: Mapping[str, str] | None = None) -> Member:
        """Another member, ours or of a release; `wait_for("ready")` it."""
        name = f"{kind}-{len(self.members)}"
        log = self._directory / f"{name}.log"
        command = own_command() if kind == "ours" else scala_command(kind)
        member = Member(name, command, self.site.zookeeper, self.name, *what, log=log, settings=settings)
        self.members.append(member)
        return member

    def kill(self) -> None:
        """Ends all members."""
        for member in self.members:
            member.kill()

    def seen(self) -> list[Seen]:
        """All records that were printed."""
        return [each for member in self.members for each in list(member.seen)]

    def wait_for_all(self, values: set[int]) -> None:
        """Returns once each of these values was printed."""
        eventually(lambda: not self.missing(values), "all records", state=lambda: f"missing: {self.missing(values)}")

    def missing(self, values: set[int]) -> list[int]:
        """The first of these values that were not printed."""
        return sorted(values - {each.value for each in self.seen()})[:20]

    def wait_for_shares(self, topic: str, *shares: int) -> dict[int, str]:
        """Returns the owners once each member has so many partitions, in ascending order."""

        def found() -> list[int]:
            return sorted(Counter(self.site.owners(self.name, topic).values()).values())

        eventually_equal(found, sorted(shares), f"shares {shares} of {topic}")
        return self.site.owners(self.name, topic)


@pytest.fixture
def group(site: Site, tmp_path: Path) -> Iterator[Group]:
    with ExitStack() as ends:
        made = Group(site, tmp_path)
        ends.callback(made.kill)
        yield made


@pytest.mark.parametrize("release", rotation.in_turn(SCALA, LAST_SCALA))
def test_either_takes_over_when_the_other_is_killed(group: Group, site: Site, release: str) -> None:
    topic = site.topic("orders", PARTITIONS)
    ours, scala = group.start("ours", "topic", topic, "2"), group.start(release, "topic", topic, "2")
    for each in (ours, scala):
        each.wait_for("ready")
    group.wait_for_shares(topic, 4, 4)
    first = site.produce(topic, PARTITIONS, 0, RECORDS)
    group.wait_for_all(first)
    assert sorted(each.value for each in group.seen()) == sorted(first), "a record was read twice"
    assert {each.partition for each in ours.seen}.isdisjoint({each.partition for each in scala.seen})

    ours.commit()
    scala.commit()
    eventually_equal(lambda: sum(site.offsets(group.name, topic).values()), RECORDS)
    uncommitted = site.produce(topic, PARTITIONS, RECORDS, RECORDS)
    group.wait_for_all(uncommitted)
    scala.kill()
    group.wait_for_shares(topic, PARTITIONS)
    group.wait_for_all(first | uncommitted | site.produce(topic, PARTITIONS, 2 * RECORDS, RECORDS))
    theirs = {each.value for each in scala.seen if each.value in uncommitted}
    eventually_equal(lambda: repeated(group), theirs, "exactly what the killed member had not committed, again")

    successor = group.start(release, "topic", topic, "2").wait_for("ready")
    group.wait_for_shares(topic, 4, 4)
    assert repeated(group) == theirs, "a record was read again although its member could commit it"
    ours.kill()
    group.wait_for_shares(topic, PARTITIONS)
    last = site.produce(topic, PARTITIONS, 3 * RECORDS, RECORDS)
    eventually(lambda: last <= {each.value for each in successor.seen}, "the successor to read all partitions")
    assert {each.value for each in group.seen()} == set(range(4 * RECORDS)), "a record was lost"


def repeated(group: Group) -> set[int]:
    """The values that were printed more than once."""
    return {value for value, count in Counter(each.value for each in group.seen()).items() if count > 1}


def test_the_consumer_of_0_10_shares_and_is_handed_over_to(group: Group, site: Site) -> None:
    topic = site.topic("ten", PARTITIONS)
    scala = group.start(LAST_SCALA, "topic", topic, "1").wait_for("ready")
    first = site.produce(topic, PARTITIONS, 0, RECORDS)
    group.wait_for_all(first)
    group.start("ours", "topic", topic, "1").wait_for("ready")
    group.wait_for_shares(topic, 4, 4)
    second = site.produce(topic, PARTITIONS, RECORDS, RECORDS)
    group.wait_for_all(second)
    scala.stop()
    group.wait_for_shares(topic, PARTITIONS)
    third = site.produce(topic, PARTITIONS, 2 * RECORDS, RECORDS)
    group.wait_for_all(third)
    assert sorted(each.value for each in group.seen()) == sorted(first | second | third)


def test_a_member_that_slept_moves_no_offset_of_its_successor(group: Group, site: Site) -> None:
    topic = site.topic("slept", PARTITIONS)
    sleeper, other = group.start("ours", "topic", topic, "1"), group.start("ours", "topic", topic, "1")
    for each in (sleeper, other):
        each.wait_for("ready")
    group.wait_for_shares(topic, 4, 4)
    values = site.produce(topic, PARTITIONS, 0, RECORDS)
    group.wait_for_all(values)
    theirs = {each.value for each in sleeper.seen}
    sleeper.pause()
    try:
        group.wait_for_shares(topic, PARTITIONS)
        values |= site.produce(topic, PARTITIONS, RECORDS, RECORDS)
        eventually(
            lambda: theirs | {*range(RECORDS, 2 * RECORDS)} <= {each.value for each in other.seen}, "all records"
        )
        other.commit()
        committed = dict.fromkeys(range(PARTITIONS), 2 * RECORDS // PARTITIONS)
        assert site.offsets(group.name, topic) == committed
    finally:
        sleeper.resume()
    group.wait_for_shares(topic, 4, 4)
    sleeper.commit()
    assert site.offsets(group.name, topic) == committed
    values |= site.produce(topic, PARTITIONS, 2 * RECORDS, RECORDS)
    group.wait_for_all(values)
    assert repeated(group) == theirs


@pytest.mark.parametrize("storage", rotation.in_turn("zookeeper", "kafka"))
def test_a_commit_at_the_moment_of_waking_moves_no_offset(group: Group, site: Site, storage: str) -> None:
    """The member has not noticed yet that its session ended and that another one has its partitions."""
    settings = {"offsets.storage": storage, "dual.commit.enabled": "false"}
    topic = site.topic("woken", 2)
    sleeper = group.start("ours", "topic", topic, "1", settings=settings).wait_for("ready")
    group.wait_for_shares(topic, 2)
    group.wait_for_all(site.produce(topic, 2, 0, 100))
    other = group.start("ours", "topic", topic, "1", settings=settings).wait_for("ready")
    group.wait_for_shares(topic, 1, 1)
    sleeper.pause()
    try:
        group.wait_for_shares(topic, 2)
        group.wait_for_all(site.produce(topic, 2, 100, 100))
        other.commit()
        sleeper.ask_to_commit()
    finally:
        sleeper.resume()
    eventually(lambda: sleeper.has_said("refused", "committed"), "an answer")  # "committed": it was faster to rejoin
    assert committed(group, site, topic, storage) == {0: 100, 1: 100}


def committed(group: Group, site: Site, topic: str, storage: str) -> dict[int, int]:
    """The offsets of the group, where it keeps them."""
    if storage == "zookeeper":
        return site.offsets(group.name, topic)
    with Admin(site.bootstrap) as admin:
        found = GroupAdmin(admin.cluster).offsets(group.name)
    return {place.partition: int(offset) for place, offset in found.items()}


def test_filters_of_both_choose_the_same_topics(group: Group, site: Site) -> None:
    """Each resolves the filters of all members, white and black ones."""
    first = site.topic("filtered", PARTITIONS)
    prefix = first.rpartition("-")[0]
    white, black = ("white", f"{prefix}.*", "1"), ("black", f"(?!{prefix}).*", "1")
    ours, scala = group.start("ours", *white), group.start(SCALA, *black)
    for each in (ours, scala):
        each.wait_for("ready")
    group.wait_for_shares(first, 4, 4)
    later = f"{prefix}-later"
    with Admin(site.bootstrap) as admin:
        admin.create_topics([NewTopic(later, 3, 1)])
    group.wait_for_shares(later, 1, 2)
    values = site.produce(first, PARTITIONS, 0, RECORDS) | site.produce(later, 3, RECORDS, RECORDS)
    group.wait_for_all(values)
    assert sorted(each.value for each in group.seen()) == sorted(values)
    assert {each.topic for each in ours.seen} == {each.topic for each in scala.seen} == {first, later}
    for turned in (group.start("ours", *black), group.start(SCALA, *white)):
        turned.wait_for("ready")
    group.wait_for_shares(first, 2, 2, 2, 2)
    group.wait_for_shares(later, 1, 1, 1)


def test_the_nodes_of_both_are_alike(group: Group, site: Site) -> None:
    topic = site.topic("alike", 4)
    members = [group.start("ours", "topic", topic, "2"), group.start(SCALA, "topic", topic, "2")]
    for each in members:
        each.wait_for("ready")
    group.wait_for_shares(topic, 2, 2)
    group.wait_for_all(site.produce(topic, 4, 0, 40))
    for each in members:
        each.commit()
    home = f"/consumers/{group.name}"
    registered = site.nodes(f"{home}/ids")
    assert len(registered) == 2
    written = [json.loads(data) for data in registered.values()]
    for consumer, node in zip(registered, written, strict=True):
        assert re.fullmatch(rf"{group.name}_[^/]+-\d{{13}}-[0-9a-f]{{8}}", consumer)
        assert re.fullmatch(r"\d{13}", node.pop("timestamp"))
    assert written[0] == written[1] == {"version": 1, "subscription": {topic: 2}, "pattern": "static"}
    threads = {f"{consumer}-{number}" for consumer in registered for number in range(2)}
    assert set(site.nodes(f"{home}/owners/{topic}").values()) == threads
    assert site.nodes(f"{home}/offsets/{topic}") == dict.fromkeys("0123", "10")
    for kind, is_ephemeral in (
        (f"ids/{next(iter(registered))}", True),
        (f"owners/{topic}/0", True),
        (f"offsets/{topic}/0", False),
    ):
        assert bool(site.view.get(f"{home}/{kind}")[1].ephemeralOwner) is is_ephemeral, kind


def test_offsets_move_to_kafka_while_members_of_both_commit_to_both(group: Group, site: Site) -> None:
    """`dual.commit.enabled`: the group's offsets in the topic and in ZooKeeper are those of whoever was last."""
    topic = site.topic("dual", 4)
    values: set[int] = set()
    for turn, (kind, settings) in enumerate([(SCALA, {}), ("ours", IN_KAFKA), (SCALA, IN_KAFKA), ("ours", {})]):
        member = group.start(kind, "topic", topic, "1", settings=settings).wait_for("ready")
        group.wait_for_shares(topic, 4)
        values |= site.produce(topic, 4, turn * 400, 400)
        group.wait_for_all(values)
        member.commit()
        wanted = dict.fromkeys(range(4), (turn + 1) * 100)
        assert site.offsets(group.name, topic) == wanted
        if settings:
            assert committed(group, site, topic, "kafka") == wanted
        member.stop()
    assert not repeated(group), "a record was read again although it was committed"
