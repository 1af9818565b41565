"""OffsetFetch (key 9), versions 0-10.

0     from ZooKeeper in Apache Kafka; here from the group, as in version 1. A partition without an offset is unknown
1     from the group, by its coordinator; -1 for a partition without an offset
2     null means every partition with an offset; an error for the whole request
3     throttle time
5     leader epochs
6     flexible
7     `require_stable`: an error for an offset that a pending transaction may still change
8     many groups at once
9     members of KIP-848 groups: their member epoch must be current
10    topics by id
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import TypeAlias

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, RefusalEffect, RefusalPlace
from headrace.broker.request.sliced_requests import Path, in_parts
from headrace.coordinators.groups.commits import FetchedOffset
from headrace.coordinators.groups.offsets import NO_OFFSET
from headrace.errors import ErrorCode
from headrace.metadata.model import NO_UUID
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import TopicPartition

API_KEY = ApiKey.OFFSET_FETCH
VERSIONS = range(11)


def _only_group(ctx: RequestContext, request: m.OffsetFetchRequest) -> Iterable[str]:
    return (request.group_id,) if ctx.api_version < _GROUPS_FROM else ()


_NAMED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.ENTRY)
_LISTED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.HIDDEN)
DEMANDS: Demands = (
    Demand(
        Operation.DESCRIBE,
        ResourceType.GROUP,
        _only_group,
        entries=Entries("groups", "groups", lambda _, each: each.group_id, place=RefusalPlace.ASKED),
    ),
    _NAMED,
    _LISTED,
)

_NO_OFFSET_YET = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
"""The error code of version 0 for a partition without an offset."""

_ARRAYS: Path = ("topics", "partition_indexes")
_ANSWERS: Path = ("topics", "partitions")
_WHOLE_ERROR_FROM, _GROUPS_FROM, _TOPIC_IDS_FROM = 2, 8, 10

_Topics: TypeAlias = (
    "Iterable[m.OffsetFetchRequest.OffsetFetchRequestTopic | m.OffsetFetchRequest.OffsetFetchRequestTopics]"
)


def handle(ctx: RequestContext, request: m.OffsetFetchRequest) -> Answer:
    """Returns the requested offsets, or all offsets of the group."""
    if len(request.groups) > 1:
        request = _merged(request)
    arrays, answers = _ARRAYS, _ANSWERS
    if ctx.api_version >= _GROUPS_FROM:
        arrays, answers = ("groups", *arrays), ("groups", *answers)
    return in_parts(ctx, request, arrays, answers, lambda part: _answer(ctx, part), fail)


def _answer(ctx: RequestContext, request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
    groups, stable = ctx.services.groups, request.require_stable
    if ctx.api_version >= _TOPIC_IDS_FROM:
        return m.OffsetFetchResponse(groups=[_group_by_id(ctx, each, stable) for each in request.groups])
    if ctx.api_version >= _GROUPS_FROM:
        return m.OffsetFetchResponse(
            groups=[
                _group(each.group_id, *_fetch(ctx, each, _partitions(each.topics), stable)) for each in request.groups
            ]
        )
    partitions = _partitions(request.topics)
    if ctx.api_version == 0 and not ctx.services.groups.topic.exists:
        return _single(ErrorCode.NONE, [FetchedOffset(each, error=_NO_OFFSET_YET) for each in partitions or ()])
    if not ctx.services.admission.has_rules:
        error, fetched = groups.fetch_offsets(request.group_id, partitions, stable)
    else:
        error, fetched = _admitted(
            ctx, partitions, lambda wanted: groups.fetch_offsets(request.group_id, wanted, stable)
        )
    if ctx.api_version == 0:
        fetched = [
            each._replace(error=_NO_OFFSET_YET) if each.offset == NO_OFFSET and not each.error else each
            for each in fetched
        ]
    if error is not ErrorCode.NONE and ctx.api_version < _WHOLE_ERROR_FROM:
        fetched = [FetchedOffset(each, error=error) for each in partitions or ()]
    return _single(error, fetched)


def fail(request: m.OffsetFetchRequest, code: ErrorCode) -> m.OffsetFetchResponse:
    """Returns the same error for every group."""
    answer = _single(code, [FetchedOffset(each, error=code) for each in _partitions(request.topics) or ()])
    answer.groups = [_group(each.group_id, code, []) for each in request.groups]
    return answer


def _group_by_id(
    ctx: RequestContext, requested: m.OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool
) -> m.OffsetFetchResponse.OffsetFetchResponseGroup:
    """Returns one group's offsets with topic ids instead of names. A deleted topic has no id and is omitted."""
    metadata = ctx.services.metadata
    unknown = []
    known: dict[TopicPartition, None] = {}
    for topic in requested.topics or ():
        name = metadata.snapshot.names_by_id.get(topic.topic_id)
        if name is None:
            unknown.append(topic)
        else:
            known.update(dict.fromkeys(TopicPartition(name, number) for number in topic.partition_indexes))
    partitions = None if requested.topics is None else list(known)
    error, fetched = _fetch(ctx, requested, partitions, require_stable)
    answer = _group(requested.group_id, error, fetched)
    for each in answer.topics:
        found = metadata.topic(each.name)
        each.topic_id = NO_UUID if found is None else found.id
    answer.topics = [each for each in answer.topics if each.topic_id != NO_UUID]
    if error is ErrorCode.NONE:
        answer.topics += [_unknown(topic) for topic in unknown]
    return answer


