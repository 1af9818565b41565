"""The client for any Kafka broker since 0.11: produce, consume, administer, and read offset ranges as columns.

    from headrace import Admin, Consumer, Producer      the names below, on first use

May know `headrace.records`, `headrace.protocol`, and the transport of `headrace.network`. Modules that decide touch
no socket and no clock; the others do the IO. Begin with `producer`, `consumer` and `operations`.

    core/        connections, metadata, versions, settings, deadlines and errors, shared by the others
    producer/    pure: accumulator, delivery, partitioner, partition_rows, encoded_batches
                 IO: producer, destinations, sender, transactions, prepared
    consumer/    pure: fetching, fetched_batches, isolation, membership, heartbeat_membership, assignors
                 IO: consumer, fetcher, group_session, heartbeat_session, reader     arrow imports pyarrow
    share/       consumers of share groups
    serializers/ keys and values as people hold them     tables/ a range of a topic as a table, with pyarrow
    aio/         the asyncio face: drives the three above, and does none of their work itself
    event_producer/        the producer of Kafka 0.7, by its interfaces
    zookeeper_consumer/    the high-level consumer of Kafka 0.7 and 0.8
    metrics/     what a client measures of itself, and its push to the brokers
    security/    Kafka's security options, where their secrets come from, contexts, and what a refusal means
    operations/  administration, health, moves

The names above are imported on first use, so that a command that needs one part does not import all.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.consumer.consumer import Consumer, ConsumerSettings
    from headrace.client.consumer.fetched_batches import ConsumerRecord
    from headrace.client.consumer.simple_consumer import FetchRequest, MessageSet, SimpleConsumer
    from headrace.client.consumer.simple_consumer_07 import MessageSet07, SimpleConsumer07
    from headrace.client.core.group_metadata import GroupMetadata, OffsetAndMetadata
    from headrace.client.core.settings import ClientSettings
    from headrace.client.event_producer.event_producer import EventProducer, EventProducerSettings
    from headrace.client.event_producer.handlers import CallbackHandler
    from headrace.client.operations.admin import Admin, NewTopic
    from headrace.client.producer.delivery import Delivery, RecordMetadata
    from headrace.client.producer.interceptors import ProducerRecord
    from headrace.client.producer.producer import Producer, ProducerSettings
    from headrace.client.producer.transactions import TransactionError
    from headrace.client.share.acknowledgements import AcknowledgeType
    from headrace.client.share.acquired_records import ShareRecord
    from headrace.client.share.settings import ShareConsumerSettings
    from headrace.client.share.share_consumer import ShareConsumer
    from headrace.client.tables.reading import table
    from headrace.client.zookeeper_consumer.connector import ConsumerConnector
    from headrace.client.zookeeper_consumer.settings import ConnectorSettings
    from headrace.client.zookeeper_consumer.subscription import Blacklist, Whitelist
    from headrace.errors import KafkaError
    from headrace.types import TopicPartition

__all__ = [
    "AcknowledgeType",
    "Admin",
    "Blacklist",
    "CallbackHandler",
    "ClientSettings",
    "ConnectorSettings",
    "Consumer",
    "ConsumerConnector",
    "ConsumerRecord",
    "ConsumerSettings",
    "Delivery",
    "EventProducer",
    "EventProducerSettings",
    "FetchRequest",
    "GroupMetadata",
    "KafkaError",
    "MessageSet",
    "MessageSet07",
    "NewTopic",
    "OffsetAndMetadata",
    "Producer",
    "ProducerRecord",
    "ProducerSettings",
    "RecordMetadata",
    "ShareConsumer",
    "ShareConsumerSettings",
    "ShareRecord",
    "SimpleConsumer",
    "SimpleConsumer07",
    "TopicPartition",
    "TransactionError",
    "Whitelist",
    "table",
]

_MODULES = {
    "AcknowledgeType": "client.share.acknowledgements",
    "Admin": "client.operations.admin",
    "Blacklist": "client.zookeeper_consumer.subscription",
    "CallbackHandler": "client.event_producer.handlers",
    "ClientSettings": "client.core.settings",
    "ConnectorSettings": "client.zookeeper_consumer.settings",
    "Consumer": "client.consumer.consumer",
    "ConsumerConnector": "client.zookeeper_consumer.connector",
    "ConsumerRecord": "client.consumer.fetched_batches",
    "ConsumerSettings": "client.consumer.consumer",
    "Delivery": "client.producer.delivery",
    "EventProducer": "client.event_producer.event_producer",
    "EventProducerSettings": "client.event_producer.event_producer",
    "FetchRequest": "client.consumer.simple_consumer",
    "GroupMetadata": "client.core.group_metadata",
    "KafkaError": "errors",
    "MessageSet": "client.consumer.simple_consumer",
    "MessageSet07": "client.consumer.simple_consumer_07",
    "NewTopic": "client.operations.admin",
    "OffsetAndMetadata": "client.core.group_metadata",
    "Producer": "client.producer.producer",
    "ProducerRecord": "client.producer.interceptors",
    "ProducerSettings": "client.producer.producer",
    "RecordMetadata": "client.producer.delivery",
    "ShareConsumer": "client.share.share_consumer",
    "ShareConsumerSettings": "client.share.settings",
    "ShareRecord": "client.share.acquired_records",
    "SimpleConsumer": "client.consumer.simple_consumer",
    "SimpleConsumer07": "client.consumer.simple_consumer_07",
    "TopicPartition": "types",
    "TransactionError": "client.producer.transactions",
    "Whitelist": "client.zookeeper_consumer.subscription",
    "table": "client.tables.reading",
}


if not TYPE_CHECKING:  # where a type checker saw it, a misspelt import would pass

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"headrace.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
