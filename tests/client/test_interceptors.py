"""Interceptors of both faces, on our broker and on Apache Kafka: what they see and change, and that none stops work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from headrace import Consumer, Producer
from headrace.client import aio
from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.client.core.group_metadata import OffsetAndMetadata
from headrace.client.operations.admin import Admin
from headrace.client.producer.delivery import RecordMetadata
from headrace.client.producer.interceptors import ProducerRecord
from headrace.errors import InvalidConfig, InvalidRecord, KafkaError, MessageTooLarge
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS, collected

IN_VAIN = ("127.0.0.1:1",)


class Stamp:
    """Appends a letter to each value, as text before the serializer, and keeps what it is told."""

    def __init__(self, letter: str = "") -> None:
        self.letter = letter
        self.outcomes: list[tuple[RecordMetadata, BaseException | None]] = []
        self.is_closed = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(
            value=record.value + self.letter, headers=[*record.headers, ("by", self.letter.encode())]
        )

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.outcomes.append((metadata, error))

    def close(self) -> None:
        self.is_closed = True


class Broken:
    """Fails in every method."""

    def __getattr__(self, name: str) -> Any:
        if name not in ("on_send", "on_acknowledgement", "on_consume", "on_commit", "close"):
            raise AttributeError(name)

        def fail(*_: object) -> None:
            raise ZeroDivisionError(name)

        return fail


class Forgetful:
    """Returns nothing."""

    def on_send(self, record: ProducerRecord) -> None:
        """Nothing."""

    def on_consume(self, records: list[ConsumerRecord]) -> None:
        """Nothing."""


class Odd:
    """Leaves out every other record, and keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.commits: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.is_closed = False

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        self.seen += [record.offset for record in records]
        return [record for record in records if record.offset % 2]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.commits.append(dict(offsets))

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def topic(admin: Admin) -> str:
    name = topic_name("intercepted")
    admin.create_topic(name, 1, 1)
    return name


@pytest.fixture
def filled(broker: str, topic: str) -> str:
    """Ten records."""
    with Producer(broker) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    return topic


def records(broker: str, topic: str, count: int) -> list[ConsumerRecord]:
    with Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return collected(lambda _: consumer.poll(200), count)


def test_each_interceptor_gets_what_the_one_before_made_of_the_record(broker: str, topic: str) -> None:
    first, second = Stamp("a"), Stamp("b")
    told: list[int] = []
    chain = [first, Broken(), Forgetful(), second]
    with Producer(broker, value_serializer="string", interceptor_classes=chain) as producer:
        delivery = producer.send(topic, "tea-", headers={"shop": b"north"}, on_delivery=lambda *_: told.append(1))
        place = delivery.result()
    assert first.is_closed and second.is_closed
    assert [first.outcomes, second.outcomes] == [[(place, None)]] * 2
    assert told == [1]
    (stored,) = records(broker, topic, 1)
    assert (stored.value, list(stored.headers)) == (b"tea-ab", [("shop", b"north"), ("by", b"a"), ("by", b"b")])


def test_the_exception_of_an_interceptor_is_logged_with_its_name(
    broker: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "headrace"):
        with Producer(broker, interceptors=Broken()) as producer:
            producer.send(topic, b"tea").result()
        with Consumer(broker, group_id=topic, auto_offset_reset="earliest", interceptors=[Broken()]) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert [each.value for each in collected(lambda _: consumer.poll(200), 1)] == [b"tea"]
            consumer.commit()
    said = [line.getMessage().split()[0] for line in caplog.records if "interceptor" in line.getMessage()]
    assert said == ["on_send", "on_acknowledgement", "close", "on_consume", "on_commit", "close"]


def test_a_record_that_is_refused_at_once_is_told_with_its_topic(broker: str, topic: str) -> None:
    watching = Stamp("!")
    with Producer(broker, interceptors=watching) as producer, pytest.raises(InvalidRecord):
        producer.send(topic, "text", partition=0)
    ((where, error),) = watching.outcomes
    assert where == (topic, 0, -1, -1)
    assert isinstance(error, InvalidRecord)


