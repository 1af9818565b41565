"""The event producer: its interfaces, its queue, and where its events arrive."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headrace.client.consumer.simple_consumer import FetchRequest, SimpleConsumer
from headrace.client.core.failures import BufferExhausted, ClientClosed
from headrace.client.event_producer.event_producer import EventProducer, EventProducerSettings
from headrace.client.event_producer.handlers import (
    CallbackHandler,
    Dispatch,
    Event,
    default_event_handler,
    default_partitioner,
)
from headrace.client.operations.admin import Admin, NewTopic
from headrace.errors import InvalidConfig, KafkaError
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import HeadraceServer

PARTITIONS = 3
NEVER_MS = 3_600_000
Stored = Callable[[], list[list[bytes | None]]]


@pytest.fixture
def bootstrap(shared_headrace: HeadraceServer) -> str:
    return shared_headrace.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = topic_name("events")
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])
    return name


@pytest.fixture
def stored(bootstrap: str, topic: str) -> Stored:
    """The values of each partition."""

    def read() -> list[list[bytes | None]]:
        with SimpleConsumer(bootstrap) as consumer:
            found = consumer.multifetch([FetchRequest(topic, number, 0) for number in range(PARTITIONS)])
        return [[each.value for each in messages] for messages in found]

    return read


def make_async(**more: Any) -> EventProducerSettings:
    return EventProducerSettings(producer_type="async", **more)


def test_a_synchronous_send_has_arrived_when_it_returns(bootstrap: str, topic: str, stored: Stored) -> None:
    with EventProducer(bootstrap, encoder=str.encode) as producer:
        producer.send(topic, ["a", "b"], key=4)
        assert stored() == [[], [b"a", b"b"], []]
        producer.send(topic, "c")
        assert sorted(value or b"" for values in stored() for value in values) == [b"a", b"b", b"c"]


def test_partitioner_and_encoder_are_the_users(bootstrap: str, topic: str, stored: Stored) -> None:
    def encoder(data: dict[str, int]) -> bytes:
        return f"{data['views']} views".encode()

    def partitioner(key: str, count: int) -> int:
        return len(key) % count

    with EventProducer(bootstrap, encoder=encoder, partitioner=partitioner) as producer:
        producer.send(topic, {"views": 7}, key="xx")
    assert stored() == [[], [], [b"7 views"]]
    with (
        EventProducer(bootstrap, partitioner=lambda _, count: count) as producer,
        pytest.raises(InvalidConfig, match="gives 3 for the key 'k': expected 0 to 2"),
    ):
        producer.send(topic, b"", key="k")


def test_a_full_batch_is_sent_before_its_time(bootstrap: str, topic: str, stored: Stored) -> None:
    with EventProducer(bootstrap, settings=make_async(queue_time_ms=NEVER_MS, batch_size=5)) as producer:
        for number in range(7):
            producer.send(topic, b"%d" % number, key=0)
        eventually(lambda: stored()[0] == [b"0", b"1", b"2", b"3", b"4"], "the first five")
    assert len(stored()[0]) == 7, "close sends the rest"


def test_events_are_sent_when_their_time_has_come(bootstrap: str, topic: str, stored: Stored) -> None:
    with EventProducer(bootstrap, settings=make_async(queue_time_ms=50)) as producer:
        producer.send(topic, b"soon", key=0)
        eventually(lambda: stored()[0] == [b"soon"], "the event")


def test_callbacks_see_each_stage(bootstrap: str, topic: str, stored: Stored) -> None:
    stages: list[object] = []

    class Callbacks(CallbackHandler):
        def before_enqueue(self, event: Event) -> Event:
            return event._replace(data=event.data + b"1")

        def after_enqueue(self, event: Event, is_added: bool) -> None:
            stages.append((event.data, is_added))

        def after_dequeuing(self, event: Event | None) -> Sequence[Event]:
            return [] if event is None else [event, event._replace(data=event.data + b"2")]

        def before_sending(self, events: Sequence[Event]) -> Sequence[Event]:
            return [event._replace(data=event.data + b"3") for event in events]

        def last_batch_before_close(self) -> Sequence[Event]:
            return [Event(topic, b"last", None, 0)]

        def close(self) -> None:
            stages.append("closed")

    settings = make_async(queue_time_ms=NEVER_MS)
    with EventProducer(bootstrap, callback_handler=Callbacks(), settings=settings) as producer:
        producer.send(topic, b"a", key=0)
    assert stages == [(b"a1", True), "closed"]
    assert stored()[0] == [b"a13", b"a123", b"last3"]


def test_a_full_queue_refuses_and_a_failed_batch_is_logged(
    bootstrap: str, topic: str, stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def handler(events: Sequence[Event], dispatch: Dispatch) -> None:
        entered.set()
        assert go_on.wait(WITHIN_SECONDS)
        if events[0].data == b"bad":
            raise KafkaError("no")
        default_event_handler(events, dispatch)

    settings = make_async(queue_time_ms=NEVER_MS, batch_size=1, queue_size=1)
    with EventProducer(bootstrap, event_handler=handler, settings=settings) as producer:
        producer.send(topic, b"bad", key=0)
        assert entered.wait(WITHIN_SECONDS)
        producer.send(topic, b"good", key=0)
        with pytest.raises(BufferExhausted, match="1 events wait to be sent"):
            producer.send(topic, b"dropped", key=0)
        with caplog.at_level(logging.ERROR):
            go_on.set()
            producer.close()
    assert "a batch of 1 events is lost" in caplog.text
    assert stored()[0] == [b"good"]
    with pytest.raises(ClientClosed):
        producer.send(topic, b"late", key=0)


def test_mistakes_say_what_to_do(bootstrap: str, topic: str) -> None:
    with pytest.raises(InvalidConfig, match="either brokers"):
        EventProducer()
    with pytest.raises(InvalidConfig, match="producer_type='later'"):
        EventProducer(bootstrap, settings=EventProducerSettings(producer_type="later"))
    with EventProducer(bootstrap) as producer:
        with pytest.raises(InvalidConfig, match=r"'text' is not bytes: give an encoder"):
            producer.send(topic, "text")
        with pytest.raises(InvalidConfig, match="no number, text or bytes: give a partitioner"):
            producer.send(topic, b"", key=1.5)
    assert default_partitioner(-7, 3) == 1
    assert default_partitioner("k", 3) == default_partitioner(b"k", 3)
