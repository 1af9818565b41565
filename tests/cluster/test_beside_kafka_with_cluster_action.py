"""One broker of ours beside one of Apache Kafka 3.9: the brokers prove themselves by PLAIN, and the controller by its
certificate, on a listener of its own. Their rules give them ClusterAction and nothing else.

`headrace acl` has written the rules before anything ran.
"""

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests import rotation
from tests.asker import Asker
from tests.cli.conftest import run_headrace
from tests.cluster.mixed_cluster import OURS, MixedCluster, Security
from tests.cluster.securing import CERTIFIED, CLIENTS_MAY, plain_settings, write_properties
from tests.cluster.verifying import VerifyingProducer, verify
from tests.harness import unused
from tests.peers import kafka
from tests.peers.node import ZooKeeper

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
    pytest.mark.xdist_group("beside-secured-kafka"),
]


def permit(zookeeper: str, principal: str, resource: list[str], *operations: str) -> None:
    """Writes rules."""
    wanted = [part for each in operations for part in ("-o", each)]
    done = run_headrace("acl", "add", "--principal", principal, *resource, *wanted, "--zookeeper", zookeeper)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    directory = tmp_path_factory.mktemp("by-password")
    with ZooKeeper(directory / "zookeeper") as zookeeper:
        address = zookeeper.chroot("mixed")
        for principal in ("User:broker", CERTIFIED):
            permit(address, principal, ["--cluster"], "ClusterAction")
        permit(address, "User:ANONYMOUS", ["--cluster"], *CLIENTS_MAY["Cluster/kafka-cluster"])
        for each in ("--topic", "--group", "--transactional-id"):
            permit(address, "User:ANONYMOUS", [each, "*"], "All")
        # Apache Kafka compares the name of this listener letter by letter, and listens twice otherwise.
        common = {**plain_settings(directory), "control.plane.listener.name": "CONTROL"}
        del common["headrace.zookeeper.digest"], common["zookeeper.set.acl"]
        listeners = "CLIENT://127.0.0.1:@port@,PEER://127.0.0.1:@peer@,CONTROL://127.0.0.1:@control@"
        theirs = {**common, "listeners": listeners, "advertised.listeners": listeners}
        lines = write_properties(directory / "theirs.properties", theirs).read_text()
        ours = write_properties(directory / "ours.properties", common)
        security = Security(lines, (), ours, KazooClient(address))
        with MixedCluster(directory, address, theirs=1, security=security) as cluster:
            yield cluster


def is_made(mixed: MixedCluster, broker: int, topic: str) -> bool:
    """Asks a broker for a topic, which it creates if there is none."""
    node = mixed.ours if broker == OURS else mixed.theirs[broker]
    named = [m.MetadataRequest.MetadataRequestTopic(name=topic)]
    with Asker(node.bootstrap) as asker:
        [answer] = asker.ask(m.MetadataRequest(topics=named, allow_auto_topic_creation=True), 9).topics
    assert answer.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return not answer.error_code and bool(answer.partitions)


@pytest.mark.parametrize("controller", rotation.in_turn(OURS, 1))
def test_brokers_with_no_more_than_cluster_action_replicate_and_create_topics(
    mixed: MixedCluster, controller: int
) -> None:
    """The topics of clients are created through the broker that is not the controller, too."""
    topic = unused("plain")
    mixed.have_control(controller)
    mixed.assign(topic, [1, OURS], [OURS, 1])
    with VerifyingProducer(mixed.bootstrap, topic, partitions=2) as producer:
        producer.wait_for(300)
    assert not verify(mixed.bootstrap, topic, producer).faults()
    mixed.until(lambda: mixed.have_same_logs(topic), "the same bytes and epochs")
    for broker in (1, OURS):
        auto = unused("auto")
        mixed.until(lambda b=broker, t=auto: is_made(mixed, b, t), f"a topic through broker {broker}")  # type: ignore[misc]
        mixed.until(lambda t=auto: len(mixed.replicas(t)) == 1, "the topic in the metadata store")  # type: ignore[misc]


def test_a_client_is_no_broker_at_either_kind(mixed: MixedCluster) -> None:
    for node in (mixed.theirs[1], mixed.ours):
        with Asker(node.bootstrap) as asker:
            answer = asker.ask(m.ControlledShutdownRequest(broker_id=OURS, broker_epoch=-1), 3)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
