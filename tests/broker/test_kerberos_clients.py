"""Clients of others that log in by Kerberos, and our client at Apache Kafka: in a real realm of MIT Kerberos.

confluent-kafka's wheels are built without GSSAPI, so librdkafka is tried through kcat, where Debian's is.
"""

import asyncio
import glob
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaAdminClient

from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import Admin, NewTopic
from headrace.testing import Broker
from tests.conformance.old.old_programs import OldJavaProgram
from tests.harness import child_environment, free_ports, unused
from tests.kerberos import KEYTAB_LOGIN, Realm, client_options, missing_tools, server_settings
from tests.peers import kafka
from tests.peers.kafka_tools import Tools, kafka_tools

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing_tools()), reason=missing_tools() or "")]
TOPICS = "org.apache.kafka.tools.TopicCommand"
COMMON = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "GSSAPI",
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": "localhost",
}


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with Realm(tmp_path_factory.mktemp("realm")) as realm, realm.used():
        realm.add("kafka/localhost")
        realm.add("alice", "carol")
        yield realm


@pytest.fixture(scope="module")
def broker(realm: Realm) -> Iterator[Broker]:
    """A broker that is known as localhost, as it is for Java, which reverses addresses."""
    (port,) = free_ports(1)
    settings = server_settings(realm, "kafka/localhost") | {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"SASL_PLAINTEXT://localhost:{port}",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](carol)s/$/@x/,DEFAULT",
        "super.users": "User:alice;User:ANONYMOUS",
        "connection.failed.authentication.delay.ms": 10,
    }
    with Broker(settings=settings) as broker:
        yield broker


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return f"localhost:{broker.port}"


@pytest.fixture
def _tickets(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of kinit, for clients that know no key tables."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.tickets(realm.directory / 'alice.keytab', 'alice')}")


@pytest.mark.usefixtures("_tickets")
def test_kafka_python_logs_in(bootstrap: str) -> None:
    """It sends the name of the service as its authorization id."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, **COMMON)
    assert isinstance(admin.list_topics(), list)
    admin.close()


@pytest.mark.usefixtures("_tickets")
def test_aiokafka_produces_and_consumes(bootstrap: str) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, **COMMON) as producer:
            await producer.send_and_wait("aiokafka", b"value")
        consumer = AIOKafkaConsumer("aiokafka", bootstrap_servers=bootstrap, auto_offset_reset="earliest", **COMMON)
        async with consumer:
            assert (await consumer.getone()).value == b"value"

    asyncio.run(run())


@pytest.mark.skipif(
    shutil.which("kcat") is None or not glob.glob("/usr/lib/*/sasl2/libgssapiv2.so*"),
    reason="needs kcat and libsasl2-modules-gssapi-mit",
)
def test_librdkafka_logs_in_through_cyrus_sasl(realm: Realm, bootstrap: str, tmp_path: Path) -> None:
    options = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "GSSAPI", "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": str(realm.directory / "alice.keytab"), "sasl.kerberos.principal": "alice@EXAMPLE.COM",
    }  # fmt: skip
    given = [part for name, value in options.items() for part in ("-X", f"{name}={value}")]
    environment = {**child_environment(), "KRB5CCNAME": f"FILE:{tmp_path}/tickets"}  # it calls kinit
    command = ["kcat", "-b", bootstrap, "-L", *given]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert "1 brokers:" in done.stdout, done.stderr


def test_the_command_line_logs_in_with_a_key_table(realm: Realm, bootstrap: str, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    options = client_options(realm, "alice", realm.directory / "alice.keytab")
    properties.write_text("".join(f"{name}={value}\n" for name, value in options.items()))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headrace", *arguments]
        more = ("--bootstrap", bootstrap, "--command-config", str(properties))
        return subprocess.run([*command, *more], env=child_environment(), capture_output=True, text=True, timeout=60)

    done = run("topic", "create", "of-alice")
    assert done.returncode == 0, done.stderr
    properties.write_text(properties.read_text().replace("name=kafka\n", "name=kavka\n"))
    failed = run("topic", "list")
    assert failed.returncode != 0
    assert "Server kavka/localhost@EXAMPLE.COM not found in Kerberos database" in failed.stderr
    assert "Traceback" not in failed.stderr


@contextmanager
def java_tools(realm: Realm, version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """Kafka's tools of a version, in a JVM that belongs to the realm."""
    logs = tmp_path_factory.mktemp("tools")
    command = kafka.java_command(
        logs, "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Djava.security.krb5.conf={realm.config}"
    )
    command[-1] = f"{kafka.jars(version)}/*"
    with kafka_tools(logs, command) as running:
        yield running


@pytest.mark.peer
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or "")
@pytest.mark.parametrize("version", ["4.3.1", "3.9.2"])
def test_java_logs_in_with_a_key_table_and_is_told_what_is_wrong(
    realm: Realm, bootstrap: str, tmp_path_factory: pytest.TempPathFactory, version: str
) -> None:
    config = tmp_path_factory.mktemp("java") / "client.properties"

    def written(principal: str) -> str:
        options = client_options(realm, principal, realm.directory / "alice.keytab")
        config.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
        return str(config)

    base, topic = (TOPICS, "--bootstrap-server", bootstrap, "--command-config"), unused("java")
    with java_tools(realm, version, tmp_path_factory) as java:
        assert f"Created topic {topic}" in java.run(*base, written("alice"), "--create", "--topic", topic)
        assert topic in java.run(*base, written("alice"), "--list")
        refused = java.run(*base, written("carol"), "--list")
    assert "due to invalid credentials with SASL mechanism GSSAPI" in refused


@pytest.mark.peer
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or "")
@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.2.2", "2.8.2"])
def test_old_java_produces(realm: Realm, bootstrap: str, tmp_path: Path, version: str) -> None:
    """0.9 begins with a token, 0.10 sends bare ones behind a handshake of version 0."""
    options = client_options(realm, "alice", realm.directory / "alice.keytab")
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(f"KafkaClient {{ {options['sasl.jaas.config']} }};")
    topic = unused("old-java")
    with Cluster(bootstrap, ClientSettings(sasl=options, api_timeout_ms=20_000)) as cluster:
        Admin(cluster).create_topics([NewTopic(topic, 1)])
    java = ["java", "-cp", f"{kafka.jars(version)}/*"] if version == "2.8.2" else OldJavaProgram(version).command()[:-1]
    realms = (f"-Djava.security.auth.login.config={jaas}", f"-Djava.security.krb5.conf={realm.config}")
    source = kafka.HERE / "java" / "KerberosProducer.java"
    command = [*java, *realms, str(source), bootstrap, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1:] == ["offset 0"], done.stdout + done.stderr


@pytest.mark.peer
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or "")
def test_our_client_logs_in_at_apache_kafka(realm: Realm, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    keytab = realm.directory / "kafka-localhost.keytab"
    settings = {
        **kafka.SHARED_SETTINGS,
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
            f'{KEYTAB_LOGIN} keyTab="{keytab}" principal="kafka/localhost@EXAMPLE.COM";'
        ),
    }
    options = client_options(realm, "alice", realm.directory / "alice.keytab")
    apache_kafka = kafka.run_kafka(
        tmp_path / "kafka",
        is_kept=False,
        settings=settings,
        options=(f"-Djava.security.krb5.conf={realm.config}",),
        listener=f"SASL_PLAINTEXT://localhost:{port}",
    )
    at = ClientSettings(sasl=options, api_timeout_ms=20_000)
    with apache_kafka, Cluster(f"localhost:{port}", at) as cluster:
        assert cluster.refresh(None).brokers
