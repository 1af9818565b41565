"""A real ZooKeeper whose users authenticate by SASL DIGEST-MD5, and the logins of clients of both kinds."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from headrace.config import BrokerConfig
from headrace.metastore.zookeeper.ensemble import ensemble_of
from headrace.metastore.zookeeper.secured_client import make_client
from headrace.network.zookeeper_kerberos import zookeeper_kerberos
from headrace.network.zookeeper_tls import zookeeper_context
from tests.zookeeper_server import ZooKeeperServer

PASSWORD = 'quote " and \\ slash'
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


def quoted(text: str) -> str:
    """As a JAAS file has it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def zookeeper_login(user: str = "brokers", password: str = PASSWORD) -> str:
    """The login of a client."""
    return f"{MODULE} required username={quoted(user)} password={quoted(password)};"


def client_options(directory: Path) -> tuple[str, ...]:
    """Java's options of Apache Kafka's brokers and tools."""
    jaas = directory / "client-jaas.conf"
    jaas.write_text(f"Client {{ {zookeeper_login()} }};")
    return (f"-Djava.security.auth.login.config={jaas}",)


@contextmanager
def sasl_zookeeper(directory: Path) -> Iterator[str]:
    """The address of a server with users `brokers` and `others`."""
    jaas = directory / "server-jaas.conf"
    users = f"user_brokers={quoted(PASSWORD)} user_others={quoted(PASSWORD)}"
    jaas.write_text(f"Server {{ {MODULE} required {users}; }};")
    provider = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    options = (f"-Djava.security.auth.login.config={jaas}",)
    with ZooKeeperServer(directory, settings=provider, options=options) as server:
        yield server.address


def client_of(config: BrokerConfig) -> KazooClient:
    """A client with the identity of a broker, below its chroot."""
    client = make_client(ensemble_of(config, zookeeper_context, zookeeper_kerberos))
    client.chroot = "/" + config.zookeeper_connect.partition("/")[2]
    return client
