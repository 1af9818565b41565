"""Requests a leader's offsets for its followers: log start and log end offsets, and the ends of leader epochs.

A leader answers a follower's ListOffsets with the log end offset, not the high watermark. OffsetForLeaderEpoch is only
sent to leaders whose Fetch has no diverging epoch (before Kafka 2.7, and here below version 15 of Fetch).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.replication import follower_log
from headrace.errors import ErrorCode, KafkaError, known_code
from headrace.protocol import messages as m
from headrace.replication.follower import Compare, EpochEnd, Truncate, truncation
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.replication.followed import Followed
    from headrace.broker.replication.following import FetcherServices
    from headrace.network.peers.peers import PeerAddress

_LATEST, _EARLIEST = -1, -2


async def start_and_end(services: FetcherServices, address: PeerAddress, lane: str, each: Followed) -> tuple[int, int]:
    """Returns the leader's log start and log end offset. Raises `KafkaError` with the leader's error code."""
    found = []
    for timestamp in (_EARLIEST, _LATEST):
        answered = await _offsets(services, address, lane, [each], timestamp)
        _, code, offset = answered[0] if answered else (each, ErrorCode.UNKNOWN_SERVER_ERROR, -1)
        if code:
            raise KafkaError(f"{each.partition.key}: the leader's log start and end offset are unknown", code)
        found.append(offset)
    return found[0], found[1]


async def ends(
    services: FetcherServices, address: PeerAddress, lane: str, followed: Sequence[Followed]
) -> list[tuple[Followed, ErrorCode, int]]:
    """Returns an error code and the leader's log end offset for each of these partitions."""
    return await _offsets(services, address, lane, followed, _LATEST)


async def _offsets(
    services: FetcherServices, address: PeerAddress, lane: str, followed: Sequence[Followed], timestamp: int
) -> list[tuple[Followed, ErrorCode, int]]:
    requested = {each.partition.key: each for each in followed}
    topics: dict[str, m.ListOffsetsRequest.ListOffsetsTopic] = {}
    for key, each in requested.items():
        if key.topic not in topics:
            topics[key.topic] = m.ListOffsetsRequest.ListOffsetsTopic(name=key.topic, partitions=[])
        topics[key.topic].partitions.append(
            m.ListOffsetsRequest.ListOffsetsPartition(
                partition_index=key.partition, current_leader_epoch=each.leader_epoch, timestamp=timestamp
            )
        )
    answer = await services.peers.send(
        address,
        m.ListOffsetsRequest(replica_id=services.broker_id, topics=list(topics.values())),
        m.ListOffsetsResponse,
        timeout_ms=services.settings.socket_timeout_ms,
        lane=lane,
    )
    found = (
        (requested.get(TopicPartition(topic.name, data.partition_index)), known_code(data.error_code), data.offset)
        for topic in answer.topics
        for data in topic.partitions
    )
    return [(each, code, offset) for each, code, offset in found if each is not None]


async def truncate_to_epochs(
    services: FetcherServices, address: PeerAddress, lane: str, unchecked: Sequence[Followed]
) -> list[Followed]:
    """Truncates each log to the end of its last epoch at the leader; returns the partitions that have to back off."""
    requested = {each.partition.key: each for each in unchecked}
    epochs = {key: follower_log.last_epoch(each.partition) for key, each in requested.items()}
    topics: dict[str, m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = {}
    for key, each in requested.items():
        if epochs[key] < 0:
            each.is_checked = True  # a log without epochs is compared
            continue
        if key.topic not in topics:
            topics[key.topic] = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=key.topic, partitions=[])
        topics[key.topic].partitions.append(
            m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                partition=key.partition, current_leader_epoch=each.leader_epoch, leader_epoch=epochs[key]
            )
        )
    if not topics:
        return []
    answer = await services.peers.send(
        address,
        m.OffsetForLeaderEpochRequest(replica_id=services.broker_id, topics=list(topics.values())),
        m.OffsetForLeaderEpochResponse,
        timeout_ms=services.settings.socket_timeout_ms,
        lane=lane,
    )
    refused = []
    for topic in answer.topics:
        for data in topic.partitions:
            found = requested.get(TopicPartition(topic.topic, data.partition))
            if found is None or found.leader_epoch != found.partition.leader_epoch:
                continue
            if data.error_code:
                refused.append(found)
            else:
                _truncate(found, EpochEnd(data.leader_epoch, data.end_offset), services.now_ms())
    return refused


def _truncate(each: Followed, leader_end: EpochEnd, now_ms: int) -> None:
    """Truncates records that the leader does not have, or begins a comparison. The log is checked once the leader knows
    its last epoch."""
    partition = each.partition
    log_end_offset = partition.log.log_end_offset
    match truncation(
        leader_end,
        log_end_offset,
        partition.high_watermark,
        lambda epoch: follower_log.end_of_epoch(partition, epoch),
    ):
        case Truncate(offset):
            if offset < log_end_offset:
                follower_log.truncate(partition, offset, now_ms)
                each.compare_if_unknown()
        case Compare(offset):
            each.compare_from(offset)
    each.is_checked = leader_end.epoch < 0 or follower_log.last_epoch(partition) <= leader_end.epoch
