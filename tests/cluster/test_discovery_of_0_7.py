"""Two brokers in ZooKeeper as clients of Kafka 0.7 look for them: what they find, and that it follows the cluster."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from headrace.client import Admin, Producer, TopicPartition
from headrace.client.operations.replica_admin import ReplicaAdmin
from headrace.protocol.wire_07 import ErrorCode07
from headrace.records.legacy.format_07 import encode_set
from headrace.security.access import ResourceType
from tests.client_07 import ENABLED, Client07, payloads
from tests.cluster.conftest import FAST_SESSIONS
from tests.cluster.local_cluster import LocalCluster
from tests.eventually import WITHIN_SECONDS, eventually, eventually_equal
from tests.harness import HeadraceServer, free_ports, unused
from tests.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LISTENERS = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:KAFKA07"}
SINGLE = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
}
CREATOR = re.compile(r"127\.0\.0\.1-\d{13}")


@dataclass
class World:
    """Two brokers, and what a client of 0.7 sees of them."""

    cluster: LocalCluster
    view: KazooClient
    """Its root is the chroot of the clients of 0.7."""
    ports: dict[int, int]
    chroot: str
    """That of the cluster itself."""
    of_07: str

    def topic(self, *assignment: list[int]) -> str:
        """A new topic for clients of 0.7: the replicas of each partition."""
        return self.create(unused("found"), assignment, ENABLED)

    def create(self, name: str, assignment: Sequence[list[int]], configs: dict[str, str] | None = None) -> str:
        """A new topic."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        wish = NewTopic(name, len(assignment), replica_assignment=list(assignment), config=configs or {})
        admin.create_topics([wish])[name].result(WITHIN_SECONDS)
        return name

    def nodes(self, path: str) -> dict[str, str]:
        """The data of the children of a node."""
        found = {}
        with suppress(NoNodeError):
            for name in self.view.get_children(path):
                with suppress(NoNodeError):
                    found[name] = self.view.get(f"{path}/{name}")[0].decode()
        return found

    def brokers(self) -> dict[int, tuple[str, int]]:
        """Each broker's address, as Kafka 0.7's clients read it."""
        found = {}
        for number, data in self.nodes("/brokers/ids").items():
            creator, host, port = data.split(":")
            assert CREATOR.fullmatch(creator), data
            found[int(number)] = (host, int(port))
        return found

    def counts(self, topic: str) -> dict[int, int]:
        """The number of partitions by broker."""
        return {int(broker): int(count) for broker, count in self.nodes(f"/brokers/topics/{topic}").items()}

    def wait_for(self, topic: str, counts: dict[int, int]) -> None:
        eventually_equal(lambda: self.counts(topic), counts, f"counts of {topic}")

    def read(self, topic: str) -> dict[str, list[bytes]]:
        """All messages of each partition that a client finds, by its name in 0.7."""
        found = {}
        for broker, count in self.counts(topic).items():
            with Client07(self.brokers()[broker][1]) as client:
                for number in range(count):
                    (end,) = client.offsets(topic, -1, 1, number)
                    error, messages = client.fetch(topic, 0, 1 << 20, number)
                    assert error is ErrorCode07.NO_ERROR and len(messages) == end
                    found[f"{broker}-{number}"] = payloads(bytes(messages))
        return found


