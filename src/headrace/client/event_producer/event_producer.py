"""The event producer: sends a user's objects, synchronously or through a queue, over a `Producer`.

    with EventProducer(brokers="127.0.0.1:9092", encoder=str.encode) as producer: ...
    EventProducer(zookeeper="127.0.0.1:2181", settings=EventProducerSettings(producer_type="async"))

A static list of brokers, or ZooKeeper: then the pool of connections follows the brokers that come and go. The key
decides about the partition, and is stored if it is bytes. Source: Kafka 0.7's `Producer`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.client.core.settings import ClientSettings
from headrace.client.event_producer.handlers import (
    CallbackHandler,
    Encoder,
    Event,
    EventHandler,
    Partitioner,
    default_encoder,
    default_event_handler,
    default_partitioner,
)
from headrace.client.event_producer.send_queue import SendQueue
from headrace.client.producer.delivery import Delivery
from headrace.client.producer.producer import Producer
from headrace.client.producer.settings import ProducerSettings
from headrace.errors import InvalidConfig

if TYPE_CHECKING:
    from headrace.client.event_producer.broker_discovery import BrokerDiscovery

SYNC, ASYNC = "sync", "async"


@dataclass(frozen=True, slots=True)
class EventProducerSettings:
    """The settings of an event producer, with 0.7's names and defaults."""

    producer_type: str = SYNC
    queue_time_ms: int = 5_000
    queue_size: int = 10_000
    enqueue_timeout_ms: int = 0
    """How long `send` waits while the queue is full; -1: without end."""
    batch_size: int = 200
    producer: ProducerSettings = field(default_factory=ProducerSettings)

    def check(self) -> None:
        """Raises InvalidConfig, which names the setting."""
        if self.producer_type not in (SYNC, ASYNC):
            raise InvalidConfig(f"producer_type={self.producer_type!r}: expected {SYNC} or {ASYNC}")
        for name in ("queue_time_ms", "queue_size", "batch_size"):
            if getattr(self, name) <= 0:
                raise InvalidConfig(f"{name}={getattr(self, name)!r}: expected a positive number")


class EventProducer:
    """Sends events. Use `with` or `close` to be sure that all are sent. Any thread may send."""

    def __init__(
        self,
        brokers: str | Sequence[str] | None = None,
        zookeeper: str | None = None,
        *,
        encoder: Encoder = default_encoder,
        partitioner: Partitioner = default_partitioner,
        event_handler: EventHandler = default_event_handler,
        callback_handler: CallbackHandler | None = None,
        settings: EventProducerSettings | None = None,
        client: ClientSettings | None = None,
    ) -> None:
        """Give `brokers` or `zookeeper`. Raises InvalidConfig, ZooKeeperUnavailable."""
        self.settings: EventProducerSettings = settings or EventProducerSettings()
        self.settings.check()
        self._encoder, self._partitioner = encoder, partitioner
        self._event_handler = event_handler
        self._discovery: BrokerDiscovery | None = None
        if (zookeeper is None) == (brokers is None):
            raise InvalidConfig("give either brokers (HOST:PORT,...) or zookeeper (HOST:PORT,.../CHROOT)")
        if zookeeper is not None:
            from headrace.client.event_producer.broker_discovery import BrokerDiscovery

            self._discovery = BrokerDiscovery(zookeeper, client or ClientSettings())
            brokers = self._discovery.brokers
        try:
            self._producer = Producer(brokers, self.settings.producer, client)
        except BaseException:
            if self._discovery is not None:
                self._discovery.close()
            raise
        if self._discovery is not None:
            self._discovery.follow(self._use_brokers)
        self._queue: SendQueue | None = None
        if self.settings.producer_type == ASYNC:
            self._queue = SendQueue(
                self.settings.queue_size,
                self.settings.batch_size,
                self.settings.queue_time_ms,
                callback_handler or CallbackHandler(),
                self._handle,
            )

    def __enter__(self) -> EventProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, topic: str, data: Any, key: Any = None) -> None:
        """Send one object, or each of a list. Synchronously: returns when all are acknowledged, and raises KafkaError.
        Asynchronously: raises BufferExhausted if the queue is full."""
        if self._discovery is not None:
            self._discovery.use(topic)
        count = self._producer.partitions(topic)
        if key is None:
            # One partition for all of a call, as in 0.7.
            partition = random.randrange(count)
        else:
            partition = self._partitioner(key, count)
            if not 0 <= partition < count:
                raise InvalidConfig(f"the partitioner gives {partition} for the key {key!r}: expected 0 to {count - 1}")
        events = [Event(topic, each, key, partition) for each in (data if isinstance(data, list) else [data])]
        if self._queue is None:
            self._handle(events)
            return
        for event in events:
            self._queue.put(event, self.settings.enqueue_timeout_ms)

    def close(self) -> None:
        """Send what is queued, and close the connections."""
        if self._queue is not None:
            self._queue.close()
        if self._discovery is not None:
            self._discovery.close()
        self._producer.close()

    def _use_brokers(self, brokers: Sequence[str], partition_counts: Mapping[str, int]) -> bool:
        """Whether the brokers know of all partitions that ZooKeeper has: they hear of a change a little later."""
        self._producer.use_brokers(brokers)
        return all(self._producer.partitions(topic) >= count for topic, count in partition_counts.items() if count)

    def _handle(self, events: Sequence[Event]) -> None:
        self._event_handler(events, self._dispatch)

    def _dispatch(self, event: Event) -> Delivery:
        key = event.key if isinstance(event.key, bytes) else None
        return self._producer.send(event.topic, self._encoder(event.data), key, event.partition)
