"""What a follower asks its leader besides records: where the log begins and ends, and where epochs end.

ListOffsets is answered to a follower with the log's end, not with what is committed. OffsetForLeaderEpoch is only for
leaders whose Fetch does not tell where logs part (before Kafka 2.7, and what is below version 15 of Fetch here).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker import follower_log
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.replication.follower import EpochEnd, truncation
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.following import Followed, Surroundings
    from headrace.coordination.peers import PeerAddress

_LATEST, _EARLIEST = -1, -2


async def start_and_end(around: Surroundings, address: PeerAddress, lane: str, each: Followed) -> tuple[int, int]:
    """The leader's log start and log end offset. Raises `KafkaError` with the code that it answers."""
    key = each.partition.key
    found = []
    for timestamp in (_EARLIEST, _LATEST):
        partition = m.ListOffsetsRequest.ListOffsetsPartition(
            partition_index=key.partition, current_leader_epoch=each.leader_epoch, timestamp=timestamp
        )
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name=key.topic, partitions=[partition])
        answer = await around.peers.ask(
            address,
            m.ListOffsetsRequest(replica_id=around.broker_id, topics=[topic]),
            m.ListOffsetsResponse,
            timeout_ms=around.settings.socket_timeout_ms,
            lane=lane,
        )
        told = answer.topics[0].partitions[0]
        if told.error_code:
            raise KafkaError(f"{key}: where its log begins and ends is not known", ErrorCode(told.error_code))
        found.append(told.offset)
    return found[0], found[1]


async def truncate_to_epochs(
    around: Surroundings, address: PeerAddress, lane: str, unchecked: Sequence[Followed]
) -> list[Followed]:
    """Truncates each to where its last epoch ends at the leader; those that are to be left alone for a while."""
    asked = {each.partition.key: each for each in unchecked}
    epochs = {key: follower_log.last_epoch(each.partition) for key, each in asked.items()}
    topics: dict[str, m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = {}
    for key, each in asked.items():
        if epochs[key] < 0:
            each.is_checked = True  # nothing that could differ
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
    answer = await around.peers.ask(
        address,
        m.OffsetForLeaderEpochRequest(replica_id=around.broker_id, topics=list(topics.values())),
        m.OffsetForLeaderEpochResponse,
        timeout_ms=around.settings.socket_timeout_ms,
        lane=lane,
    )
    refused = []
    for topic in answer.topics:
        for told in topic.partitions:
            found = asked.get(TopicPartition(topic.topic, told.partition))
            if found is None or found.leader_epoch != found.partition.leader_epoch:
                continue
            if told.error_code:
                refused.append(found)
            else:
                _truncate(found, EpochEnd(told.leader_epoch, told.end_offset), around.now_ms())
    return refused


def _truncate(each: Followed, leader_end: EpochEnd, now_ms: int) -> None:
    """Drops what the leader does not have; checked once the leader knows the epoch that is the last one then."""
    partition = each.partition
    log_end_offset = partition.log.log_end_offset
    offset = truncation(leader_end, log_end_offset, lambda epoch: follower_log.end_of_epoch(partition, epoch))
    if offset < log_end_offset:
        follower_log.truncate(partition, offset, now_ms)
    each.is_checked = leader_end.epoch < 0 or follower_log.last_epoch(partition) <= leader_end.epoch
