"""One broker of ours in a secured cluster of Apache Kafka 3.9: brokers by SASL_SSL with SCRAM, an AclAuthorizer,
ZooKeeper by SASL with zookeeper.set.acl."""

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from headrace.config import BrokerConfig
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests import rotation
from tests.asker import Asker
from tests.cluster.mixed_cluster import OURS, MixedCluster, Security
from tests.cluster.securing import CLIENTS_MAY, add_user, permit, scram_settings, write_properties
from tests.cluster.verifying import VerifyingProducer, verify
from tests.harness import unused
from tests.peers import kafka
from tests.sasl_zookeeper import client_of, client_options, sasl_zookeeper, zookeeper_login
from tests.zookeeper_server import missing_tools

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
    pytest.mark.xdist_group("beside-secured-kafka"),
]
THEIR_LISTENERS = "CLIENT://127.0.0.1:@port@,PEER://127.0.0.1:@peer@"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    if reason := missing_tools():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("secured")
    with sasl_zookeeper(directory) as zookeeper:
        address = f"{zookeeper}/secured"
        to_zookeeper = {"headrace.zookeeper.sasl.jaas.config": zookeeper_login(), "zookeeper.set.acl": "true"}
        add_user(address, directory, settings=to_zookeeper)
        store = client_of(BrokerConfig(zookeeper_connect=address, zookeeper_sasl_jaas=zookeeper_login()))
        store.start()
        permit(store, ("User:ANONYMOUS", CLIENTS_MAY))
        store.stop()
        common = {**scram_settings(directory), "super.users": "User:broker", "zookeeper.set.acl": "true"}
        del common["headrace.zookeeper.digest"]
        theirs = {**common, "listeners": THEIR_LISTENERS, "advertised.listeners": THEIR_LISTENERS}
        lines = write_properties(directory / "theirs.properties", theirs).read_text()
        ours = write_properties(directory / "ours.properties", {**common, **to_zookeeper})
        security = Security(lines, client_options(directory), ours, store)
        with MixedCluster(directory, address, theirs=1, security=security) as cluster:
            yield cluster


@pytest.fixture
def mixed(shared: MixedCluster) -> MixedCluster:
    shared.make_whole()
    return shared


@pytest.mark.parametrize("controller", rotation.in_turn(1, OURS))
def test_both_kinds_lead_and_follow_and_die_under_a_controller_of_each(mixed: MixedCluster, controller: int) -> None:
    topic = unused("secured")
    mixed.have_control(controller)
    mixed.assign(topic, [1, OURS], [OURS, 1], min_insync_replicas="1")
    other = 1 if controller == OURS else OURS
    with VerifyingProducer(mixed.bootstrap, topic, partitions=2) as producer:
        producer.wait_for(300)
        mixed.kill(other)
        mixed.until(lambda: all(other not in mixed.state(topic, p)["isr"] for p in range(2)), "the other leads")
        producer.wait_for(300)
        mixed.make_whole()
        producer.wait_for(300)
    assert not verify(mixed.bootstrap, topic, producer).faults()
    mixed.until(lambda: mixed.have_same_logs(topic), "the same bytes and epochs")


def test_both_kinds_write_the_same_registrations_and_access_control_lists(mixed: MixedCluster) -> None:
    for number in (1, OURS):
        found = mixed.read(f"/brokers/ids/{number}")
        protocols = {name: found["listener_security_protocol_map"][name] for name in ("CLIENT", "PEER")}
        assert protocols == {"CLIENT": "PLAINTEXT", "PEER": "SASL_SSL"}
        assert [each.partition("://")[0] for each in found["endpoints"]][:2] == [
            "CLIENT",
            "PEER",
        ]  # ours has CONTROL too

    def lists(path: str) -> set[tuple[str, str, tuple[str, ...]]]:
        return {(each.id.scheme, each.id.id, tuple(each.acl_list)) for each in mixed.store.get_acls(path)[0]}

    assert lists("/brokers/ids/1") == lists(f"/brokers/ids/{OURS}")
    assert lists("/config/users/broker") == {("sasl", "brokers", ("ALL",))}
    anonymous = KazooClient(mixed.zookeeper)
    anonymous.start()
    for path in ("/config/users/broker", "/config/users", "/config/brokers", "/headrace/scram_decoys"):
        with pytest.raises(NoAuthError):
            anonymous.get(path)
    anonymous.stop()
    anonymous.close()


def test_a_client_is_no_broker_at_either_kind(mixed: MixedCluster) -> None:
    for node in (mixed.theirs[1], mixed.ours):
        with Asker(node.bootstrap) as asker:
            answer = asker.ask(m.ControlledShutdownRequest(broker_id=OURS, broker_epoch=-1), 3)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
