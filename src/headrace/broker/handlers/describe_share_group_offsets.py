"""DescribeShareGroupOffsets (key 90), versions 0-1 (KIP-932).

1     the lag: records from the start offset to the end of the partition that are not finished (KIP-1226)
The start offsets of share groups, of the given partitions or of all that have state. What is not known is -1, not an
error.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, RefusalEffect, RefusalPlace
from headrace.broker.request.refusal_answers import TEXTS
from headrace.broker.share.availability import are_share_groups_enabled
from headrace.coordinators.share_state.persister import NO_COUNT, NO_START_OFFSET, Summary, TopicIdPartition
from headrace.errors import ErrorCode
from headrace.in_slices import Turns
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import TopicPartition

API_KEY = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
VERSIONS = range(2)
_NAMED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.ENTRY)
_LISTED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.HIDDEN)
DEMANDS: Demands = (
    Demand(
        Operation.DESCRIBE,
        ResourceType.GROUP,
        entries=Entries("groups", "groups", lambda _, each: each.group_id, place=RefusalPlace.ASKED),
    ),
    _NAMED,
    _LISTED,
)
_Asked = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
_Group = m.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
_Topic = m.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
_Partition = m.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition


def handle(ctx: RequestContext, request: m.DescribeShareGroupOffsetsRequest) -> Answer:
    """Answers when the share coordinators, and the leaders of the partitions, have answered."""
    if not are_share_groups_enabled(ctx):
        return fail(request, ErrorCode.UNSUPPORTED_VERSION)
    return ctx.in_order(_describe(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.DescribeShareGroupOffsetsRequest, code: ErrorCode) -> m.DescribeShareGroupOffsetsResponse:
    """Returns the same error for every group."""
    return m.DescribeShareGroupOffsetsResponse(
        groups=[_Group(group_id=each.group_id, error_code=code) for each in request.groups]
    )


async def _describe(
    ctx: RequestContext, request: m.DescribeShareGroupOffsetsRequest
) -> m.DescribeShareGroupOffsetsResponse:
    return m.DescribeShareGroupOffsetsResponse(groups=[await _group(ctx, each) for each in request.groups])


async def _group(ctx: RequestContext, asked: _Asked) -> _Group:
    metadata, turns = ctx.services.metadata, Turns()
    group = _Group(group_id=asked.group_id)
    wanted: dict[TopicIdPartition, str] = {}
    unknown: list[_Topic] = []
    refused: list[_Topic] = []
    permits = ctx.services.admission.permits
    if asked.topics is None:
        error, initialized = ctx.services.groups.coordinator.share.initialized_partitions(asked.group_id)
        if error is not ErrorCode.NONE:
            group.error_code = error
            return group
        for topic_id, numbers in initialized.items():
            known = metadata.topic_by_id(topic_id)
            if known is not None and permits(ctx, _LISTED, known.name):
                wanted.update((TopicIdPartition(topic_id, number), known.name) for number in sorted(numbers))
            await turns.count(len(numbers))
    else:
        for topic in asked.topics:
            known = metadata.topic(topic.topic_name)
            if not permits(ctx, _NAMED, topic.topic_name):
                refused.append(_refused(topic))
            elif known is not None:
                wanted.update((TopicIdPartition(known.id, number), known.name) for number in topic.partitions)
            else:
                unknown.append(_Topic(topic_name=topic.topic_name, partitions=_nothing(topic.partitions)))
            await turns.count(len(topic.partitions))
    if wanted:
        group.topics = await _topics(ctx, asked.group_id, wanted)
    group.topics += unknown + refused
    return group


def _refused(topic: m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic) -> _Topic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    errors = [
        _Partition(partition_index=number, start_offset=NO_START_OFFSET, error_code=code, error_message=TEXTS[code])
        for number in topic.partitions
    ]
    return _Topic(topic_name=topic.topic_name, partitions=errors)


def _nothing(numbers: Iterable[int]) -> list[_Partition]:
    return [_Partition(partition_index=number, start_offset=NO_START_OFFSET) for number in numbers]


async def _topics(ctx: RequestContext, group_id: str, wanted: dict[TopicIdPartition, str]) -> list[_Topic]:
    from headrace.broker.share import group_states
    from headrace.broker.share.end_offsets import end_offsets

    turns = Turns()
    summaries = await group_states.summaries(ctx.services, group_id, wanted)
    lagging = [TopicPartition(wanted[key], key.partition) for key, each in summaries.items() if _has_lag(each)]
    ends = await end_offsets(ctx.services, lagging)
    topics: dict[bytes, _Topic] = {}
    for key, name in wanted.items():
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = _Topic(topic_id=key.topic_id, topic_name=name)
        topic.partitions.append(
            _partition(key.partition, summaries[key], ends.get(TopicPartition(name, key.partition)))
        )
        await turns.count()
    return list(topics.values())


def _has_lag(summary: Summary) -> bool:
    return (
        summary.error is ErrorCode.NONE
        and summary.start_offset != NO_START_OFFSET
        and summary.delivery_complete_count != NO_COUNT
    )


def _partition(number: int, summary: Summary, end: int | ErrorCode | None) -> _Partition:
    if summary.error is not ErrorCode.NONE:
        return _Partition(partition_index=number, start_offset=NO_START_OFFSET)
    if isinstance(end, ErrorCode):
        return _Partition(partition_index=number, error_code=end, error_message=end.name)
    described = _Partition(partition_index=number, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch)
    if end is not None:
        described.lag = end - summary.start_offset - summary.delivery_complete_count
    return described
