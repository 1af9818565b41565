"""Real clients that log in by PLAIN and SCRAM, and users from the first one on: by our commands and Kafka's tools."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaAdminClient
from kafka.errors import KafkaError as KafkaPythonError

from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.user_admin import User, UserAdmin
from headrace.errors import AuthenticationFailed, ErrorCode, KafkaError
from headrace.testing import Broker
from tests.broker.conftest import PEER
from tests.cli.conftest import run_headrace
from tests.eventually import WITHIN_SECONDS, eventually
from tests.peers import kafka

pytestmark = pytest.mark.slow

MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-256": "scram.ScramLoginModule"}
MODULES["SCRAM-SHA-512"] = MODULES["SCRAM-SHA-256"]
SETTINGS: dict[str, str | int] = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="a\'d,min=";'
    ),
    "connection.failed.authentication.delay.ms": 10,
}
PASSWORD = "a'd,min="


def options(mechanism: str, password: str = PASSWORD, user: str = "admin") -> dict[str, str]:
    """Kafka's client options."""
    module = f"org.apache.kafka.common.security.{MODULES[mechanism]}"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


def settings(mechanism: str, password: str = PASSWORD, user: str = "admin") -> ClientSettings:
    """The same for our client."""
    return ClientSettings(sasl=options(mechanism, password, user), api_timeout_ms=20_000)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose first user was written before it ran."""
    data = tmp_path_factory.mktemp("sasl") / "data"
    done = run_headrace("user", "add", "admin", "--data", str(data), stdin=f"{PASSWORD}\n".encode())
    assert done.returncode == 0, done.stderr
    with Broker(data=data, settings=SETTINGS) as broker:
        done = run_headrace("user", "list", "--data", str(data))
        assert b"a broker runs" in done.stderr
        yield broker


def _confluent(bootstrap: str, mechanism: str, password: str) -> None:
    common: dict[str, str | int] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": "admin",
        "sasl.password": password,
    }
    producer = Producer({**common, "message.timeout.ms": 20_000})
    if password != PASSWORD:
        errors: list[object] = []
        refused = Producer({**common, "error_cb": errors.append})
        eventually(lambda: refused.poll(0.05) >= 0 and bool(errors), "librdkafka to say why")
        raise KafkaException(errors[0])
    producer.produce("confluent", b"value")
    assert producer.flush(WITHIN_SECONDS) == 0
    consumer = Consumer({**common, "group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe(["confluent"])
    try:
        [record] = consumer.consume(1, WITHIN_SECONDS)
        assert record.value() == b"value"
    finally:
        consumer.close()


def _aiokafka(bootstrap: str, mechanism: str, password: str) -> None:
    common = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "admin",
        "sasl_plain_password": password,
    }

    async def run() -> None:
        async with AIOKafkaProducer(**common) as producer:
            await producer.send_and_wait("aiokafka", b"value")
        async with AIOKafkaConsumer("aiokafka", **common, auto_offset_reset="earliest") as consumer:
            assert (await consumer.getone()).value == b"value"

    asyncio.run(run())


def _kafka_python(bootstrap: str, mechanism: str, password: str) -> None:
    admin = KafkaAdminClient(
        bootstrap_servers=bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="admin",
        sasl_plain_password=password,
        request_timeout_ms=5_000,
        bootstrap_timeout_ms=5_000,
    )
    admin.list_topics()
    admin.close()


def _headrace(bootstrap: str, mechanism: str, password: str) -> None:
    with Cluster(bootstrap, settings(mechanism, password)) as cluster:
        assert cluster.refresh(None).brokers


CLIENTS: dict[str, tuple[Callable[[str, str, str], None], type[Exception]]] = {
    "confluent-kafka": (_confluent, KafkaException),
    "aiokafka": (_aiokafka, Exception),
    "kafka-python": (_kafka_python, KafkaPythonError),
    "headrace": (_headrace, AuthenticationFailed),
}


@pytest.mark.parametrize("mechanism", sorted(MODULES))
@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_clients_log_in(broker: Broker, client: str, mechanism: str) -> None:
    CLIENTS[client][0](broker.bootstrap, mechanism, PASSWORD)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_clients_with_a_wrong_password_do_not(broker: Broker, client: str, mechanism: str) -> None:
    log_in, error = CLIENTS[client]
    with pytest.raises(error):
        log_in(broker.bootstrap, mechanism, "wrong")


def test_a_changed_password_counts_at_once(broker: Broker) -> None:
    with Cluster(broker.bootstrap, settings("PLAIN")) as cluster:
        users = UserAdmin(cluster)
        users.set_password("änne", "one", iterations=8192)
        assert users.describe_user("änne") == User("änne", {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192})
        _log_in(broker, "one")
        users.set_password("änne", "two", ["SCRAM-SHA-256"])
        with pytest.raises(AuthenticationFailed):
            _log_in(broker, "one")
        _log_in(broker, "two")
        users.remove("änne", ["SCRAM-SHA-256"])
        assert [each.name for each in users.list_users()] == ["admin", "änne"]
        with pytest.raises(AuthenticationFailed):
            _log_in(broker, "two")
        users.remove("änne")
        assert [each.name for each in users.list_users()] == ["admin"]
        with pytest.raises(KafkaError) as raised:
            users.remove("änne")
        assert raised.value.code is ErrorCode.RESOURCE_NOT_FOUND
        for iterations, said in ((4095, "Too few iterations"), (16_385, "Too many iterations")):
            with pytest.raises(KafkaError, match=said):
                users.set_password("bob", "builder", iterations=iterations)


def _log_in(broker: Broker, password: str) -> None:
    with Cluster(broker.bootstrap, settings("SCRAM-SHA-256", password, "änne")) as cluster:
        cluster.refresh([])


def test_our_client_authenticates_again_before_its_session_is_over() -> None:
    with (
        Broker(settings={**SETTINGS, "connections.max.reauth.ms": 2500}) as broker,
        Cluster(broker.bootstrap, settings("PLAIN")) as cluster,
    ):
        first = cluster.refresh([])
        connection = cluster._control
        assert connection is not None
        eventually(lambda: connection._renewal is not None and connection._renewal.expired, "the session to be old")
        assert cluster.refresh([]).brokers == first.brokers
        assert cluster._control is connection
        assert connection._renewal is not None
        assert not connection._renewal.expired


def test_users_are_managed_on_the_command_line(broker: Broker, tmp_path: Path) -> None:
    config = tmp_path / "admin.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in options("SCRAM-SHA-512").items()))
    password = tmp_path / "password"
    password.write_text("builder\n")
    access = ("--bootstrap", broker.bootstrap, "--command-config", str(config))

    def text(*arguments: str) -> str:
        done = run_headrace("user", *arguments, *access)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    assert "bob has a password" in text("add", "bob", "--password-file", str(password), "--mechanism", "scram-sha-256")
    listed = [line.split() for line in text("list").splitlines()]
    assert ["admin", "SCRAM-SHA-512", "4096"] in listed
    assert ["bob", "SCRAM-SHA-256", "4096"] in listed
    assert text("describe", "bob").split()[3:] == ["bob", "SCRAM-SHA-256", "4096"]
    with Cluster(broker.bootstrap, settings("SCRAM-SHA-256", "builder", "bob")) as cluster:
        cluster.refresh([])
    text("remove", "bob")
    assert "bob" not in text("list")
    for arguments in (("remove", "bob"), ("describe", "bob"), ("add", "bob", "--mechanism", "PLAIN")):
        done = run_headrace("user", *arguments, *access, stdin=b"x\n")
        assert done.returncode != 0
        assert done.stderr


@pytest.mark.parametrize("_", [pytest.param("Java", marks=PEER)])
def test_kafkas_tool_manages_users(broker: Broker, tmp_path: Path, _: str) -> None:
    config = tmp_path / "admin.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in options("SCRAM-SHA-256").items()))

    def configs(*arguments: str) -> str:
        return kafka.run_tool(
            "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, "--command-config", str(config),
            "--entity-type", "users", *arguments, logs=tmp_path,
        )  # fmt: skip

    added = "SCRAM-SHA-256=[iterations=8192,password=builder]"
    assert "Completed updating" in configs("--entity-name", "bob", "--alter", "--add-config", added)
    assert "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-256=iterations=8192" in configs(
        "--describe"
    )
    with Cluster(broker.bootstrap, settings("SCRAM-SHA-256", "builder", "bob")) as cluster:
        cluster.refresh([])
    assert "Completed updating" in configs("--entity-name", "bob", "--alter", "--delete-config", "SCRAM-SHA-256")
    assert "bob" not in configs("--describe")
