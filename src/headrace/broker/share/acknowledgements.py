"""The acknowledgements of a ShareAcknowledge, or in a ShareFetch: checks them, and acknowledges them by partition.

    refused before anything is looked up        INVALID_REQUEST: ranges that are reversed, overlap or do not match
                                                their types; unknown types; renewals in a request that announces none
    an unknown topic id, or partition           UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
    a topic that the client may not read        TOPIC_AUTHORIZATION_FAILED
    records that the member does not hold       INVALID_RECORD_STATE, with Kafka's words

Each partition has a result of its own.
Source: Kafka's KafkaApis.handleAcknowledgements, validateAcknowledgementBatches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import READ_TOPIC
from headrace.broker.share.share_manager import ShareManager
from headrace.coordinators.share_partitions.acknowledgement import RENEW, Acknowledged
from headrace.coordinators.share_state.persister import SharePartitionKey, TopicIdPartition
from headrace.errors import ErrorCode, KafkaError

RENEW_FROM = 2
"""The version of both APIs that added renewals."""


class AcknowledgeResult(NamedTuple):
    """The result of one partition."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


Results = dict[TopicIdPartition, AcknowledgeResult]


def acknowledge_all(
    ctx: RequestContext,
    manager: ShareManager,
    group_id: str,
    member_id: str,
    topics: Iterable[Any],
    *,
    is_renewal: bool,
    done: Callable[[Results], None],
) -> None:
    """Acknowledges what the `topics` of a request hold; calls `done` with the results, maybe at once."""
    results: Results = {}
    wanted: dict[TopicIdPartition, Sequence[Acknowledged]] = {}
    empty: list[TopicIdPartition] = []
    snapshot = ctx.services.metadata.snapshot
    permits = ctx.services.admission.permits
    kind_max = RENEW if ctx.api_version >= RENEW_FROM else RENEW - 1
    for topic in topics:
        name = snapshot.names_by_id.get(topic.topic_id)
        for each in topic.partitions:
            at = TopicIdPartition(topic.topic_id, each.partition_index)
            acknowledged = [
                Acknowledged(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in each.acknowledgement_batches
            ]
            if name is None:
                results[at] = AcknowledgeResult(ErrorCode.UNKNOWN_TOPIC_ID)
            elif not are_valid(acknowledged, kind_max, is_renewal=is_renewal):
                results[at] = AcknowledgeResult(ErrorCode.INVALID_REQUEST)
            elif not permits(ctx, READ_TOPIC, name):
                results[at] = AcknowledgeResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif ctx.services.metadata.partition(name, each.partition_index) is None:
                results[at] = AcknowledgeResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif acknowledged:
                wanted[at] = acknowledged
            else:
                empty.append(at)
    if not wanted:
        done(results)
        return
    results |= dict.fromkeys(empty, AcknowledgeResult())
    remaining = set(wanted)

    def one_done(at: TopicIdPartition, error: KafkaError | None) -> None:
        results[at] = AcknowledgeResult() if error is None else AcknowledgeResult(error.code, error.message or None)
        remaining.discard(at)
        if not remaining:
            done(results)

    for at, acknowledged_there in wanted.items():
        _acknowledge(manager, SharePartitionKey(group_id, *at), member_id, acknowledged_there, at, one_done)


def _acknowledge(
    manager: ShareManager,
    key: SharePartitionKey,
    member_id: str,
    acknowledged: Sequence[Acknowledged],
    at: TopicIdPartition,
    done: Callable[[TopicIdPartition, KafkaError | None], None],
) -> None:
    led = manager.find(key)
    if led is None:
        text = "This server does not host this topic-partition."
        done(at, KafkaError(text, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    else:
        manager.acknowledge(led, member_id, acknowledged, lambda error: done(at, error))


def are_valid(acknowledged: Sequence[Acknowledged], kind_max: int, *, is_renewal: bool) -> bool:
    """Whether the acknowledgements of one partition are well formed."""
    after = -1
    for first, last, types in acknowledged:
        if not (after <= first <= last) or not types:
            return False
        if len(types) > 1 and last - first != len(types) - 1:
            return False
        if min(types) < 0 or max(types) > kind_max or (RENEW in types and not is_renewal):
            return False
        after = last
    return True
