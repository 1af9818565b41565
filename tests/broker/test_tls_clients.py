"""Clients of others over TLS, with and without a certificate of their own; the principals that they get."""

import asyncio
import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from headrace.network.server import Server
from tests.broker.tls_broker import TlsBroker, tls_broker
from tests.certificates import PASSWORD, authority, client_settings, identity, write_pkcs12, write_pkcs12_trust
from tests.eventually import eventually_async
from tests.peers import kafka

if TYPE_CHECKING:
    from headrace.network.tls.handshakes import CompletedHandshake

pytestmark = pytest.mark.slow

TOPIC = "over-tls"
VALUES = [bytes([number % 256]) * 100_000 for number in range(40)]  # 4 MB: many records of TLS in each answer
ALICE = "User:CN=alice,O=headrace development (not for production)"


@pytest.fixture
def principals(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The principals of the connections whose handshake was completed."""
    found: set[str] = set()
    shaken = Server._shaken

    def record(server: Server, opened: "CompletedHandshake") -> None:
        found.add(opened.principal)
        shaken(server, opened)

    monkeypatch.setattr(Server, "_shaken", record)
    return found


@pytest.mark.parametrize("name", [None, "alice"])
async def test_confluent_kafka(tmp_path: Path, name: str | None, principals: set[str]) -> None:
    def exchange(broker: TlsBroker) -> list[bytes]:
        settings = {
            "bootstrap.servers": f"localhost:{broker.port}",
            "security.protocol": "SSL",
            "ssl.ca.pem": authority().certificate_pem().decode(),
            "broker.address.family": "v4",
        }
        if name is not None:
            settings["ssl.key.pem"] = identity(name).key_pem().decode()
            settings["ssl.certificate.pem"] = identity(name).certificate_pem().decode()
        producer = Producer(settings)
        for value in VALUES:
            producer.produce(TOPIC, value)
        assert producer.flush(30) == 0
        consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        found: list[bytes] = []
        while len(found) < len(VALUES):
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            found.append(bytes(message.value() or b""))
        consumer.close()
        return found

    async with tls_broker(tmp_path, ssl_client_auth="requested") as broker:
        assert await asyncio.to_thread(exchange, broker) == VALUES
    assert principals == {ALICE if name else "User:ANONYMOUS"}


@pytest.mark.parametrize("name", [None, "alice"])
async def test_aiokafka(tmp_path: Path, name: str | None, principals: set[str]) -> None:
    context = ssl.create_default_context(cadata=authority().certificate_pem().decode())
    if name is not None:
        context.load_cert_chain(client_settings(tmp_path, name=name)["ssl.keystore.location"])
    async with tls_broker(tmp_path, ssl_client_auth="requested") as broker:
        settings = {
            "bootstrap_servers": f"localhost:{broker.port}", "security_protocol": "SSL", "ssl_context": context,
        }  # fmt: skip
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send_and_wait(TOPIC, value)
        async with AIOKafkaConsumer(TOPIC, auto_offset_reset="earliest", **settings) as consumer:
            found = [(await consumer.getone()).value for _ in VALUES]
    assert found == VALUES
    assert principals == {ALICE if name else "User:ANONYMOUS"}


@pytest.mark.peer
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=str(kafka.missing_tools()))
@pytest.mark.parametrize("name", [None, "alice"])
async def test_java_clients(tmp_path: Path, name: str | None, principals: set[str]) -> None:
    path = tmp_path / "client.properties"
    lines = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(write_pkcs12_trust(tmp_path / "trust.p12")),
        "ssl.truststore.password": PASSWORD,
    }
    if name is not None:
        lines["ssl.keystore.location"] = str(write_pkcs12(tmp_path / "key.p12", identity(name)))
        lines |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.password": PASSWORD}
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def exchange(broker: TlsBroker) -> tuple[str, str]:
        bootstrap = f"127.0.0.1:{broker.port}"
        produced = kafka.run_tool(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC, "--num-records", "2000", "--record-size",
            "10000", "--throughput", "-1", "--producer.config", str(path),
            "--producer-props", f"bootstrap.servers={bootstrap}", logs=tmp_path,
        )  # fmt: skip
        consumed = kafka.run_tool(
            "org.apache.kafka.tools.ConsumerPerformance", "--topic", TOPIC, "--num-records", "2000",
            "--bootstrap-server", bootstrap, "--command-config", str(path), logs=tmp_path,
        )  # fmt: skip
        return produced, consumed

    async with tls_broker(tmp_path, ssl_client_auth="requested") as broker:
        produced, consumed = await asyncio.to_thread(exchange, broker)
    assert "2000 records sent" in produced
    assert int(consumed.strip().splitlines()[-1].split(",")[4]) >= 2000
    assert principals == {ALICE if name else "User:ANONYMOUS"}


@pytest.mark.peer
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=str(kafka.missing_tools()))
async def test_kafka_configs_changes_the_certificate_of_a_running_broker(tmp_path: Path) -> None:
    renewed = identity("broker", days=103)
    store = tmp_path / "renewed.pem"
    store.write_bytes(renewed.key_pem() + renewed.certificate_pem())
    name = "listener.name.ssl.ssl.keystore.location"

    def alter(broker: TlsBroker, location: Path) -> str:
        return kafka.run_tool(
            "kafka.admin.ConfigCommand", "--bootstrap-server", f"127.0.0.1:{broker.plain_port}", "--alter",
            "--entity-type", "brokers", "--entity-name", str(broker.services.replication.broker_id),
            "--add-config", f"{name}={location}", logs=tmp_path, with_stderr=True,
        )  # fmt: skip

    def presented(broker: TlsBroker) -> bytes | None:
        with broker.connect() as sock:
            return sock.getpeercert(binary_form=True)

    async with tls_broker(tmp_path) as broker:
        before = await asyncio.to_thread(presented, broker)
        with pytest.raises((RuntimeError, subprocess.CalledProcessError), match="No such file"):
            await asyncio.to_thread(alter, broker, tmp_path / "missing.pem")
        assert await asyncio.to_thread(presented, broker) == before
        assert "Completed updating config" in await asyncio.to_thread(alter, broker, store)

        async def is_renewed() -> bool:
            return await asyncio.to_thread(presented, broker) != before

        await eventually_async(is_renewed, "the renewed certificate")
