"""Users and delegation tokens that Apache Kafka 3.9 and headrace share in one cluster, from the first user on."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.user_admin import UserAdmin
from headrace.errors import AuthenticationFailed
from headrace.protocol import messages as m
from headrace.security.delegation_tokens import password_of
from tests.cli.conftest import run_headrace
from tests.eventually import WITHIN_SECONDS, eventually, eventually_equal
from tests.harness import HeadraceServer
from tests.peers import kafka
from tests.peers.node import KafkaNode, ZooKeeper, old_java

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
    pytest.mark.xdist_group("beside-apache-kafka"),
]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SHARED = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,PEER:PLAINTEXT",
    "inter.broker.listener.name": "PEER",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.client.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
    "listener.name.client.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    "delegation.token.secret.key": "a secret of the cluster",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
}


class Both(NamedTuple):
    """The addresses of both brokers, and of their ZooKeeper."""

    theirs: str
    ours: str
    zookeeper: str
    directory: Path


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    directory = tmp_path_factory.mktemp("users")
    with ZooKeeper(directory / "zookeeper") as zookeeper:
        address = zookeeper.chroot("cluster")
        done = run_headrace("user", "add", "admin", "--zookeeper", address, stdin=b"pass,word=\n")
        assert done.returncode == 0, done.stderr
        listeners = "CLIENT://127.0.0.1:@port@,PEER://127.0.0.1:@peer@"
        theirs = "".join(f"{name}={text}\n" for name, text in SHARED.items())
        theirs += f"listeners={listeners}\nadvertised.listeners={listeners}\n"
        server = HeadraceServer(
            directory / "data", SHARED, ("--broker-id", "2", "--zookeeper", address),
            listen="CLIENT://127.0.0.1:0,PEER://127.0.0.1:0",
        )  # fmt: skip
        with KafkaNode(directory / "kafka", zookeeper=address, settings=theirs) as node:
            try:
                server.start()
                yield Both(node.bootstrap, server.bootstrap, address, directory)
            finally:
                server.stop()


def scram(user: str, password: str, *, is_token: bool = False) -> ClientSettings:
    """The settings of a client."""
    jaas = f'{SCRAM} username="{user}" password="{password}"{" tokenauth=true" if is_token else ""};'
    sasl = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    return ClientSettings(sasl=sasl, api_timeout_ms=20_000)


ADMIN = scram("admin", "pass,word=")


def may_log_in(address: str, settings: ClientSettings) -> bool:
    """Whether the broker lets it in."""
    try:
        with Cluster(address, settings) as cluster:
            cluster.refresh([])
    except AuthenticationFailed:
        return False
    return True


def test_the_first_user_logs_in_to_both(both: Both) -> None:
    assert may_log_in(both.theirs, ADMIN)
    assert may_log_in(both.ours, ADMIN)
    assert not may_log_in(both.ours, scram("admin", "wrong"))


def test_passwords_that_one_side_sets_count_on_the_other(both: Both) -> None:
    with Cluster(both.ours, ADMIN) as cluster:
        cluster.refresh([])
        request = m.DescribeUserScramCredentialsRequest(users=None)
        control = cluster._control
        assert control is not None

        def users() -> list[str]:
            described = control.call(request, m.DescribeUserScramCredentialsResponse, cluster.deadline(), 0)
            return [each.user for each in described.results]

        UserAdmin(cluster).set_password("ä b", "one", ["SCRAM-SHA-256"])
        eventually_equal(users, ["admin", "ä b"], "users, at a broker that need not be the one that was asked")
        UserAdmin(cluster).set_password("bob", "one", ["SCRAM-SHA-256"])
    eventually(lambda: may_log_in(both.theirs, scram("bob", "one")), "Apache Kafka to hear of the user")
    tool = (
        "kafka.admin.ConfigCommand", "--zookeeper", both.zookeeper, "--entity-type", "users", "--entity-name", "bob",
        "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=two]",
    )  # fmt: skip
    done = subprocess.run(
        [*old_java(both.directory / "tool"), *tool], capture_output=True, text=True, timeout=WITHIN_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(lambda: may_log_in(both.ours, scram("bob", "two")), "headrace to hear of the new password")
    assert not may_log_in(both.ours, scram("bob", "one"))


def test_tokens_that_one_side_makes_log_in_to_the_other(both: Both) -> None:
    for maker, other in ((both.ours, both.theirs), (both.theirs, both.ours)):
        with Cluster(maker, ADMIN) as cluster:
            cluster.refresh([])
            connection = cluster._control
            assert connection is not None
            request = m.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
            token = connection.call(request, m.CreateDelegationTokenResponse, cluster.deadline(), 2)
            assert (token.error_code, token.principal_name) == (0, "admin")
            settings = scram(token.token_id, password_of(bytes(token.hmac)), is_token=True)
            assert may_log_in(maker, settings)
            eventually(lambda s=settings, o=other: may_log_in(o, s), "the other broker to hear of the token")  # type: ignore[misc]
            expiry = m.ExpireDelegationTokenRequest(hmac=bytes(token.hmac), expiry_time_period_ms=-1)
            assert connection.call(expiry, m.ExpireDelegationTokenResponse, cluster.deadline(), 2).error_code == 0
        eventually(lambda s=settings, o=other: not may_log_in(o, s), "the other broker to hear of its end")  # type: ignore[misc]
