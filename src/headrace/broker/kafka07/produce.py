"""Produce and MultiProduce of Kafka 0.7, which become a Produce of version 2 with acks=0.

Its messages become those of format 1, without a key and with the broker's time; the handler of Produce checks them and
stores them in the topic's format, compressed as they came. Partition -1 is any that this broker leads. A topic that
does not exist is created, with `headrace.kafka07.enable`, if `auto.create.topics.enable` allows it.

`max.message.bytes` holds, as in 0.7, for the payload of each message or wrapper as it was sent, and then for what is
stored: a compressed set that would be larger there becomes several. One message that is too large alone is refused.

A produce has no response. Of an error the client learns as that of today with acks=0: the connection is closed. Parts
without an error are appended all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import choice, randrange
from typing import NamedTuple

from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import Demand, RefusalEffect
from headrace.controller.decisions.topics import RequestedTopic, is_legal
from headrace.errors import KafkaError, NotLeaderOrFollower, UnknownTopicOrPartition
from headrace.limits import (
    DECOMPRESSED_BATCH_BYTES_MAX,
    MESSAGES_PER_REQUEST_07_MAX,
    TOPICS_CREATED_PER_METADATA_MAX,
)
from headrace.protocol import messages as m
from headrace.protocol.wire_07 import ANY_PARTITION, ProducePart
from headrace.records.binary import BinaryColumn, int64s
from headrace.records.codecs.compression import Codec
from headrace.records.legacy.format_07 import RoomOf07, column_of_set
from headrace.records.legacy.message_columns import build_message_set
from headrace.security.access import Operation, ResourceType
from headrace.topics import INTERNAL_TOPICS

API_VERSION = 2
"""The last version of Produce that carries messages of format 1."""

ENABLED = "headrace.kafka07.enable"
_TIMEOUT_MS = 30_000
_GUESSES = 8
_CREATED = Demand(Operation.CREATE, ResourceType.TOPIC, or_on_cluster=Operation.CREATE, by_handler=RefusalEffect.ENTRY)


class Placed(NamedTuple):
    """A part for one partition, and the `max.message.bytes` of its topic."""

    part: ProducePart
    max_bytes: int


class Translated(NamedTuple):
    """The produce of today, and the error of a part that is not in it."""

    request: m.ProduceRequest
    error: KafkaError | None


def translated(parts: Sequence[Placed], now_ms: int) -> Translated:
    """The parts as a Produce. Takes about a microsecond for a message. Any thread."""
    error: KafkaError | None = None
    topics = []
    room = RoomOf07(DECOMPRESSED_BATCH_BYTES_MAX, MESSAGES_PER_REQUEST_07_MAX)
    for part, max_bytes in parts:
        try:
            column, codec = column_of_set(part.messages, room, max_bytes)
        except KafkaError as refused:
            error = KafkaError(f"{part.topic}-{part.partition}: {refused.message}", refused.code)
            continue
        for records in _sets(column, codec, now_ms, max_bytes):
            data = m.ProduceRequest.PartitionProduceData(index=part.partition, records=memoryview(records))
            topics.append(m.ProduceRequest.TopicProduceData(name=part.topic, partition_data=[data]))
    return Translated(m.ProduceRequest(acks=0, timeout_ms=_TIMEOUT_MS, topic_data=topics), error)


def _sets(column: BinaryColumn, codec: Codec, now_ms: int, max_bytes: int) -> Iterator[bytearray]:
    """The messages in sets of format 1. A compressed set larger than `max_bytes` is halved until it has one message."""
    left = [(0, len(column.offsets) - 1)]
    while left:
        start, stop = left.pop()
        if start == stop:
            continue
        times_ms = int64s(1)
        times_ms[0] = now_ms
        records = build_message_set(None, column, start, stop, times_ms * stop, magic=1, codec=codec)
        if codec is Codec.NONE or len(records) <= max_bytes or stop - start == 1:
            yield records
        else:
            middle = (start + stop) // 2
            left += ((middle, stop), (start, middle))


Led = dict[str, list[int]]
"""The partitions of topics that this broker leads, as far as a request has asked for all."""


def placed(ctx: RequestContext, part: ProducePart, led: Led) -> Placed:
    """The part with its partition chosen; `led` is filled for the request's other parts. Raises KafkaError for a topic
    that clients of 0.7 may not use here."""
    replicas = ctx.services.replicas
    number = part.partition
    if number == ANY_PARTITION:
        number = _any_partition(ctx, part.topic, led)
    config = replicas.leader(part.topic, number).log.config
    if not config.kafka07_enable:
        raise UnknownTopicOrPartition(f"topic {part.topic} is not for clients of Kafka 0.7: set {ENABLED}=true")
    return Placed(part._replace(partition=number), config.max_message_bytes)


def _any_partition(ctx: RequestContext, topic: str, led: Led) -> int:
    """Any partition of a topic that this broker leads: a few are tried before all are looked at."""
    found = ctx.services.metadata.topic(topic)
    count = 0 if found is None else len(found.partitions)

    def is_led(number: int) -> bool:
        partition = ctx.services.replicas.find((topic, number))
        return partition is not None and partition.is_leader

    for _ in range(_GUESSES if count else 0):
        guess = randrange(count)
        if is_led(guess):
            return guess
    if topic not in led:
        led[topic] = [number for number in range(count) if is_led(number)]
    if not led[topic]:
        raise NotLeaderOrFollower(f"this broker leads no partition of {topic}")
    return choice(led[topic])


def to_be_made(ctx: RequestContext, parts: Sequence[ProducePart]) -> list[str]:
    """The topics that the produce creates, none of them internal: coordinators create those."""
    if not ctx.services.config.auto_create_topics_enable:
        return []
    missing = {part.topic for part in parts if ctx.services.metadata.topic(part.topic) is None}
    permits = ctx.services.admission.permits
    made = sorted(name for name in missing - INTERNAL_TOPICS if is_legal(name) and permits(ctx, _CREATED, name))
    return made[:TOPICS_CREATED_PER_METADATA_MAX]


async def make_topics(ctx: RequestContext, names: Sequence[str]) -> None:
    """Creates topics for clients of 0.7; what could not be created is missing then."""
    await ctx.services.topic_creation.make([RequestedTopic(name, configs={ENABLED: "true"}) for name in names])
