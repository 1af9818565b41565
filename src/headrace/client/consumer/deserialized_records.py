"""The records of an answer with keys and values deserialized, and what a record that cannot be does.

    take ─▶ records before it ─▶ take ─▶ RecordDeserializationError ─▶ the same again, until a seek goes past it

With a handler the record goes there instead, and the next one follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from headrace.client.consumer.fetched_batches import ChunkRecords, ConsumerRecord
from headrace.client.serializers.context import KEY, VALUE, SerializationContext, with_context
from headrace.client.serializers.errors import RecordDeserializationError, RegistryUnavailable

Handler: TypeAlias = Callable[[RecordDeserializationError], object]
"""Called with the error of a record, which is then left out. What it raises, `poll` raises."""


class Deserializing:
    """The deserializers of a consumer."""

    def __init__(self, key: Any, value: Any, handler: Handler | None) -> None:
        """Raises InvalidConfig for what is no deserializer."""
        from headrace.client.serializers.by_name import deserializer_of  # not for those who read bytes

        found = deserializer_of(key, "key_deserializer"), deserializer_of(value, "value_deserializer")
        self._key, self._value = (None if each is None else with_context(each, "deserialize") for each in found)
        self.handler: Handler | None = handler

    def record(self, raw: ConsumerRecord) -> ConsumerRecord:
        """The record with its key and value deserialized; null stays null. Raises RecordDeserializationError."""
        topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers = raw
        origin = KEY
        try:
            if key is not None and self._key is not None:
                key = self._key(key, SerializationContext(topic, KEY, [*headers]))
            origin = VALUE
            if value is not None and self._value is not None:
                value = self._value(value, SerializationContext(topic, VALUE, [*headers]))
        except RegistryUnavailable:
            raise  # the record may be a good one: the consumer waits before it
        except Exception as cause:  # of whatever library the deserializer is from
            raise RecordDeserializationError(raw, origin, cause) from cause
        return ConsumerRecord(topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers)


def deserializing_of(key: Any, value: Any, handler: Handler | None) -> Deserializing | None:
    """None where no deserializer is set, which costs a consumer nothing."""
    return None if key is None and value is None else Deserializing(key, value, handler)


class DeserializedRecords:
    """As ChunkRecords, over these."""

    __slots__ = ("_how", "_next", "_raw", "_records")

    def __init__(self, records: ChunkRecords, how: Deserializing) -> None:
        self._records, self._how = records, how
        self._raw: Sequence[ConsumerRecord] = ()
        self._next = 0

    @property
    def has_rows(self) -> bool:
        """False: a deserializer may take its time, or ask a registry, and so has no place on an event loop."""
        return False

    @property
    def is_done(self) -> bool:
        """Whether there are no more."""
        return self._next == len(self._raw) and self._records.is_done

    def take(self, limit: int) -> list[ConsumerRecord]:
        """The next records; fewer than `limit` if these are the last, or one follows that raises."""
        found: list[ConsumerRecord] = []
        try:
            while len(found) < limit and not self.is_done:
                if self._next == len(self._raw):
                    self._raw, self._next = self._records.take(limit - len(found)), 0
                    continue
                record = self._deserialized(self._raw[self._next])
                self._next += 1
                if record is not None:
                    found.append(record)
        except Exception:  # these first, and it is raised by the next call
            if not found:
                raise
        return found

    def _deserialized(self, raw: ConsumerRecord) -> ConsumerRecord | None:
        try:
            return self._how.record(raw)
        except RecordDeserializationError as error:
            if self._how.handler is None:
                raise
            self._how.handler(error)
            return None
