"""headrace: a Kafka-compatible streaming log whose pipelines run on Spark.

    from headrace import Admin, Consumer, Producer, TopicPartition

The names of the client are imported on first use, so that `import headrace` costs nothing. May know `client` only.
Begin with `broker.app` and `client`.
"""

from typing import TYPE_CHECKING

from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.client import (
        AcknowledgeType,
        Admin,
        ClientSettings,
        Consumer,
        ConsumerRecord,
        ConsumerSettings,
        Delivery,
        GroupMetadata,
        KafkaError,
        NewTopic,
        OffsetAndMetadata,
        Producer,
        ProducerSettings,
        RecordMetadata,
        ShareConsumer,
        ShareConsumerSettings,
        ShareRecord,
        TopicPartition,
        TransactionError,
    )

__all__ = [
    "AcknowledgeType",
    "Admin",
    "ClientSettings",
    "Consumer",
    "ConsumerRecord",
    "ConsumerSettings",
    "Delivery",
    "GroupMetadata",
    "KafkaError",
    "NewTopic",
    "OffsetAndMetadata",
    "Producer",
    "ProducerSettings",
    "RecordMetadata",
    "ShareConsumer",
    "ShareConsumerSettings",
    "ShareRecord",
    "TopicPartition",
    "TransactionError",
    "__version__",
]


if not TYPE_CHECKING:  # where a type checker saw it, a misspelt import would pass

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from headrace import client

        return getattr(client, name)


def __dir__() -> list[str]:
    return __all__