def _fetch(
    ctx: RequestContext,
    group: m.OffsetFetchRequest.OffsetFetchRequestGroup,
    partitions: list[TopicPartition] | None,
    require_stable: bool,
) -> _Fetched:
    def fetch(wanted: list[TopicPartition] | None) -> _Fetched:
        return ctx.services.groups.fetch_offsets(
            group.group_id, wanted, require_stable, group.member_id, group.member_epoch
        )

    return _admitted(ctx, partitions, fetch) if ctx.services.admission.has_rules else fetch(partitions)


def _admitted(
    ctx: RequestContext,
    partitions: list[TopicPartition] | None,
    fetch: Callable[[list[TopicPartition] | None], _Fetched],
) -> _Fetched:
    """Fetches the offsets of topics that the client may see. Others get an error, or are left out if all offsets are
    requested."""
    permits = ctx.services.admission.permits
    if partitions is None:
        error, fetched = fetch(None)
        return error, [each for each in fetched if permits(ctx, _LISTED, each.partition.topic)]
    permitted, refused = [], []
    for each in partitions:
        if permits(ctx, _NAMED, each.topic):
            permitted.append(each)
        else:
            refused.append(FetchedOffset(each, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    error, fetched = fetch(permitted)
    return error, fetched if error is not ErrorCode.NONE else [*fetched, *refused]


_Fetched: TypeAlias = tuple[ErrorCode, list[FetchedOffset]]


def _merged(request: m.OffsetFetchRequest) -> m.OffsetFetchRequest:
    """Returns the request with each group once, so that the response has it once.

    Apache Kafka answers each entry, which can turn a request of some kilobytes into hundreds of megabytes.
    """
    by_id: dict[str, list[m.OffsetFetchRequest.OffsetFetchRequestGroup]] = {}
    for each in request.groups:
        by_id.setdefault(each.group_id, []).append(each)
    if len(by_id) == len(request.groups):
        return request
    merged = copy(request)
    merged.groups = [_merged_group(entries) if len(entries) > 1 else entries[0] for entries in by_id.values()]
    return merged


def _merged_group(
    entries: list[m.OffsetFetchRequest.OffsetFetchRequestGroup],
) -> m.OffsetFetchRequest.OffsetFetchRequestGroup:
    """Merges the entries of one group; null in one of them means all topics."""
    group = copy(entries[0])
    group.topics = None
    if all(each.topics is not None for each in entries):
        group.topics = [topic for each in entries for topic in each.topics or ()]
    return group


def _unknown(
    topic: m.OffsetFetchRequest.OffsetFetchRequestTopics,
) -> m.OffsetFetchResponse.OffsetFetchResponseTopics:
    return m.OffsetFetchResponse.OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=[
            m.OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=number, committed_offset=NO_OFFSET, metadata="", error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            for number in dict.fromkeys(topic.partition_indexes)
        ],
    )


def _partitions(topics: _Topics | None) -> list[TopicPartition] | None:
    if topics is None:
        return None
    requested = (TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes)
    return list(dict.fromkeys(requested))


def _single(error: ErrorCode, fetched: list[FetchedOffset]) -> m.OffsetFetchResponse:
    """Returns a response before version 8, which has the topics of one group at the top level."""
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
