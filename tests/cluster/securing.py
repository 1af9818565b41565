"""What a secured cluster has before its first broker: a user of the brokers, and access control lists, in ZooKeeper."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from kazoo.client import KazooClient

from headrace.cli.main import main as headrace
from tests.certificates import server_settings
from tests.kerberos import KEYTAB_LOGIN

PASSWORD = 'the "brokers" password'
DIGEST = "brokers:zookeeper-secret"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
CERTIFIED = "User:CN=broker,O=headrace development (not for production)"
"""The principal of the certificate that brokers have."""
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
CLIENTS_MAY = {
    "Topic/*": ("All",),
    "Group/*": ("All",),
    "TransactionalId/*": ("All",),
    "Cluster/kafka-cluster": ("Create", "Describe", "Alter", "DescribeConfigs", "AlterConfigs", "IdempotentWrite"),
}
"""What tests do through the PLAINTEXT listener, as ANONYMOUS: everything but what brokers do."""
BROKERS_MAY = {"Cluster/kafka-cluster": ("ClusterAction",)}


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    """A properties file; a backslash and a quote stay as they are."""
    lines = (f"{name}={text}".replace("\\", "\\\\") for name, text in settings.items())
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def login(password: str = PASSWORD, user: str = "broker") -> str:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'{SCRAM} required username="{user}" password="{quoted}";'


def scram_settings(directory: Path, password: str = PASSWORD) -> dict[str, str]:
    """Brokers speak SASL_SSL with SCRAM among themselves; tests PLAINTEXT with them."""
    return {
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,PEER:SASL_SSL,CONTROL:SSL",
        "inter.broker.listener.name": "PEER",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.peer.scram-sha-256.sasl.jaas.config": login(password),
        **server_settings(directory),
        **AUTHORIZED,
    }


def mtls_settings(directory: Path) -> dict[str, str]:
    """Brokers know each other by their certificates."""
    return {
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,PEER:SSL,CONTROL:SSL",
        "inter.broker.listener.name": "PEER",
        "listener.name.peer.ssl.client.auth": "required",
        **server_settings(directory),
        **AUTHORIZED,
    }


def plain_settings(directory: Path) -> dict[str, str]:
    """Brokers have a user and a password; the controller a listener of its own, where it shows its certificate."""
    brokers = f"{PLAIN} required username=broker password=brokers-password user_broker=brokers-password;"
    return {
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,PEER:SASL_PLAINTEXT,CONTROL:SSL",
        "inter.broker.listener.name": "peer",
        "control.plane.listener.name": "control",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.peer.plain.sasl.jaas.config": brokers,
        "listener.name.control.ssl.client.auth": "required",
        **{f"listener.name.control.{name}": text for name, text in server_settings(directory).items()},
        **AUTHORIZED,
    }


def kerberos_settings(keytab: Path) -> dict[str, str]:
    """Brokers have the principal kafka/127.0.0.1 of the realm of `tests.kerberos`."""
    return {
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,PEER:SASL_PLAINTEXT,CONTROL:PLAINTEXT",
        "inter.broker.listener.name": "peer",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.peer.gssapi.sasl.jaas.config": f'{KEYTAB_LOGIN} keyTab="{keytab}" principal="kafka/127.0.0.1";',
        **AUTHORIZED,
    }


AUTHORIZED = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "headrace.zookeeper.digest": DIGEST,
    "zookeeper.set.acl": "true",
}


def add_user(zookeeper: str, directory: Path, settings: Mapping[str, str] | None = None) -> None:
    """Gives the brokers' user a SCRAM password before there is a broker. `settings`: of the way to ZooKeeper."""
    secret = directory / "password"
    secret.write_text(PASSWORD)
    settings = settings or {name: text for name, text in AUTHORIZED.items() if "zookeeper" in name}
    config = write_properties(directory / "zookeeper.properties", settings)
    given = ["--password-file", str(secret), "--zookeeper", zookeeper, "--zookeeper-config", str(config)]
    assert headrace(["user", "add", "broker", *given]) == 0


def permit(store: KazooClient, *rights: tuple[str, Mapping[str, Sequence[str]]]) -> None:
    """Writes access control lists: of each principal, the operations by TYPE/NAME."""
    lists: dict[str, list[dict[str, str]]] = {}
    for principal, by_resource in rights:
        for resource, operations in by_resource.items():
            lists.setdefault(resource, []).extend(
                {"principal": principal, "permissionType": "Allow", "operation": each, "host": "*"}
                for each in operations
            )
    for resource, acls in lists.items():
        store.create(f"/kafka-acl/{resource}", json.dumps({"version": 1, "acls": acls}).encode(), makepath=True)
