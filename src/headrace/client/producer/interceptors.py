"""The interceptors of a producer: they see, and may change, each record before it is serialized, and see its outcome.

    send ─▶ on_send of each ─▶ serializers ─▶ batch ─▶ acknowledged, failed ─▶ on_acknowledgement of each ─▶ on_delivery
                                    └─ refused at once ─────────────────────────────────▲

Source: Kafka's `ProducerInterceptor`. Columns pass without them, as without serializers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.client.core.interceptors import CLOSE, failed, interceptors_of, passed_through, told
from headrace.client.producer.delivery import Delivery, DeliveryCallback, RecordMetadata
from headrace.errors import KafkaError
from headrace.types import Offset

ON_SEND, ON_ACKNOWLEDGEMENT = "on_send", "on_acknowledgement"


class ProducerRecord(NamedTuple):
    """What `send` was given. An interceptor returns it, or another: `record._replace(value=...)`."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Any = ()


class ProducerInterceptors:
    """The interceptors of one producer. Threads may share it."""

    def __init__(self, interceptors: tuple[Any, ...]) -> None:
        self._interceptors = interceptors

    def begin(self, record: ProducerRecord, caller: DeliveryCallback | None = None) -> Intercepted:
        """Show a record to all of them; the result has what to send, and is to be its callback."""
        if isinstance(record.headers, Mapping):
            record = record._replace(headers=list(record.headers.items()))
        for each in self._interceptors:
            changed = passed_through((each,), ON_SEND, record)
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                _refuse(each, changed)
        return Intercepted(self, record, caller)

    def send(self, send: Callable[..., Delivery], record: ProducerRecord, caller: DeliveryCallback | None) -> Delivery:
        """Intercept a record, and send it."""
        intercepted = self.begin(record, caller)
        try:
            return send(*intercepted.record, on_delivery=intercepted)
        except Exception as cause:
            intercepted.refused(cause)
            raise

    def acknowledged(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """Tell all of them the outcome."""
        told(self._interceptors, ON_ACKNOWLEDGEMENT, metadata, error)

    def close(self) -> None:
        """The producer ends."""
        told(self._interceptors, CLOSE)


class Intercepted:
    """The callback of an intercepted record, which calls the caller's own one after the interceptors."""

    __slots__ = ("_caller", "_interceptors", "record")

    def __init__(
        self, interceptors: ProducerInterceptors, record: ProducerRecord, caller: DeliveryCallback | None
    ) -> None:
        self._interceptors = interceptors
        self.record: ProducerRecord = record
        """What to send."""
        self._caller = caller

    @property
    def tells_caller(self) -> bool:
        """Whether the program itself hears of an error."""
        return self._caller is not None

    def __call__(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """The record was acknowledged, or has failed."""
        self._interceptors.acknowledged(metadata or _nowhere(self.record), error)
        if self._caller is not None:
            self._caller(metadata, error)

    def refused(self, cause: BaseException) -> None:
        """The record was not sent."""
        self._interceptors.acknowledged(_nowhere(self.record), cause)


def _nowhere(record: ProducerRecord) -> RecordMetadata:
    """The place of a record that has none; the partition is -1 if none was chosen by the caller."""
    return RecordMetadata(record.topic, -1 if record.partition is None else record.partition, Offset(-1), -1)


def _refuse(interceptor: Any, returned: Any) -> None:
    try:
        raise TypeError(f"on_send returned {returned!r}: expected a ProducerRecord")
    except TypeError:
        failed(interceptor, ON_SEND)


def producer_interceptors(given: Any) -> ProducerInterceptors | None:
    """None where there are none, which costs a producer nothing. Raises InvalidConfig."""
    found = interceptors_of(given, (ON_SEND, ON_ACKNOWLEDGEMENT))
    return ProducerInterceptors(found) if found else None
