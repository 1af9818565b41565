"""Three brokers that authenticate to each other, with an authorizer: by SCRAM over TLS, by certificates, by PLAIN with
a control plane of its own, and by Kerberos."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests import rotation
from tests.asker import Asker
from tests.cluster.conftest import FAST_SESSIONS
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.securing import (
    BROKERS_MAY,
    CERTIFIED,
    CLIENTS_MAY,
    DIGEST,
    PASSWORD,
    add_user,
    kerberos_settings,
    mtls_settings,
    permit,
    plain_settings,
    scram_settings,
    write_properties,
)
from tests.cluster.verifying import VerifyingProducer, verify
from tests.eventually import eventually
from tests.harness import unused
from tests.kerberos import Realm, missing_tools
from tests.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("secured-cluster")]  # its fixtures are asked for by name
WITHOUT_KERBEROS = pytest.mark.skipif(bool(missing_tools()), reason=missing_tools() or "")
KINDS = (
    pytest.param("by_scram", marks=rotation.unless_today(0, 2)),
    pytest.param("by_password", marks=rotation.unless_today(1, 2)),
    "by_certificate",
    pytest.param("by_kerberos", marks=[WITHOUT_KERBEROS, *rotation.unless_today(0, 2)]),
)


def make_rules(address: str, *rights: tuple[str, Mapping[str, Sequence[str]]]) -> None:
    server, _, chroot = address.partition("/")
    store = KazooClient(server, auth_data=[("digest", DIGEST)])
    store.start()
    store.ensure_path(chroot)
    store.chroot = f"/{chroot}"
    permit(store, ("User:ANONYMOUS", CLIENTS_MAY), *rights)
    store.stop()
    store.close()


@pytest.fixture(scope="module")
def by_scram(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The brokers' user is a super user. Sessions last five seconds."""
    directory, chroot = tmp_path_factory.mktemp("scram"), zookeeper.chroot("scram")
    settings = {**scram_settings(directory), "super.users": "User:broker", "connections.max.reauth.ms": "5000"}
    add_user(chroot, directory)
    make_rules(chroot)
    config = write_properties(directory / "broker.properties", settings)
    with LocalCluster(directory, chroot, settings=FAST_SESSIONS, config=config) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def by_certificate(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The brokers' certificate has an ACL for ClusterAction, and nothing else, instead of being a super user."""
    directory, chroot = tmp_path_factory.mktemp("mtls"), zookeeper.chroot("mtls")
    config = write_properties(directory / "broker.properties", mtls_settings(directory))
    make_rules(chroot, (CERTIFIED, BROKERS_MAY))
    with LocalCluster(directory, chroot, settings=FAST_SESSIONS, config=config) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def by_password(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """PLAIN without TLS, and a control plane of its own with certificates."""
    directory, chroot = tmp_path_factory.mktemp("plain"), zookeeper.chroot("plain")
    settings = {**plain_settings(directory), "super.users": f"User:broker;{CERTIFIED}"}
    config = write_properties(directory / "broker.properties", settings)
    make_rules(chroot)
    with LocalCluster(directory, chroot, settings=FAST_SESSIONS, config=config) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def by_kerberos(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The brokers have one principal, since they are on one host, and its keys prove it on both sides."""
    directory, chroot = tmp_path_factory.mktemp("kerberos"), zookeeper.chroot("kerberos")
    with Realm(directory) as realm, realm.used():
        settings = {**kerberos_settings(realm.add("kafka/127.0.0.1")), "super.users": "User:kafka"}
        config = write_properties(directory / "broker.properties", settings)
        make_rules(chroot)
        with LocalCluster(directory, chroot, settings=FAST_SESSIONS, config=config) as cluster:
            yield cluster


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_replicated_and_survive_a_leader(kind: str, request: pytest.FixtureRequest) -> None:
    cluster: LocalCluster = request.getfixturevalue(kind)
    cluster.make_whole()
    topic = unused("secured")
    cluster.create_topic(topic)
    with VerifyingProducer(cluster.bootstrap, topic, partitions=3) as producer:
        producer.wait_for(300)
        cluster.brokers[1].kill()
        producer.wait_for(300)
        cluster.brokers[1].restart()
        cluster.make_whole()
        producer.wait_for(300)
    assert not verify(cluster.bootstrap, topic, producer).faults()
    assert not producer.failed


def test_brokers_with_no_more_than_cluster_action_create_the_topics_of_clients(by_certificate: LocalCluster) -> None:
    """A broker that is not the controller may not create topics there: it leaves them in the metadata store, where the
    controller finds them. So do Apache Kafka's brokers with ZooKeeper."""
    by_certificate.make_whole()
    for number, broker in by_certificate.brokers.items():
        topic, twin = unused("auto"), unused("au_to")
        with Asker(broker.bootstrap) as asker:
            named = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in (topic, twin)]
            request = m.MetadataRequest(topics=named, allow_auto_topic_creation=True)
            eventually(
                lambda a=asker, r=request: all(  # type: ignore[misc]
                    each.partitions and not each.error_code for each in a.ask(r, 9).topics
                ),
                f"topics that are created through broker {number}",
            )


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_cannot_act_as_a_broker(kind: str, request: pytest.FixtureRequest) -> None:
    cluster: LocalCluster = request.getfixturevalue(kind)
    cluster.make_whole()
    with Asker(cluster.brokers[2].bootstrap) as asker:
        answer = asker.ask(m.ControlledShutdownRequest(broker_id=3, broker_epoch=-1), 3)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_sessions_are_renewed_on_the_same_connections(by_scram: LocalCluster) -> None:
    by_scram.make_whole()
    topic = unused("renewed")
    by_scram.create_topic(topic)
    with VerifyingProducer(by_scram.bootstrap, topic, partitions=3) as producer:
        producer.wait_for(100)
        began = {number: said(by_scram, number) for number in by_scram.brokers}
        producer.wait_for(12_000)  # twelve seconds
    assert not producer.failed
    for number, text in began.items():
        assert not re.search(r"broker \d at ", said(by_scram, number)[len(text) :])  # no connection ended


def said(cluster: LocalCluster, number: int) -> str:
    return cluster.brokers[number].stderr_file.read_text()


def test_a_broker_with_a_wrong_password_is_refused_and_says_so(by_scram: LocalCluster, tmp_path: Path) -> None:
    by_scram.make_whole()
    broker = by_scram.brokers[3]
    arguments, before = broker.arguments, len(said(by_scram, 3))
    wrong = {**scram_settings(tmp_path, password="hunter2"), "super.users": "User:broker"}
    broker.stop()
    config = str(write_properties(tmp_path / "wrong.properties", wrong))
    broker.arguments = [*arguments[:-1], config]
    try:
        broker.restart()
        refused = "refused the authentication by SCRAM-SHA-256"
        eventually(lambda: refused in said(by_scram, 3)[before:], "the refusal in the log")
        text = said(by_scram, 3)[before:]
        assert "Traceback" not in text
        told = [line for line in text.splitlines() if " ERROR " in line and refused in line]
        assert len(told) == len({line.split(" at ")[0].rpartition(" ")[2] for line in told})  # one for each broker
        assert "hunter2" not in text
        assert PASSWORD not in text
        print(text)
    finally:
        broker.stop()
        broker.arguments = arguments
        broker.restart()
    by_scram.make_whole()
