"""OffsetCommit (key 8), versions 0-10.

0     into ZooKeeper on Apache Kafka; here into the group like any other, as a simple consumer's. Nobody looks for the
      coordinator first, so this makes __consumer_offsets, too
1     a member's id and generation; a time per offset
2     a time to keep the offsets instead (until 4)
3     throttle time
5     kept as the broker's settings say
6     leader epochs
7     static members
8     flexible
9     may come from a member of KIP-848, whose groups are not served yet
10    topics by id

Partitions that do not exist are refused one by one; the rest is answered when it is in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from headrace.broker.context import LATER, Answer, RequestContext
from headrace.broker.group_shell import OFFSETS_TOPIC
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

if TYPE_CHECKING:
    from headrace.groups.actions import Response

API_KEY = ApiKey.OFFSET_COMMIT
VERSIONS = range(11)

TOPIC_IDS_FROM = 10

_Topics: TypeAlias = "list[m.OffsetCommitResponse.OffsetCommitResponseTopic]"


def handle(ctx: RequestContext, request: m.OffsetCommitRequest) -> Answer:
    """Commits what exists."""
    if ctx.api_version >= TOPIC_IDS_FROM:
        names = ctx.broker.metadata.snapshot.names_by_id
        for topic in request.topics:
            topic.name = names.get(topic.topic_id, "")
    if ctx.api_version == 0 and ctx.broker.metadata.topic(OFFSETS_TOPIC) is None:
        return ctx.in_order(
            _make_topic_then_commit(ctx, request), lambda _: fail(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        )
    return _commit(ctx, request)


async def _make_topic_then_commit(ctx: RequestContext, request: m.OffsetCommitRequest) -> Answer:
    await ctx.broker.groups.ensure_offsets_topic()
    return _commit(ctx, request)


def _commit(ctx: RequestContext, request: m.OffsetCommitRequest) -> Answer:
    refused = _take_out_unknown(ctx, request)
    if refused and not request.topics:
        return m.OffsetCommitResponse(topics=refused)
    if not refused and ctx.api_version < TOPIC_IDS_FROM:
        ctx.broker.groups.commit(request, ctx.reply)
        return LATER
    topic_ids = {topic.name: topic.topic_id for topic in request.topics}
    ctx.broker.groups.commit(request, lambda response: ctx.reply(_merged(response, refused, topic_ids)))
    return LATER


def fail(request: m.OffsetCommitRequest, code: ErrorCode) -> m.OffsetCommitResponse:
    """The same refusal for every partition."""
    return m.OffsetCommitResponse(
        topics=[_refusal(topic, [each.partition_index for each in topic.partitions], code) for topic in request.topics]
    )


def _refusal(
    topic: m.OffsetCommitRequest.OffsetCommitRequestTopic, numbers: list[int], code: ErrorCode
) -> m.OffsetCommitResponse.OffsetCommitResponseTopic:
    return m.OffsetCommitResponse.OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            m.OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=number, error_code=code)
            for number in numbers
        ],
    )


def _take_out_unknown(ctx: RequestContext, request: m.OffsetCommitRequest) -> _Topics:
    """Leaves in the request what exists; the refusals of the rest."""
    metadata = ctx.broker.metadata
    refused = []
    for topic in request.topics:
        unknown = [
            each.partition_index
            for each in topic.partitions
            if metadata.partition(topic.name, each.partition_index) is None
        ]
        if unknown:
            has_no_name = ctx.api_version >= TOPIC_IDS_FROM and not topic.name
            code = ErrorCode.UNKNOWN_TOPIC_ID if has_no_name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_refusal(topic, unknown, code))
            topic.partitions = [each for each in topic.partitions if each.partition_index not in unknown]
    if refused:
        request.topics = [topic for topic in request.topics if topic.partitions]
    return refused


def _merged(response: Response, refused: _Topics, topic_ids: dict[str, bytes]) -> m.OffsetCommitResponse:
    """One entry per topic, its partitions from both."""
    answer = cast("m.OffsetCommitResponse", response)
    by_name = {topic.name: topic for topic in answer.topics}
    for name, topic in by_name.items():
        topic.topic_id = topic_ids[name]
    for topic in refused:
        if topic.name in by_name:
            by_name[topic.name].partitions.extend(topic.partitions)
        else:
            answer.topics.append(topic)
    return answer
