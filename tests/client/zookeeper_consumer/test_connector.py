"""Connectors of ours against a broker and a ZooKeeper: handing over, committing, losing the session."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice

import pytest

from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.client.core.failures import ClientClosed
from headrace.client.operations.admin import Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.zookeeper_consumer.connector import ConsumerConnector
from headrace.client.zookeeper_consumer.settings import ConnectorSettings
from headrace.client.zookeeper_consumer.stream import Stream
from headrace.client.zookeeper_consumer.subscription import Blacklist
from headrace.client.zookeeper_consumer.zookeeper_session import ZooKeeperUnavailable
from headrace.errors import InvalidConfig
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.client.zookeeper_consumer.conftest import Site
from tests.cluster.tcp_proxy import TcpProxy
from tests.eventually import WITHIN_SECONDS, collected, eventually, eventually_equal
from tests.harness import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper-consumer")]

QUICK = ConnectorSettings(
    auto_offset_reset="smallest",
    rebalance_backoff_ms=200,
    zookeeper_session_timeout_ms=1_500,
    handover_timeout_ms=30_000,
)
ONE_BY_ONE = ConnectorSettings(
    auto_offset_reset="smallest", auto_commit_enable=False, rebalance_backoff_ms=200, consumer_timeout_ms=30_000
)
Connect = Callable[..., ConsumerConnector]


@pytest.fixture
def connect(site: Site) -> Iterator[Connect]:
    """Makes connectors, which are shut down after the test."""
    with ExitStack() as ends:

        def made(group: str, settings: ConnectorSettings = QUICK, zookeeper: str = site.zookeeper) -> ConsumerConnector:
            connector = ConsumerConnector(zookeeper, group, settings)
            ends.callback(connector.shutdown)
            return connector

        yield made


class Reading:
    """A thread for each stream, which notes what it receives."""

    def __init__(self, streams: list[Stream]) -> None:
        self.records: list[ConsumerRecord] = []
        self._threads = [threading.Thread(target=self._read, args=(each,), daemon=True) for each in streams]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: Stream) -> None:
        self.records.extend(stream)  # one by one: `extend` asks for the next when it has stored one

    @property
    def values(self) -> list[int]:
        return [int(record.value or b"") for record in list(self.records)]

    def wait(self) -> None:
        """Returns when the connector was shut down and the streams have ended."""
        for thread in self._threads:
            thread.join(WITHIN_SECONDS)
            assert not thread.is_alive(), "a stream did not end"


def values(records: list[ConsumerRecord]) -> list[int]:
    return [int(record.value or b"") for record in records]


def test_members_that_come_and_go_hand_over_each_record_once(site: Site, connect: Connect) -> None:
    topic, group = site.topic("handed", 6), topic_name("group")
    ended = threading.Event()
    written: set[int] = set()

    def write() -> None:
        while not ended.is_set():
            written.update(site.produce(topic, 6, len(written), 300))

    writer = threading.Thread(target=write)
    writer.start()
    members: list[tuple[ConsumerConnector, Reading]] = []
    try:
        for streams in (2, 1, 3):
            member = connect(group)
            members.append((member, Reading(member.create_message_streams({topic: streams})[topic])))
            eventually_equal(lambda: len(set(site.owners(group, topic).values())), len(members))
            eventually(lambda: members[-1][1].records, "the new member to read")
        for member, reading in members[:2]:
            member.shutdown()
            reading.wait()
        eventually_equal(lambda: set(site.owners(group, topic).values()), {members[2][0].consumer_id})
    finally:
        ended.set()
        writer.join()
    eventually_equal(lambda: sum(len(reading.records) for _, reading in members), len(written))
    assert sorted(value for _, reading in members for value in reading.values) == sorted(written)
    members[2][0].shutdown()
    assert site.offsets(group, topic) == {number: len(written) // 6 for number in range(6)}
    assert site.nodes(f"/consumers/{group}/ids") == {}
    assert site.owners(group, topic) == {}


def test_a_member_without_zookeeper_delivers_nothing_and_comes_back(site: Site, connect: Connect) -> None:
    topic, group = site.topic("zombie", 4), topic_name("group")
    host, _, chroot = site.zookeeper.partition("/")
    (port,) = free_ports(1)
    proxy = TcpProxy(port, int(host.rpartition(":")[2])).start()
    try:
        cut_off, other = connect(group, QUICK, f"127.0.0.1:{port}/{chroot}"), connect(group)
        streams = cut_off.create_message_streams({topic: 1})[topic]
        first, second = Reading(streams), Reading(other.create_message_streams({topic: 1})[topic])
        eventually_equal(lambda: len(set(site.owners(group, topic).values())), 2)
        before = site.produce(topic, 4, 0, 400)
        eventually(lambda: before <= {*first.values, *second.values}, "all records")
        cut_off.commit_offsets()
        eventually_equal(lambda: sum(offset for number, offset in site.offsets(group, topic).items()), 200)

        proxy.refuse()
        eventually(lambda: not streams[0].positions(), "the stream to give up its partitions")
        eventually_equal(lambda: set(site.owners(group, topic).values()), {other.consumer_id})
        count = len(first.records)
        during = site.produce(topic, 4, 400, 400)
        eventually(lambda: during <= {*second.values}, "the other member to read all")
        assert len(first.records) == count

        proxy.accept()
        eventually_equal(lambda: len(set(site.owners(group, topic).values())), 2)
        eventually(lambda: len(streams[0].positions()) == 2, "the stream to have partitions again")
        after = site.produce(topic, 4, 800, 400)
        eventually(lambda: after <= {*first.values, *second.values}, "all records")
        assert sorted([*first.values, *second.values]) == list(range(1200))
        cut_off.shutdown()
        first.wait()
    finally:
        proxy.stop()


def test_a_claim_waits_until_the_owner_has_let_go(site: Site, connect: Connect) -> None:
    topic, group = site.topic("claimed", 2), topic_name("group")
    path = f"/consumers/{group}/owners/{topic}/1"
    site.view.create(path, b"somebody", ephemeral=True, makepath=True)
    site.produce(topic, 2, 0, 10)
    reading = Reading(connect(group).create_message_streams({topic: 1})[topic])
    eventually_equal(lambda: sorted(reading.values), [0, 2, 4, 6, 8])
    assert site.owners(group, topic)[1] == ""
    site.view.delete(path)
    eventually_equal(lambda: sorted(reading.values), list(range(10)))


def test_a_record_is_consumed_when_the_next_one_is_wanted(site: Site, connect: Connect) -> None:
    topic, group = site.topic("one-by-one", 1), topic_name("group")
    site.produce(topic, 1, 0, 10)

    def streams() -> tuple[ConsumerConnector, Stream]:
        connector = connect(group, ONE_BY_ONE)
        return connector, connector.create_message_streams({topic: 1})[topic][0]

    connector, stream = streams()
    assert values(list(islice(stream, 3))) == [0, 1, 2]
    assert stream.positions() == {TopicPartition(topic, 0): 2}, "the third may still be in work"
    assert int(next(stream).value or b"") == 3
    connector.commit_offsets()
    assert site.offsets(group, topic) == {0: 4}, "a thread that commits has done with its record"
    assert values(list(islice(stream, 2))) == [4, 5]
    connector.shutdown()
    assert site.offsets(group, topic) == {0: 4}, "nothing was to be committed"
    assert list(stream) == []

    connector, stream = streams()
    with pytest.raises(RuntimeError, match="the sixth"), connector:
        for record in stream:
            if record.value == b"6":
                raise RuntimeError("the sixth")
            connector.commit_offsets()
    assert site.offsets(group, topic) == {0: 6}
    _, stream = streams()
    assert values(list(islice(stream, 4))) == [6, 7, 8, 9]


def test_offsets_are_committed_by_and_by(site: Site, connect: Connect) -> None:
    topic, group = site.topic("auto", 2), topic_name("group")
    settings = ConnectorSettings(auto_offset_reset="smallest", auto_commit_interval_ms=50)
    reading = Reading(connect(group, settings).create_message_streams({topic: 1})[topic])
    for turn in (1, 2):
        site.produce(topic, 2, (turn - 1) * 20, 20)
        eventually_equal(lambda: len(reading.records), 20 * turn)
        eventually_equal(lambda: site.offsets(group, topic), {0: 10 * turn, 1: 10 * turn})


def test_offsets_move_to_kafka_while_both_are_written(site: Site, connect: Connect) -> None:
    topic, group = site.topic("moved", 1), topic_name("group")
    site.produce(topic, 1, 0, 30)

    def read(count: int, storage: str, *, is_dual: bool) -> list[int]:
        settings = ConnectorSettings(offsets_storage=storage, dual_commit_enabled=is_dual, auto_offset_reset="smallest")
        with connect(group, settings) as connector:
            return values(list(islice(connector.create_message_streams({topic: 1})[topic][0], count)))

    def committed() -> tuple[int, int]:
        with Admin(site.bootstrap) as admin:
            found = GroupAdmin(admin.cluster).offsets(group)
        return found[TopicPartition(topic, 0)], site.offsets(group, topic)[0]

    assert read(5, "zookeeper", is_dual=True) == list(range(5))
    assert read(5, "kafka", is_dual=True) == list(range(5, 10))
    assert committed() == (10, 10)
    assert read(5, "kafka", is_dual=False) == list(range(10, 15))
    assert committed() == (15, 10)
    assert read(1, "zookeeper", is_dual=True) == [10]


def test_new_topics_and_partitions_are_found(site: Site, connect: Connect) -> None:
    prefix, group = topic_name("grown"), topic_name("group")
    streams = connect(group).create_message_streams_by_filter(Blacklist(f"(?!{prefix}).*"), 2)
    reading = Reading(streams)
    first = site.topic(prefix, 1)
    site.produce(first, 1, 0, 10)
    eventually_equal(lambda: sorted(reading.values), list(range(10)))
    with Admin(site.bootstrap) as admin:
        admin.create_partitions(first, 3)
    eventually_equal(lambda: sorted(site.owners(group, first)), [0, 1, 2])
    site.produce(first, 3, 10, 30)
    eventually_equal(lambda: sorted(reading.values), list(range(40)))
    with Admin(site.bootstrap) as admin:
        admin.delete_topics([first])
    eventually(lambda: not site.owners(group, first), "no owner of the deleted topic")
    eventually(lambda: not any(stream.positions() for stream in streams), "the deleted topic to be given up")


def test_an_offset_that_is_gone_is_reset(site: Site, connect: Connect) -> None:
    topic, group = site.topic("gone", 1), topic_name("group")
    site.produce(topic, 1, 0, 10)
    site.view.create(f"/consumers/{group}/offsets/{topic}/0", b"3", makepath=True)
    with Admin(site.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 6})
    stream = connect(group).create_message_streams({topic: 1})[topic][0]
    assert values(list(islice(stream, 4))) == [6, 7, 8, 9]


def test_largest_begins_at_the_end_and_an_iteration_can_time_out(site: Site, connect: Connect) -> None:
    topic, group = site.topic("end", 1), topic_name("group")
    site.produce(topic, 1, 0, 10)
    stream = connect(group, ConnectorSettings(consumer_timeout_ms=1)).create_message_streams({topic: 1})[topic][0]
    assert list(stream) == []
    site.produce(topic, 1, 10, 5)
    assert values(collected(lambda _: stream, 5)) == [10, 11, 12, 13, 14]


def test_mistakes_say_what_to_do(site: Site, connect: Connect) -> None:
    connector = connect(topic_name("group"))
    with pytest.raises(InvalidConfig, match="0 is not a number of streams"):
        connector.create_message_streams({"t": 0})
    connector.create_message_streams({"t": 1})
    with pytest.raises(InvalidConfig, match="creates its streams once"):
        connector.create_message_streams({"u": 1})
    connector.shutdown()
    with pytest.raises(ClientClosed):
        connector.commit_offsets()
    with pytest.raises(InvalidConfig, match="group 'a b'"):
        ConsumerConnector(site.zookeeper, "a b")
    (port,) = free_ports(1)
    with pytest.raises(ZooKeeperUnavailable, match=f"no ZooKeeper answered at 127.0.0.1:{port}"):
        ConsumerConnector(f"127.0.0.1:{port}", "g", ConnectorSettings(zookeeper_connection_timeout_ms=200))
