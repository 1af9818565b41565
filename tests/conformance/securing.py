"""How each client of the grid writes some values to a secured broker and reads them back.

A user's options are Kafka's (`headrace.testing`). Clients in other languages get them as `secure` in their commands:
Java takes the options as they are, the others what they need of them.
"""

import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.testing.security import as_aiokafka, as_kafka_python, as_librdkafka, login_of_options, token_of_options
from tests.conformance.model import Client, FromOffset, Message, Writing
from tests.conformance.with_programs import ProgramClient
from tests.eventually import WITHIN_SECONDS, collected

Options = Mapping[str, str]
Values = Sequence[bytes]


def write_and_read(client: Client, bootstrap: str, options: Options, topic: str, values: Values) -> list[bytes]:
    """The values of partition 0 that `client` reads, after it wrote `values` there."""
    if isinstance(client, ProgramClient):
        return _program(client, bootstrap, options, topic, values)
    return _BY_NAME[client.name](bootstrap, options, topic, values)


def _headrace(bootstrap: str, options: Options, topic: str, values: Values) -> list[bytes]:
    from headrace.client.consumer.consumer import Consumer, ConsumerSettings
    from headrace.client.producer.producer import Producer
    from headrace.client.security.client_options import client_settings
    from headrace.types import TopicPartition

    settings = client_settings(options)
    with Producer(bootstrap, client=settings) as producer:
        for each in values:
            producer.send(topic, each, partition=0)
    with Consumer(bootstrap, ConsumerSettings(), settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        return [each.value or b"" for each in collected(lambda _: consumer.poll(200), len(values))]


def _confluent(bootstrap: str, options: Options, topic: str, values: Values) -> list[bytes]:
    from confluent_kafka import Consumer, Producer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, **as_librdkafka(options)}
    producer = Producer(settings)
    for each in values:
        producer.produce(topic, each, partition=0)
    assert producer.flush(WITHIN_SECONDS) == 0
    consumer = Consumer({**settings, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def poll(_: int) -> list[bytes]:
            message = consumer.poll(0.2)
            return [] if message is None or message.error() else [bytes(message.value() or b"")]

        return collected(poll, len(values))
    finally:
        consumer.close()


def _aiokafka(bootstrap: str, options: Options, topic: str, values: Values) -> list[bytes]:
    return asyncio.run(_aiokafka_async(bootstrap, options, topic, values))


async def _aiokafka_async(bootstrap: str, options: Options, topic: str, values: Values) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, **as_aiokafka(options)}
    async with asyncio.timeout(WITHIN_SECONDS):
        producer = AIOKafkaProducer(**settings)
        await producer.start()
        try:
            for each in values:
                await producer.send_and_wait(topic, each, partition=0)
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(**settings, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            return [bytes((await consumer.getone()).value) for _ in values]
        finally:
            await consumer.stop()


def _kafka_python(bootstrap: str, options: Options, topic: str, values: Values) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, **as_kafka_python(options)}
    producer = KafkaProducer(**settings)
    try:
        for each in [producer.send(topic, each, partition=0) for each in values]:
            each.get(WITHIN_SECONDS)
    finally:
        producer.close(WITHIN_SECONDS)
    consumer = KafkaConsumer(**settings, auto_offset_reset="earliest")
    try:
        consumer.assign([TopicPartition(topic, 0)])

        def poll(_: int) -> list[bytes]:
            return [each.value for batch in consumer.poll(200).values() for each in batch]

        return collected(poll, len(values))
    finally:
        consumer.close()


def _kcat(bootstrap: str, options: Options, topic: str, values: Values) -> list[bytes]:
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "kcat.conf")  # a command line would show the password
        config.write_text("".join(f"{name}={value}\n" for name, value in as_librdkafka(options).items()))
        base = ["kcat", "-F", str(config), "-b", bootstrap, "-t", topic, "-p", "0"]
        _run([*base, "-P"], b"\n".join(values))
        return _run([*base, "-C", "-q", "-o", "0", "-c", str(len(values))], b"").splitlines()


def _run(command: Sequence[str], data: bytes) -> bytes:
    return subprocess.run(command, input=data, capture_output=True, timeout=WITHIN_SECONDS, check=True).stdout


def _program(client: ProgramClient, bootstrap: str, options: Options, topic: str, values: Values) -> list[bytes]:
    secure = _secure(options, client.name == "java 2.8.2")
    records = [Message(None, each) for each in values]
    client.secure_with(secure)
    try:
        client.produce(bootstrap, topic, records, Writing())
        return [each.message.value or b"" for each in client.read(bootstrap, topic, FromOffset(0), len(values))]
    finally:
        client.secure_with(None)


def _inline(options: Options) -> dict[str, str]:
    """Keys in the options themselves: Java's client refuses a PEM file without a password up to 2.8."""
    found = {name: value for name, value in options.items() if name != "ssl.keystore.location"}
    if "ssl.keystore.location" in options:
        key, begin, chain = Path(options["ssl.keystore.location"]).read_text().partition("-----BEGIN CERTIFICATE")
        found |= {"ssl.keystore.key": key.strip(), "ssl.keystore.certificate.chain": (begin + chain).strip()}
    return found


def _secure(options: Options, is_inline: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "options": _inline(options) if is_inline else dict(options),
        "ca": options.get("ssl.truststore.location", ""),
        "certificate": options.get("ssl.keystore.location", ""),
        "mechanism": options.get("sasl.mechanism", ""),
    }
    if options.get("sasl.mechanism") == "OAUTHBEARER":
        found["token"] = token_of_options(options)
    elif "sasl.mechanism" in options:
        found["user"], found["password"] = login_of_options(options)
    return found


_BY_NAME: Mapping[str, Callable[[str, Options, str, Values], list[bytes]]] = {
    "headrace": _headrace,
    "confluent-kafka": _confluent,
    "aiokafka": _aiokafka,
    "kafka-python": _kafka_python,
    "kcat": _kcat,
}