@pytest.fixture(scope="module")
def world(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as ends:
        ports, of_07 = dict(enumerate(free_ports(2), 1)), unused("of-0.7")
        settings = {**FAST_SESSIONS, **SINGLE, **LISTENERS, "headrace.kafka07.zookeeper.chroot": f"/{of_07}"}
        chroot = zookeeper.chroot("found")
        made = LocalCluster(tmp_path_factory.mktemp("found"), chroot, brokers=2, settings=settings)
        for number, server in made.brokers.items():
            server.listen = f"PLAINTEXT://{server.listen},OLD://127.0.0.1:{ports[number]}"
        cluster = ends.enter_context(made)
        view = KazooClient(f"{zookeeper.address}/{of_07}")
        view.start(60)
        ends.callback(view.close)
        ends.callback(view.stop)
        cluster.wait_until_ready()
        world = World(cluster, view, ports, chroot, of_07)
        eventually_equal(world.brokers, {number: ("127.0.0.1", port) for number, port in ports.items()})
        yield world


def test_clients_find_brokers_and_partitions_and_each_partition_once(world: World) -> None:
    topic = world.topic([1], [2], [2], [1], [2])
    world.wait_for(topic, {1: 2, 2: 3})
    for path in ("/brokers/ids/1", f"/brokers/topics/{topic}/1"):
        assert world.view.get(path)[1].ephemeralOwner
    with Producer(world.cluster.bootstrap) as producer:
        for number in range(5):
            producer.send(topic, b"today %d" % number, partition=number)
    today = [b"today %d" % number for number in range(5)]
    assert world.read(topic) == {
        "1-0": today[0:1], "1-1": today[3:4], "2-0": today[1:2], "2-1": today[2:3], "2-2": today[4:5],
    }  # fmt: skip
    with Client07(world.ports[2]) as client:
        client.produce(topic, encode_set([b"of 0.7"]), partition=2)
        eventually_equal(lambda: world.read(topic)["2-2"], [today[4], b"of 0.7"])
        client.produce(topic, encode_set([b"anywhere"]), partition=-1)
        found = [f"2-{number}" for number in range(3)]
        eventually(lambda: any(b"anywhere" in world.read(topic)[each] for each in found), "the message")
        assert client.fetch(topic, 0, 99, 3).error is ErrorCode07.WRONG_PARTITION
        client.produce(topic, encode_set([b"nowhere"]), partition=3)
        assert client.is_closed()
    with Admin(world.cluster.bootstrap) as admin:
        ends = admin.list_offsets({TopicPartition(topic, 4): -1})
    assert ends[TopicPartition(topic, 4)].offset >= 2, "2-2 is partition 4"


def test_the_clusters_own_nodes_are_not_touched(world: World) -> None:
    topic = world.topic([1], [2])
    world.wait_for(topic, {1: 1, 2: 1})
    own = KazooClient(world.chroot)
    own.start(60)
    try:
        assert own.get_children(f"/brokers/topics/{topic}") == ["partitions"]
        assert own.get("/brokers/ids/1")[0].startswith(b'{"')
    finally:
        own.stop()
        own.close()


def test_registrations_follow_topics_that_grow_go_and_change(world: World) -> None:
    topic, plain = world.topic([1], [2]), unused("plain")
    world.wait_for(topic, {1: 1, 2: 1})
    world.create(plain, [[1]])
    fired: list[list[str]] = []
    world.view.ChildrenWatch(f"/brokers/topics/{topic}", fired.append)
    with Admin(world.cluster.bootstrap) as admin:
        admin.create_partitions(topic, 4)
    eventually(lambda: sum(world.counts(topic).values()) == 4, "four partitions", state=lambda: world.counts(topic))
    eventually(lambda: len(fired) > 1, "a watch on the topic, by which consumers of 0.7 rebalance")
    assert plain not in world.view.get_children("/brokers/topics")
    with Admin(world.cluster.bootstrap) as admin:
        admin.alter_configs(ResourceType.TOPIC, plain, ENABLED)
        world.wait_for(plain, {1: 1})
        admin.alter_configs(ResourceType.TOPIC, plain, {"headrace.kafka07.enable": "false"})
        world.wait_for(plain, {})
        admin.delete_topics([topic])
    for parent in ("/brokers/topics", "/headrace/partitions"):
        eventually(lambda parent=parent: topic not in world.view.get_children(parent), f"{topic} to go")  # type: ignore[misc]


def test_a_recreated_topic_is_numbered_anew(world: World) -> None:
    topic = world.topic([2], [1], [1])
    world.wait_for(topic, {1: 2, 2: 1})
    with Admin(world.cluster.bootstrap) as admin:
        admin.delete_topics([topic])
        eventually(lambda: topic not in {each.name for each in admin.list_topics()}, "the topic to go")
    world.create(topic, [[1], [2], [2]], ENABLED)
    world.wait_for(topic, {1: 1, 2: 2})
    with Producer(world.cluster.bootstrap) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number, partition=number)
    assert world.read(topic) == {"1-0": [b"0"], "2-0": [b"1"], "2-1": [b"2"]}


