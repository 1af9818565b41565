"""The interfaces that a user of the event producer implements, and their defaults.

Encoder           data -> bytes                           default: data is bytes
Partitioner       (key, number of partitions) -> number   default: a hash of the key
EventHandler      (events, dispatch)                      default: dispatches each event and waits for all
CallbackHandler   methods at each stage of the queue      default: nothing
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headrace.client.producer.delivery import Delivery
from headrace.client.producer.partitioner import partition_for_key
from headrace.errors import InvalidConfig


class Event(NamedTuple):
    """What a user sends: data for a topic, with the partition that the partitioner chose (None: any)."""

    topic: str
    data: Any
    key: Any = None
    partition: int | None = None


Encoder = Callable[[Any], bytes]
Partitioner = Callable[[Any, int], int]
Dispatch = Callable[[Event], Delivery]
EventHandler = Callable[[Sequence[Event], Dispatch], None]


def default_encoder(data: Any) -> bytes:
    """The data itself. Raises InvalidConfig if it is not bytes."""
    if not isinstance(data, bytes):
        raise InvalidConfig(f"{data!r} is not bytes: give an encoder, such as encoder=str.encode for text")
    return data


def default_partitioner(key: Any, partition_count: int) -> int:
    """The remainder of a number; else that of the hash by which other producers place the same key."""
    if isinstance(key, int):
        return abs(key) % partition_count
    if isinstance(key, str | bytes):
        return partition_for_key(key.encode() if isinstance(key, str) else key, partition_count)
    raise InvalidConfig(f"the key {key!r} is no number, text or bytes: give a partitioner")


def default_event_handler(events: Sequence[Event], dispatch: Dispatch) -> None:
    """Dispatches each event and waits for all. Raises the first KafkaError."""
    for delivery in [dispatch(event) for event in events]:
        delivery.result()


class CallbackHandler:
    """Called at each stage of the asynchronous producer; override what you need."""

    def before_enqueue(self, event: Event) -> Event:
        """On the caller's thread: the event that goes into the queue."""
        return event

    def after_enqueue(self, event: Event, is_added: bool) -> None:
        """On the caller's thread. `is_added` is False if the queue was full."""

    def after_dequeuing(self, event: Event | None) -> Sequence[Event]:
        """The events that take the place of one in its batch; None: `queue_time_ms` has passed without one."""
        return [] if event is None else [event]

    def before_sending(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events of a batch that the event handler gets."""
        return events

    def last_batch_before_close(self) -> Sequence[Event]:
        """Events to add to the last batch."""
        return []

    def close(self) -> None:
        """The producer is closed."""
