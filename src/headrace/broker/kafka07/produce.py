"""Produce and MultiProduce of Kafka 0.7, which become a Produce of version 2 with acks=0.

Its messages become those of format 1, without a key and with the broker's time; the handler of Produce checks them and
stores them in the topic's format, compressed as they came. Partition -1 is any that this broker leads. A topic that
does not exist is created, with `headrace.kafka07.enable`, if `auto.create.topics.enable` allows it.

A produce has no response. Of an error the client learns as that of today with acks=0: the connection is closed. Parts
without an error are appended all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import choice, randrange
from typing import NamedTuple

from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import Demand, Effect
from headrace.controller.decisions.topics import NewTopic, is_legal
from headrace.errors import KafkaError, NotLeaderOrFollower, UnknownTopicOrPartition
from headrace.limits import (
    DECOMPRESSED_BATCH_BYTES_MAX,
    MESSAGES_PER_REQUEST_07_MAX,
    TOPICS_CREATED_PER_METADATA_MAX,
)
from headrace.protocol import messages as m
from headrace.protocol.wire_07 import ANY_PARTITION, ProducePart
from headrace.records.binary import int64s
from headrace.records.legacy.format_07 import Room, column_of_set
from headrace.records.legacy.message_columns import build_message_set
from headrace.security.access import Operation, ResourceType
from headrace.topics import INTERNAL_TOPICS

API_VERSION = 2
"""The last version of Produce that carries messages of format 1."""

ENABLED = "headrace.kafka07.enable"
_TIMEOUT_MS = 30_000
_GUESSES = 8
_CREATED = Demand(Operation.CREATE, ResourceType.TOPIC, or_on_cluster=Operation.CREATE, by_handler=Effect.ENTRY)


class Translated(NamedTuple):
    """The produce of today, and the error of a part that is not in it."""

    request: m.ProduceRequest
    error: KafkaError | None


def translated(parts: Sequence[ProducePart], now_ms: int) -> Translated:
    """The parts as a Produce. Takes about a microsecond for a message. Any thread."""
    error: KafkaError | None = None
    topics = []
    room = Room(DECOMPRESSED_BATCH_BYTES_MAX, MESSAGES_PER_REQUEST_07_MAX)
    for part in parts:
        try:
            column, codec = column_of_set(part.messages, room)
        except KafkaError as refused:
            error = KafkaError(f"{part.topic}-{part.partition}: {refused.message}", refused.code)
            continue
        count = len(column.offsets) - 1
        if not count:
            continue
        times_ms = int64s(1)
        times_ms[0] = now_ms
        records = build_message_set(None, column, 0, count, times_ms * count, magic=1, codec=codec)
        data = m.ProduceRequest.PartitionProduceData(index=part.partition, records=memoryview(records))
        topics.append(m.ProduceRequest.TopicProduceData(name=part.topic, partition_data=[data]))
    return Translated(m.ProduceRequest(acks=0, timeout_ms=_TIMEOUT_MS, topic_data=topics), error)


Led = dict[str, list[int]]
"""The partitions of topics that this broker leads, as far as a request has asked for all."""


def placed(ctx: RequestContext, part: ProducePart, led: Led) -> ProducePart:
    """The part with its partition chosen; `led` is filled for the request's other parts. Raises KafkaError for a topic
    that clients of 0.7 may not use here."""
    replicas = ctx.services.replicas
    number = part.partition
    if number == ANY_PARTITION:
        number = _any_partition(ctx, part.topic, led)
    if not replicas.leader(part.topic, number).log.config.kafka07_enable:
        raise UnknownTopicOrPartition(f"topic {part.topic} is not for clients of Kafka 0.7: set {ENABLED}=true")
    return part._replace(partition=number)


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
    await ctx.services.topic_creation.make([NewTopic(name, configs={ENABLED: "true"}) for name in names])
