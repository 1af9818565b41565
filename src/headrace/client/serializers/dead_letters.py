"""Sends records that a consumer cannot deserialize to another topic, as they are, and lets the consumer go past them.

The headers say where a record was and what was wrong with it, by the names of Kafka Connect (KIP-298):

    __connect.errors.topic  .partition  .offset  .stage (KEY_CONVERTER or VALUE_CONVERTER)
    .exception.class.name  .exception.message
"""

from __future__ import annotations

from headrace.client.producer.producer import Producer
from headrace.client.serializers.context import KEY, Header
from headrace.client.serializers.errors import RecordDeserializationError

_PREFIX = "__connect.errors."
_MESSAGE_MAX = 1_000


class DeadLetters:
    """For `on_deserialization_error`: it waits until the brokers have the record, so a commit loses none."""

    def __init__(self, producer: Producer, topic: str = "{topic}.dead-letters") -> None:
        """`{topic}` in the name stands for the record's topic. The producer's serializers are not used."""
        topic.format(topic="t")
        self._producer, self._topic = producer, topic

    def __call__(self, error: RecordDeserializationError) -> None:
        """Send it. Raises KafkaError if that fails: then the consumer stays before the record."""
        record, cause = error.record, error.__cause__ or error
        kind = type(cause)
        said: list[Header] = [
            (_PREFIX + "topic", record.topic.encode()),
            (_PREFIX + "partition", b"%d" % record.partition),
            (_PREFIX + "offset", b"%d" % record.offset),
            (_PREFIX + "stage", b"KEY_CONVERTER" if error.origin == KEY else b"VALUE_CONVERTER"),
            (_PREFIX + "exception.class.name", f"{kind.__module__}.{kind.__qualname__}".encode()),
            (_PREFIX + "exception.message", str(cause)[:_MESSAGE_MAX].encode("utf-8", "replace")),
        ]
        name = self._topic.format(topic=record.topic)
        headers = [[*record.headers, *said]]
        self._producer.send_columns(name, [record.key], [record.value], record.timestamp_ms, headers=headers).result()