def test_a_record_that_the_broker_refuses_is_told_and_still_counts_as_lost(
    broker: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    watching = Stamp("")
    with Producer(broker, value_serializer="string", interceptors=watching) as producer:
        producer.send(topic, "x" * (2 << 20))
    ((where, error),) = watching.outcomes
    assert where == (topic, -1, -1, -1)
    assert isinstance(error, MessageTooLarge)
    assert "lost" in caplog.text, "the program did not ask, so the log has it"


def test_an_interceptor_hears_of_a_record_once_although_it_has_headers_in_a_mapping(broker: str, topic: str) -> None:
    watching = Stamp("!")
    with Producer(broker, value_serializer="string", interceptors=watching) as producer:
        producer.send(topic, "tea", headers={"shop": b"north"})
        producer.send_columns(topic, None, [b"columns pass without interceptors"])
    assert len(watching.outcomes) == 1
    assert [record.value for record in records(broker, topic, 2)] == [b"tea!", b"columns pass without interceptors"]


def test_poll_returns_what_an_interceptor_leaves_and_the_position_goes_past_the_rest(broker: str, filled: str) -> None:
    odd = Odd()
    partition = TopicPartition(filled, 0)
    how: dict[str, Any] = {"group_id": filled, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(broker, interceptor_classes=[Forgetful(), odd], **how) as consumer:
        consumer.assign([partition])
        assert [record.offset for record in collected(lambda _: consumer.poll(200), 5)] == [1, 3, 5, 7, 9]
        assert odd.seen == list(range(10))
        assert consumer.position(partition) == 10
        consumer.commit()
        consumer.commit({partition: OffsetAndMetadata(4, "half")})
        assert odd.commits == [{partition: OffsetAndMetadata(10)}, {partition: OffsetAndMetadata(4, "half")}]
        assert not odd.is_closed
    assert odd.is_closed


def test_an_iteration_passes_the_interceptors_too_and_commits_the_records_given(broker: str, filled: str) -> None:
    odd = Odd()
    partition = TopicPartition(filled, 0)
    with Consumer(broker, group_id=filled, auto_offset_reset="earliest", interceptors=odd) as consumer:
        consumer.assign([partition])
        for record in consumer:
            consumer.commit()
            if record.offset == 5:
                break
    assert [commit[partition].offset for commit in odd.commits] == [2, 4, 6]


def test_a_commit_by_itself_is_told(broker: str, filled: str) -> None:
    odd = Odd()
    partition = TopicPartition(filled, 0)
    with Consumer(broker, group_id=filled, auto_offset_reset="earliest", interceptors=odd) as consumer:
        consumer.assign([partition])
        collected(lambda _: consumer.poll(200), 5)
    assert odd.commits == [{partition: OffsetAndMetadata(10)}]


async def test_tasks_have_the_interceptors_of_a_producer(broker: str, topic: str) -> None:
    stamp = Stamp("!")
    async with aio.Producer(broker, value_serializer="string", interceptors=[Broken(), stamp]) as producer:
        place = await producer.send_and_wait(topic, "tea")  # waits for the topic, and is still intercepted once
        with pytest.raises(KafkaError):
            await producer.send(topic, "bun", partition=7)
    assert {where: error is None for where, error in stamp.outcomes} == {place: True, (topic, 7, -1, -1): False}
    assert len(stamp.outcomes) == 2
    assert stamp.is_closed
    assert records(broker, topic, 1)[0].value == b"tea!"


async def test_tasks_have_the_interceptors_of_a_consumer(broker: str, filled: str) -> None:
    odd = Odd()
    partition = TopicPartition(filled, 0)
    async with aio.Consumer(broker, group_id=filled, auto_offset_reset="earliest", interceptors=odd) as consumer:
        await consumer.assign([partition])
        async with asyncio.timeout(WITHIN_SECONDS):
            assert (await consumer.getone()).offset == 1
            assert odd.seen == [0, 1], "what nobody has received was not consumed"
            found: list[int] = []
            async for record in consumer:
                found.append(record.offset)
                if record.offset == 5:
                    break
            await consumer.commit()
            while 9 not in found:
                found += [record.offset for record in await consumer.poll(200)]
    assert found == [3, 5, 7, 9]
    assert odd.seen == list(range(10))
    assert odd.commits[0] == {partition: OffsetAndMetadata(6)}
    assert odd.is_closed


@pytest.mark.parametrize("given", [object(), [Stamp, 5], "my.Interceptor"])
@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_what_has_no_such_method_is_refused(kind: Any, given: object) -> None:
    with pytest.raises(InvalidConfig, match="interceptors: .* has none of the methods on_"):
        kind(IN_VAIN, interceptors=given)


def test_a_class_is_made_an_object(broker: str, topic: str) -> None:
    made: list[Stamp] = []

    class Kept(Stamp):
        def __init__(self) -> None:
            super().__init__("?")
            made.append(self)

    with Producer(broker, value_serializer="string", interceptors=[Kept]) as producer:
        producer.send(topic, "tea").result()
    assert len(made) == 1 and len(made[0].outcomes) == 1