def test_a_lost_session_and_a_killed_process_register_again(world: World) -> None:
    topic = world.topic([1], [2], [2])
    world.wait_for(topic, {1: 1, 2: 2})
    world.cluster.pause(2)
    try:
        eventually_equal(lambda: sorted(world.brokers()), [1], "broker 2's session to end")
        assert world.counts(topic) == {1: 1}
    finally:
        world.cluster.resume(2)
    eventually_equal(lambda: sorted(world.brokers()), [1, 2])
    world.wait_for(topic, {1: 1, 2: 2})

    before = world.nodes("/brokers/ids")["2"]
    server = world.cluster.brokers[2]
    server.kill()
    assert world.nodes("/brokers/ids")["2"] == before, "its session lives on"
    server.restart()
    eventually(lambda: world.nodes("/brokers/ids").get("2", before) != before, "the registration to be replaced")
    world.wait_for(topic, {1: 1, 2: 2})
    owner = world.view.get("/brokers/ids/2")[1].ephemeralOwner
    eventually_equal(lambda: world.view.get(f"/brokers/topics/{topic}/2")[1].ephemeralOwner, owner)
    server.stop()
    assert (sorted(world.brokers()), world.counts(topic)) == ([1], {1: 1}), "gone when the process is"
    server.restart()
    world.wait_for(topic, {1: 1, 2: 2})


def test_a_broker_that_does_not_lead_its_partitions_waits_and_numbers_stay(world: World) -> None:
    topic = world.topic([1, 2], [2, 1], [2, 1])
    world.wait_for(topic, {1: 1, 2: 2})
    with Producer(world.cluster.bootstrap) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number, partition=number)
    everything = {"1-0": [b"0"], "2-0": [b"1"], "2-1": [b"2"]}
    assert world.read(topic) == everything
    world.cluster.brokers[2].stop()
    assert world.cluster.leader(topic, 1) == 1
    assert world.read(topic) == {"1-0": [b"0"]}, "a partition of another broker has no number here"
    world.cluster.brokers[2].restart()
    world.cluster.wait_until_ready()
    eventually_equal(lambda: sorted(world.brokers()), [1, 2])
    assert world.counts(topic) == {1: 1}, "broker 2 does not lead its partitions yet"
    with Admin(world.cluster.bootstrap) as admin:
        ReplicaAdmin(admin.cluster).elect_leaders([TopicPartition(topic, 1), TopicPartition(topic, 2)])
    world.wait_for(topic, {1: 1, 2: 2})
    assert world.read(topic) == everything

    with Admin(world.cluster.bootstrap) as admin:
        replicas = ReplicaAdmin(admin.cluster)
        replicas.reassign({TopicPartition(topic, 1): [1, 2]})
        eventually_equal(lambda: list(map(int, admin.describe_topic(topic).partitions[1].replicas)), [1, 2])
        eventually(lambda: not replicas.reassignments(), "the reassignment to end")
        replicas.elect_leaders([TopicPartition(topic, 1)])
    world.wait_for(topic, {1: 2})
    assert world.read(topic) == {"1-0": [b"0"], "1-1": [b"1"]}, "2-1 is not taken for partition 1"
    said = world.cluster.brokers[2].stderr_file.read_text()
    assert f"delete /headrace/partitions/{topic}/2" in said


def test_another_clusters_chroot_is_refused(world: World, zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    own = "/" + world.chroot.partition("/")[2]
    for chroot, said in ((f"/{world.of_07}", "belongs to cluster"), (own, "a cluster keeps its metadata there")):
        port, old = free_ports(2)
        server = HeadraceServer(
            tmp_path / chroot.strip("/"),
            {**LISTENERS, "headrace.kafka07.zookeeper.chroot": chroot},
            ("--broker-id", "1", "--zookeeper", zookeeper.chroot("another")),
            f"PLAINTEXT://127.0.0.1:{port},OLD://127.0.0.1:{old}",
        )
        with pytest.raises(RuntimeError, match=said):
            server.start()
