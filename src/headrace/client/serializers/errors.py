"""The errors of serializers and deserializers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import ErrorCode, InvalidConfig, InvalidRecord, KafkaError
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.consumer.fetched_batches import ConsumerRecord


class SerializationError(InvalidRecord):
    """A key or value that its serializer refused, or bytes that a deserializer refused. `__cause__` is its error."""


class RecordDeserializationError(SerializationError):
    """A record that a consumer cannot deserialize: its place, and the record as it is, with the bytes.

    The consumer stays before it: `seek` to `offset + 1` goes past it. Source: Kafka's RecordDeserializationException
    (KIP-1036).
    """

    def __init__(self, record: ConsumerRecord, origin: str, cause: Exception) -> None:
        """`origin` is `key` or `value`."""
        self.partition: TopicPartition = TopicPartition(record.topic, record.partition)
        self.offset: int = record.offset
        self.origin: str = origin
        self.record: ConsumerRecord = record
        said = f"{type(cause).__name__}: {cause}"[:500]
        super().__init__(
            f"{record.topic}-{record.partition}, offset {record.offset}: the {origin} cannot be deserialized: {said}; "
            f"seek to {record.offset + 1} to go past it, or set on_deserialization_error"
        )


class RegistryError(KafkaError):
    """A registry of schemas refused a request, such as one for a schema that it does not know."""

    code = ErrorCode.INVALID_RECORD


class RegistryUnavailable(KafkaError):
    """A registry does not answer, or refuses everything. No record is at fault: the same call may work later."""

    code = ErrorCode.NETWORK_EXCEPTION


def missing_library(library: str, extra: str, purpose: str) -> InvalidConfig:
    """The error of a library that is not installed."""
    return InvalidConfig(f"{purpose} needs {library}: install headrace[{extra}]")
