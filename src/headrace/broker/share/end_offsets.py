"""The ends of partitions, from their leaders: this broker's own, and those of others by ListOffsets.

Source: Kafka's `NetworkPartitionMetadataClient`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.errors import ErrorCode, KafkaError, known_code
from headrace.in_slices import Turns, in_slices
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.services import Services

LATEST = -1
LANE = "end-offsets"

End = int | ErrorCode
"""The high watermark of a partition, or why it is not known."""


async def end_offsets(services: Services, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, End]:
    """The high watermarks of partitions."""
    ends: dict[TopicPartition, End] = {}
    others: dict[BrokerId, list[TopicPartition]] = {}
    async for partition in in_slices(partitions):
        known = services.metadata.partition(*partition)
        if known is None:
            ends[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif known.leader < 0:
            ends[partition] = ErrorCode.LEADER_NOT_AVAILABLE
        elif known.leader == services.config.broker_id:
            try:
                ends[partition] = services.replicas.leader(*partition).high_watermark
            except KafkaError as error:
                ends[partition] = error.code
        else:
            others.setdefault(known.leader, []).append(partition)
    for answered in await asyncio.gather(*(_ask(services, *each) for each in others.items())):
        ends.update(answered)
    return ends


async def _ask(services: Services, broker: BrokerId, partitions: list[TopicPartition]) -> dict[TopicPartition, End]:
    request, turns = m.ListOffsetsRequest(replica_id=-1), Turns()
    by_topic: dict[str, m.ListOffsetsRequest.ListOffsetsTopic] = {}
    for topic, number in partitions:
        listed = by_topic.get(topic)
        if listed is None:
            listed = by_topic[topic] = m.ListOffsetsRequest.ListOffsetsTopic(name=topic)
        listed.partitions.append(m.ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=LATEST))
        await turns.count()
    request.topics = list(by_topic.values())
    address = services.replication.addresses.address_of(broker)
    if address is None:
        return dict.fromkeys(partitions, ErrorCode.LEADER_NOT_AVAILABLE)
    try:
        response = await services.replication.peers.send(
            address, request, m.ListOffsetsResponse, timeout_ms=services.config.request_timeout_ms, lane=LANE
        )
    except KafkaError as error:
        return dict.fromkeys(partitions, error.code)
    ends: dict[TopicPartition, End] = dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
    for topic_answer in response.topics:
        for each in topic_answer.partitions:
            code = known_code(each.error_code)
            ends[TopicPartition(topic_answer.name, each.partition_index)] = (
                code if code is not ErrorCode.NONE else each.offset
            )
            await turns.count()
    return ends
