"""Our client against Apache Kafka's secured listeners: it gets in, and is told what is wrong as by headrace."""

from collections.abc import Iterator

import pytest

from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.producer.producer import Producer
from headrace.client.security.client_options import client_settings
from headrace.errors import KafkaError
from headrace.testing.security import Security, SecurityFiles
from tests.harness import free_ports
from tests.peers.kafka import SHARED_SETTINGS, run_kafka

pytestmark = [pytest.mark.peer, pytest.mark.slow]
PLAIN_LISTENERS = "PLAINTEXT://127.0.0.1:{port}"
CONTROLLER = "CONTROLLER://127.0.0.1:{controller_port}"


class SecuredKafka:
    """A node with a plain, a TLS and a SASL_SSL listener."""

    def __init__(self, bootstrap: str, tls: str, sasl: str, files: SecurityFiles) -> None:
        self.bootstrap, self.tls, self.sasl, self.files = bootstrap, tls, sasl, files

    def options(self, **more: str) -> dict[str, str]:
        return {**self.files.client_options("alice"), **{name.replace("_", "."): text for name, text in more.items()}}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    directory = tmp_path_factory.mktemp("secured-kafka")
    (directory / "keys").mkdir()
    files = SecurityFiles(Security("SASL_SSL", mechanisms=("PLAIN",)), directory / "keys")
    tls, sasl = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings = {
        **SHARED_SETTINGS,
        **files.broker_settings(),
        "listeners": f"{PLAIN_LISTENERS},SSL://{tls},SASL_SSL://{sasl},{CONTROLLER}",
        "advertised.listeners": f"{PLAIN_LISTENERS},SSL://{tls},SASL_SSL://{sasl}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
    }
    with run_kafka(directory / "node", is_kept=False, settings=settings) as bootstrap:
        yield SecuredKafka(bootstrap, tls, sasl, files)


def refusal(bootstrap: str, options: dict[str, str]) -> str:
    with pytest.raises(KafkaError) as refused, Admin(bootstrap, client_settings(options)) as admin:
        admin.list_topics()
    assert "\n" not in refused.value.message
    return refused.value.message


def test_the_client_writes_through_apache_kafkas_secured_listeners(secured: SecuredKafka) -> None:
    tls = {name: value for name, value in secured.options(security_protocol="SSL").items() if "sasl" not in name}
    for address, options in ((secured.sasl, secured.options()), (secured.tls, tls)):
        settings = client_settings(options)
        topic = f"secured-{address.rpartition(':')[2]}"
        with Admin(address, settings) as admin:
            admin.create_topics([NewTopic(topic, 1)])
        with Producer(address, client=settings) as producer:
            assert producer.send(topic, b"x").result().offset == 0


def test_a_misconfigured_client_is_told_what_to_set_by_apache_kafka_too(secured: SecuredKafka) -> None:
    assert "set security.protocol=SSL" in refusal(secured.tls, {})
    assert "security.protocol without SSL" in refusal(secured.bootstrap, secured.options())
    no_sasl = secured.options(security_protocol="SSL")
    assert "set security.protocol=SASL_SSL, and sasl.mechanism" in refusal(secured.sasl, no_sasl)
    assert "set security.protocol to PLAINTEXT or SSL" in refusal(secured.tls, secured.options())
    jaas = secured.options()["sasl.jaas.config"]
    other = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas.replace("plain.Plain", "scram.Scram")}
    assert "it supports PLAIN: set sasl.mechanism" in refusal(secured.sasl, secured.options() | other)
    jaas = jaas.replace("alice-secret", "wrong")
    message = refusal(secured.sasl, secured.options() | {"sasl.jaas.config": jaas})
    assert "refused the authentication by PLAIN" in message and "wrong" not in message
