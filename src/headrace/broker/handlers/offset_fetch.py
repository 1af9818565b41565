"""OffsetFetch (key 9), versions 0-10.

0     from ZooKeeper on Apache Kafka; here from the group like any other. A partition without an offset is unknown
1     from the group, by its coordinator; -1 for a partition without an offset
2     null asks for every partition that has an offset; an error for the whole
3     throttle time
5     leader epochs
6     flexible
7     `require_stable`: not while a transaction may still change it
8     many groups at once
9     may come from a member of KIP-848, whose groups are not served yet
10    topics by id
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from headrace.broker.context import Answer, RequestContext
from headrace.broker.group_shell import OFFSETS_TOPIC
from headrace.coordination.model import NO_UUID
from headrace.errors import ErrorCode
from headrace.groups.commits import FetchedOffset
from headrace.groups.offsets import NO_OFFSET
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import TopicPartition

API_KEY = ApiKey.OFFSET_FETCH
VERSIONS = range(11)

_NO_OFFSET_YET = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
"""What version 0 says of a partition without an offset."""

_WHOLE_ERROR_FROM, _GROUPS_FROM, _TOPIC_IDS_FROM = 2, 8, 10

_Topics: TypeAlias = (
    "Iterable[m.OffsetFetchRequest.OffsetFetchRequestTopic | m.OffsetFetchRequest.OffsetFetchRequestTopics]"
)


def handle(ctx: RequestContext, request: m.OffsetFetchRequest) -> Answer:
    """Every offset that is asked for, or that there is."""
    groups, stable = ctx.broker.groups, request.require_stable
    if ctx.api_version >= _TOPIC_IDS_FROM:
        return m.OffsetFetchResponse(groups=[_group_by_id(ctx, each, stable) for each in request.groups])
    if ctx.api_version >= _GROUPS_FROM:
        return m.OffsetFetchResponse(
            groups=[
                _group(each.group_id, *groups.fetch_offsets(each.group_id, _partitions(each.topics), stable))
                for each in request.groups
            ]
        )
    partitions = _partitions(request.topics)
    if ctx.api_version == 0 and ctx.broker.metadata.topic(OFFSETS_TOPIC) is None:
        return _single(ErrorCode.NONE, [FetchedOffset(each, error=_NO_OFFSET_YET) for each in partitions or ()])
    error, fetched = groups.fetch_offsets(request.group_id, partitions, stable)
    if ctx.api_version == 0:
        fetched = [
            each._replace(error=_NO_OFFSET_YET) if each.offset == NO_OFFSET and not each.error else each
            for each in fetched
        ]
    if error is not ErrorCode.NONE and ctx.api_version < _WHOLE_ERROR_FROM:
        fetched = [FetchedOffset(each, error=error) for each in partitions or ()]
    return _single(error, fetched)


def fail(request: m.OffsetFetchRequest, code: ErrorCode) -> m.OffsetFetchResponse:
    """The same refusal for every group."""
    answer = _single(code, [FetchedOffset(each, error=code) for each in _partitions(request.topics) or ()])
    answer.groups = [_group(each.group_id, code, []) for each in request.groups]
    return answer


def _group_by_id(
    ctx: RequestContext, asked: m.OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool
) -> m.OffsetFetchResponse.OffsetFetchResponseGroup:
    """As by name, with ids in place of names; a topic that has none any more is not in the answer to "all"."""
    metadata = ctx.broker.metadata
    unknown = []
    for topic in asked.topics or ():
        topic.name = metadata.snapshot.names_by_id.get(topic.topic_id, "")
        if not topic.name:
            unknown.append(topic)
    if asked.topics is not None:
        asked.topics = [topic for topic in asked.topics if topic.name]
    error, fetched = ctx.broker.groups.fetch_offsets(asked.group_id, _partitions(asked.topics), require_stable)
    answer = _group(asked.group_id, error, fetched)
    for each in answer.topics:
        found = metadata.topic(each.name)
        each.topic_id = NO_UUID if found is None else found.id
    answer.topics = [each for each in answer.topics if each.topic_id != NO_UUID]
    if error is ErrorCode.NONE:
        answer.topics += [_unknown(topic) for topic in unknown]
    return answer


def _unknown(
    topic: m.OffsetFetchRequest.OffsetFetchRequestTopics,
) -> m.OffsetFetchResponse.OffsetFetchResponseTopics:
    return m.OffsetFetchResponse.OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=[
            m.OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=number, committed_offset=NO_OFFSET, metadata="", error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            for number in topic.partition_indexes
        ],
    )


def _partitions(topics: _Topics | None) -> list[TopicPartition] | None:
    if topics is None:
        return None
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes]


def _single(error: ErrorCode, fetched: list[FetchedOffset]) -> m.OffsetFetchResponse:
    """Before version 8: one group, and the topics at the top."""
    return m.OffsetFetchResponse(
        error_code=error,
        topics=[
            m.OffsetFetchResponse.OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    m.OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=each.partition.partition,
                        committed_offset=each.offset,
                        committed_leader_epoch=each.leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error,
                    )
                    for each in offsets
                ],
            )
            for name, offsets in _by_topic(fetched).items()
        ],
    )


def _group(
    group_id: str, error: ErrorCode, fetched: list[FetchedOffset]
) -> m.OffsetFetchResponse.OffsetFetchResponseGroup:
    return m.OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=group_id,
        error_code=error,
        topics=[
            m.OffsetFetchResponse.OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    m.OffsetFetchResponse.OffsetFetchResponsePartitions(
                        partition_index=each.partition.partition,
                        committed_offset=each.offset,
                        committed_leader_epoch=each.leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error,
                    )
                    for each in offsets
                ],
            )
            for name, offsets in _by_topic(fetched).items()
        ],
    )


def _by_topic(fetched: list[FetchedOffset]) -> dict[str, list[FetchedOffset]]:
    found: dict[str, list[FetchedOffset]] = {}
    for each in fetched:
        found.setdefault(each.partition.topic, []).append(each)
    return found
