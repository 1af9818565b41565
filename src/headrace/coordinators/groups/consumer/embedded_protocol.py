"""The consumer's own protocol inside JoinGroup and SyncGroup: subscriptions and assignments of classic members.

    version int16 | body        a version that is not known is read as the newest known

Source: Kafka's `ConsumerProtocol`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.assignors.assignor import Partitions
from headrace.coordinators.groups.records import VERSION, read_version
from headrace.errors import CorruptMessage
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.groups.modern.topics import Topics

NEWEST_VERSION = 3


class ClassicSubscription(NamedTuple):
    """What a classic member subscribes to."""

    topics: frozenset[str]
    rack_id: str | None
    owned: Partitions


def _version(data: bytes) -> int:
    version = read_version(data)
    if version < 0:
        raise CorruptMessage(f"a consumer's subscription or assignment has version {version}")
    return min(version, NEWEST_VERSION)


def read_subscription(data: bytes, topics: Topics) -> ClassicSubscription:
    """Raises `KafkaError` on bytes that are no subscription."""
    read, _ = m.ConsumerProtocolSubscription.decode(_version(data), data, VERSION.size)
    rack_id = getattr(read, "rack_id", None) or None
    owned = ((each.topic, each.partitions) for each in read.owned_partitions)
    return ClassicSubscription(frozenset(read.topics), rack_id, _by_id(owned, topics))


def read_assignment(data: bytes, topics: Topics) -> tuple[Partitions, bytes]:
    """The partitions, and data of the assignor. Raises `KafkaError` on bytes that are no assignment."""
    if not data:
        return {}, b""
    read, _ = m.ConsumerProtocolAssignment.decode(_version(data), data, VERSION.size)
    assigned = ((each.topic, each.partitions) for each in read.assigned_partitions)
    return _by_id(assigned, topics), bytes(read.user_data or b"")


def write_assignment(partitions: Mapping[bytes, Iterable[int]], subscription: bytes, topics: Topics) -> bytes:
    """An assignment in the version of the member's subscription."""
    version = _version(subscription)
    value = m.ConsumerProtocolAssignment(
        assigned_partitions=[
            m.ConsumerProtocolAssignment.TopicPartition(topic=topic.name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if (topic := topics.by_id(topic_id)) is not None
        ],
        user_data=None,
    )
    return VERSION.pack(version) + value.encode(version)


def _by_id(partitions: Iterable[tuple[str, Iterable[int]]], topics: Topics) -> Partitions:
    found: dict[bytes, frozenset[int]] = {}
    for name, numbers in partitions:
        topic = topics.by_name(name)
        if topic is not None:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(numbers)
    return found
