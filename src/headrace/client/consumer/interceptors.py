"""The interceptors of a consumer: they see, and may change, what `poll` returns, and see what was committed.

    fetched ─▶ deserializers ─▶ on_consume of each ─▶ poll returns          committed ─▶ on_commit of each

The position is that after the records which came from the broker, whatever an interceptor leaves out. Columns pass
without them, as without deserializers. Source: Kafka's `ConsumerInterceptor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.client.core.group_metadata import OffsetAndMetadata
from headrace.client.core.interceptors import CLOSE, failed, interceptors_of, passed_through, told
from headrace.types import TopicPartition

ON_CONSUME, ON_COMMIT = "on_consume", "on_commit"


class ConsumerInterceptors:
    """The interceptors of one consumer."""

    def __init__(self, interceptors: tuple[Any, ...]) -> None:
        self._interceptors = interceptors

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """What poll returns instead."""
        for each in self._interceptors:
            changed = passed_through((each,), ON_CONSUME, records)
            try:
                records = list(changed)
            except TypeError:
                failed(each, ON_CONSUME)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets were committed."""
        told(self._interceptors, ON_COMMIT, dict(offsets))

    def close(self) -> None:
        """The consumer ends."""
        told(self._interceptors, CLOSE)


def consumer_interceptors(given: Any) -> ConsumerInterceptors | None:
    """None where there are none, which costs a consumer nothing. Raises InvalidConfig."""
    found = interceptors_of(given, (ON_CONSUME, ON_COMMIT))
    return ConsumerInterceptors(found) if found else None
