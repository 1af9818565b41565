"""What members of a classic consumer group tell each other through the coordinator, as bytes. Does no IO.

    version int16 | ConsumerProtocolSubscription      each member to the leader
    version int16 | ConsumerProtocolAssignment        the leader to each member

    version 1   owned partitions      2   the generation in which they were assigned (KIP-792)      3   rack (KIP-881)

A reader takes a later version for the newest that it knows, so all is written in version 3. The sticky assignors have
user data of their own, which older clients read:

    sticky               count int32, (topic string16, count int32, partition int32 ...) ... | generation int32
    cooperative-sticky   generation int32

Source: Kafka's `ConsumerProtocol`, `StickyAssignor`, `CooperativeStickyAssignor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error, unpack_from
from typing import NamedTuple

from headrace.client.consumer.assignors.member import NO_GENERATION, Member
from headrace.client.consumer.assignors.names import COOPERATIVE_STICKY, STICKY
from headrace.client.consumer.selection import by_topic
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.types import TopicPartition

PROTOCOL_TYPE = "consumer"
_VERSION = 3
_WITH_GENERATION = 2
_INT32 = Struct(">i")
_INT16 = Struct(">h")


class Subscription(NamedTuple):
    """What a member tells the leader about itself. `owned` are partitions that it has not given up."""

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    previous: Sequence[TopicPartition] = ()
    """What it was assigned last, also if it has given that up."""
    generation: int = NO_GENERATION
    """The generation of the assignment."""
    rack: str | None = None


def encode_subscription(subscription: Subscription, assignor: str) -> bytes:
    """The subscription for the leader, with the user data of an assignor."""
    owned = m.ConsumerProtocolSubscription.TopicPartition
    message = m.ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=_user_data(subscription, assignor),
        owned_partitions=[
            owned(topic=topic, partitions=partitions) for topic, partitions in by_topic(sorted(subscription.owned))
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return _VERSION.to_bytes(2, "big") + message.encode(_VERSION)


def decode_member(member: m.JoinGroupResponse.JoinGroupResponseMember, assignor: str) -> Member:
    """A member in the JoinGroup answer to the leader, as the assignor sees it. Raises KafkaError."""
    data = bytes(member.metadata)
    version = _version_of(data)
    message, _ = m.ConsumerProtocolSubscription.decode(version, memoryview(data), 2)
    user_data = bytes(message.user_data) if message.user_data is not None else b""
    owned = [
        TopicPartition(each.topic, partition) for each in message.owned_partitions for partition in each.partitions
    ]
    generation = message.generation_id
    if assignor == STICKY:
        owned, generation = _read_previous(user_data)
    elif assignor == COOPERATIVE_STICKY and version < _WITH_GENERATION and len(user_data) >= _INT32.size:
        generation = _INT32.unpack_from(user_data)[0]
    return Member(
        member.member_id,
        frozenset(message.topics),
        member.group_instance_id,
        tuple(owned),
        generation,
        message.rack_id or None,
    )


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """The assignment that the leader sends to a member."""
    assigned = m.ConsumerProtocolAssignment.TopicPartition
    message = m.ConsumerProtocolAssignment(
        assigned_partitions=[assigned(topic=topic, partitions=indexes) for topic, indexes in by_topic(partitions)]
    )
    return _VERSION.to_bytes(2, "big") + message.encode(_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """A member's partitions; none for empty bytes, which some coordinators send to a member without partitions."""
    if not data:
        return []
    message, _ = m.ConsumerProtocolAssignment.decode(_version_of(data), memoryview(data), 2)
    return [
        TopicPartition(assigned.topic, partition)
        for assigned in message.assigned_partitions
        for partition in assigned.partitions
    ]


def _version_of(data: bytes) -> int:
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise KafkaError(f"consumer protocol version {version} is not supported", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return min(version, _VERSION)


def _user_data(subscription: Subscription, assignor: str) -> bytes | None:
    generation = _INT32.pack(subscription.generation)
    if assignor == COOPERATIVE_STICKY:
        return generation
    if assignor != STICKY or subscription.generation == NO_GENERATION:
        return None
    topics = list(by_topic(sorted(subscription.previous)))
    data = bytearray(_INT32.pack(len(topics)))
    for topic, partitions in topics:
        name = topic.encode()
        data += _INT16.pack(len(name)) + name + Struct(f">{1 + len(partitions)}i").pack(len(partitions), *partitions)
    return bytes(data) + generation


def _read_previous(data: bytes) -> tuple[list[TopicPartition], int]:
    """What a member of the sticky assignor owned, and since when; nothing if the bytes are not understood."""
    owned: list[TopicPartition] = []
    try:
        (count,), pos = _INT32.unpack_from(data), _INT32.size
        for _ in range(count):
            start = pos + _INT16.size
            end = start + _INT16.unpack_from(data, pos)[0]
            topic = data[start:end].decode()
            (indexes,) = _INT32.unpack_from(data, end)
            if not 0 <= indexes <= len(data):
                return [], NO_GENERATION
            owned += [TopicPartition(topic, index) for index in unpack_from(f">{indexes}i", data, end + _INT32.size)]
            pos = end + _INT32.size * (1 + indexes)
        return owned, _INT32.unpack_from(data, pos)[0] if pos < len(data) else NO_GENERATION
    except (error, UnicodeDecodeError):
        return [], NO_GENERATION
