"""The client for any Kafka broker since 0.11: produce, consume, administer, and read offset ranges as columns.

    from headrace.client import Admin, Consumer, ConsumerSettings, Producer, ProducerSettings

May know `headrace.records`, `headrace.protocol`, and the transport of `headrace.network`. Modules that decide touch
no socket and no clock; the others do the IO. Begin with `producer`, `consumer` and `operations`.

    core/        connections, metadata, versions, settings, deadlines and errors, shared by the others
    producer/    pure: accumulator, delivery, partitioner, partition_rows
                 IO: producer, sender, transactions, prepared
    consumer/    pure: fetching, fetched_batches, isolation, membership, assignors
                 IO: consumer, fetcher, group_session, reader     arrow imports pyarrow
    operations/  administration, health, moves

The names above are imported on first use, so that a command that needs one part does not import all.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.consumer.consumer import Consumer, ConsumerSettings
    from headrace.client.consumer.fetched_batches import ConsumerRecord
    from headrace.client.core.group_metadata import GroupMetadata
    from headrace.client.core.settings import ClientSettings
    from headrace.client.operations.admin import Admin, NewTopic
    from headrace.client.producer.delivery import RecordMetadata
    from headrace.client.producer.producer import Producer, ProducerSettings
    from headrace.client.producer.transactions import TransactionError

__all__ = [
    "Admin",
    "ClientSettings",
    "Consumer",
    "ConsumerRecord",
    "ConsumerSettings",
    "GroupMetadata",
    "NewTopic",
    "Producer",
    "ProducerSettings",
    "RecordMetadata",
    "TransactionError",
]

_MODULES = {
    "Admin": "operations.admin",
    "ClientSettings": "core.settings",
    "Consumer": "consumer.consumer",
    "ConsumerRecord": "consumer.fetched_batches",
    "ConsumerSettings": "consumer.consumer",
    "GroupMetadata": "core.group_metadata",
    "NewTopic": "operations.admin",
    "Producer": "producer.producer",
    "ProducerSettings": "producer.producer",
    "RecordMetadata": "producer.delivery",
    "TransactionError": "producer.transactions",
}


if not TYPE_CHECKING:  # where a type checker saw it, a misspelt import would pass

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
