"""AlterShareGroupOffsets (key 91), version 0 (KIP-932).

Sets the start offsets of a share group without members, and creates the group if it does not exist. Records that were
in flight are forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, group
from headrace.broker.share.availability import are_share_groups_enabled
from headrace.broker.share.error_texts import NO_SUCH_TOPIC, error_text
from headrace.coordinators.share_state.persister import PersisterOutcome, TopicIdPartition
from headrace.errors import ErrorCode
from headrace.in_slices import Turns
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.ALTER_SHARE_GROUP_OFFSETS
VERSIONS = range(1)
DEMANDS: Demands = (
    Demand(Operation.READ, ResourceType.GROUP, group),
    Demand(
        Operation.READ,
        ResourceType.TOPIC,
        entries=Entries("topics", "responses", lambda _, each: each.topic_name, lambda *refused: _refuse(*refused)),
    ),
)
_Topic = m.AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
_Partition = m.AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition


def _refuse(
    _ctx: RequestContext, request: m.AlterShareGroupOffsetsRequest, code: ErrorCode
) -> m.AlterShareGroupOffsetsResponse:
    """The same error for every partition. No topic id, which would tell that the topic exists."""
    return m.AlterShareGroupOffsetsResponse(
        responses=[
            _Topic(
                topic_name=topic.topic_name,
                partitions=[
                    _Partition(partition_index=each.partition_index, error_code=code, error_message=error_text(code))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def handle(ctx: RequestContext, request: m.AlterShareGroupOffsetsRequest) -> Answer:
    """Answers when the offsets are stored."""
    if not are_share_groups_enabled(ctx):
        return fail(request, ErrorCode.UNSUPPORTED_VERSION)
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AlterShareGroupOffsetsRequest, code: ErrorCode) -> m.AlterShareGroupOffsetsResponse:
    """Returns an error for the whole request."""
    return m.AlterShareGroupOffsetsResponse(error_code=code, error_message=error_text(code))


async def _alter(ctx: RequestContext, request: m.AlterShareGroupOffsetsRequest) -> m.AlterShareGroupOffsetsResponse:
    from headrace.broker.share import group_states

    metadata, turns = ctx.services.metadata, Turns()
    offsets: dict[TopicIdPartition, int] = {}
    for topic in request.topics:
        known = metadata.topic(topic.topic_name)
        for partition in topic.partitions:
            if known is not None and 0 <= partition.partition_index < len(known.partitions):
                offsets[TopicIdPartition(known.id, partition.partition_index)] = partition.start_offset
            await turns.count()
    error, outcomes = await group_states.alter_offsets(ctx.services, request.group_id, offsets)
    if error is not ErrorCode.NONE:
        return fail(request, error)
    response = m.AlterShareGroupOffsetsResponse()
    for topic in request.topics:
        known = metadata.topic(topic.topic_name)
        topic_id = bytes(16) if known is None else known.id
        answered = _Topic(topic_name=topic.topic_name, topic_id=topic_id)
        for partition in topic.partitions:
            answered.partitions.append(_partition(topic_id, partition.partition_index, outcomes))
            await turns.count()
        response.responses.append(answered)
    return response


def _partition(topic_id: bytes, number: int, outcomes: Mapping[TopicIdPartition, PersisterOutcome]) -> _Partition:
    outcome = outcomes.get(TopicIdPartition(topic_id, number), NO_SUCH_TOPIC)
    return _Partition(partition_index=number, error_code=outcome.error, error_message=outcome.message)
