"""Builders of the OffsetCommit and TxnOffsetCommit responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.errors import ErrorCode
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.types import TopicPartition


def committed_in_transaction(errors: Iterable[tuple[TopicPartition, ErrorCode]]) -> m.TxnOffsetCommitResponse:
    """As `committed`, for a transactional commit."""
    topics: dict[str, m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = {}
    for (topic, partition), error in errors:
        if topic not in topics:
            topics[topic] = m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic, partitions=[])
        topics[topic].partitions.append(
            m.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(partition_index=partition, error_code=error)
        )
    return m.TxnOffsetCommitResponse(topics=list(topics.values()))


def committed(errors: Iterable[tuple[TopicPartition, ErrorCode]]) -> m.OffsetCommitResponse:
    """One error for each partition, with the topics in the order of their first partition."""
    topics: dict[str, m.OffsetCommitResponse.OffsetCommitResponseTopic] = {}
    for (topic, partition), error in errors:
        if topic not in topics:
            topics[topic] = m.OffsetCommitResponse.OffsetCommitResponseTopic(name=topic, partitions=[])
        topics[topic].partitions.append(
            m.OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=partition, error_code=error)
        )
    return m.OffsetCommitResponse(topics=list(topics.values()))
