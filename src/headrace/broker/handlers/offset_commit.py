"""OffsetCommit (key 8), versions 0-10.

0     Apache Kafka stores these offsets in ZooKeeper; here they are stored in the group, as those of a simple consumer.
      Clients of this version do not look for the coordinator first, so the request creates __consumer_offsets, too
1     a member's id and generation; a commit time per offset
2     instead, a retention time (until 4)
3     throttle time
5     the broker's settings determine the retention
6     leader epochs
7     static members
8     flexible
9     members of KIP-848 groups: their member epoch instead of a generation; GROUP_ID_NOT_FOUND for an unknown group
10    topics by id

Each partition that does not exist gets an error. The response is sent when the other offsets are in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TypeAlias

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, group, topic_by_id
from headrace.errors import ErrorCode
from headrace.in_slices import in_slices
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.OFFSET_COMMIT
VERSIONS = range(11)
DEMANDS: Demands = (
    Demand(Operation.READ, ResourceType.GROUP, group),
    Demand(Operation.READ, ResourceType.TOPIC, entries=Entries("topics", "topics", topic_by_id)),
)

TOPIC_IDS_FROM = 10

_Topics: TypeAlias = "list[m.OffsetCommitResponse.OffsetCommitResponseTopic]"


def handle(ctx: RequestContext, request: m.OffsetCommitRequest) -> Answer:
    """Commits the offsets of the partitions that exist."""
    if ctx.api_version == 0 and not ctx.services.groups.topic.exists:
        return ctx.in_order(
            _make_topic_then_commit(ctx, request), lambda _: fail(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        )
    if sum(len(topic.partitions) for topic in request.topics) > ELEMENTS_PER_SLICE:
        return ctx.in_order(_commit_in_slices(ctx, request), lambda error: fail(request, code_of(error)))
    return _commit(ctx, request)


async def _make_topic_then_commit(ctx: RequestContext, request: m.OffsetCommitRequest) -> Answer:
    await ctx.services.groups.topic.ensure()
    return _commit(ctx, request)


def _commit(ctx: RequestContext, request: m.OffsetCommitRequest) -> Answer:
    if ctx.api_version < TOPIC_IDS_FROM and _are_known(ctx, request):
        ctx.services.groups.commit(request, ctx.api_version, ctx.reply)
        return LATER
    refused: _Topics = []
    known = [_known(ctx, topic, topic.partitions, refused) for topic in request.topics]
    return _commit_known(ctx, request, known, refused)


def _are_known(ctx: RequestContext, request: m.OffsetCommitRequest) -> bool:
    """Whether all partitions of the request exist, by name, and each topic has some."""
    partition = ctx.services.metadata.partition
    for topic in request.topics:
        if not topic.partitions:
            return False
        for each in topic.partitions:
            if partition(topic.name, each.partition_index) is None:
                return False
    return bool(request.topics)


async def _commit_in_slices(ctx: RequestContext, request: m.OffsetCommitRequest) -> Answer:
    """Commits a large request in slices. If a partition is named twice in a topic, its last entry counts."""
    refused: _Topics = []
    known: list[m.OffsetCommitRequest.OffsetCommitRequestTopic] = []
    for topic in request.topics:
        last = {each.partition_index: each for each in topic.partitions}
        parts = in_slices(_cut(list(last.values())), 1)
        known.extend([_known(ctx, topic, part, refused) async for part in parts])
    return _commit_known(ctx, request, known, refused)


def _cut(
    partitions: list[m.OffsetCommitRequest.OffsetCommitRequestPartition],
) -> Iterator[list[m.OffsetCommitRequest.OffsetCommitRequestPartition]]:
    for start in range(0, len(partitions), ELEMENTS_PER_SLICE):
        yield partitions[start : start + ELEMENTS_PER_SLICE]


def _commit_known(
    ctx: RequestContext,
    request: m.OffsetCommitRequest,
    known: list[m.OffsetCommitRequest.OffsetCommitRequestTopic],
    refused: _Topics,
) -> Answer:
    known = [topic for topic in known if topic.partitions]
    if not known:  # which reaches no coordinator, so that it creates no group
        return m.OffsetCommitResponse(topics=refused)
    commit = copy(request)
    commit.topics = known
    if not refused and ctx.api_version < TOPIC_IDS_FROM:
        ctx.services.groups.commit(commit, ctx.api_version, ctx.reply)
        return LATER
    topic_ids = {topic.name: topic.topic_id for topic in known}
    ctx.services.groups.commit(
        commit, ctx.api_version, lambda response: ctx.reply(_merged(response, refused, topic_ids))
    )
    return LATER


def fail(request: m.OffsetCommitRequest, code: ErrorCode) -> m.OffsetCommitResponse:
    """Returns the same error for every partition."""
    return m.OffsetCommitResponse(
        topics=[
            _refusal(topic.name, topic.topic_id, [each.partition_index for each in topic.partitions], code)
            for topic in request.topics
        ]
    )


def _refusal(
    name: str, topic_id: bytes, numbers: list[int], code: ErrorCode
) -> m.OffsetCommitResponse.OffsetCommitResponseTopic:
    return m.OffsetCommitResponse.OffsetCommitResponseTopic(
        name=name,
        topic_id=topic_id,
        partitions=[
            m.OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=number, error_code=code)
            for number in numbers
        ],
    )


def _known(
    ctx: RequestContext,
    topic: m.OffsetCommitRequest.OffsetCommitRequestTopic,
    partitions: list[m.OffsetCommitRequest.OffsetCommitRequestPartition],
    refused: _Topics,
) -> m.OffsetCommitRequest.OffsetCommitRequestTopic:
    """Returns the topic, by name, with those of `partitions` that exist; adds the errors of the others to `refused`."""
    metadata, name = ctx.services.metadata, topic.name
    if ctx.api_version >= TOPIC_IDS_FROM:
        name = metadata.snapshot.names_by_id.get(topic.topic_id, "")
    known, unknown = [], []
    for each in partitions:
        if metadata.partition(name, each.partition_index) is None:
            unknown.append(each.partition_index)
        else:
            known.append(each)
    if unknown:
        has_no_name = ctx.api_version >= TOPIC_IDS_FROM and not name
        code = ErrorCode.UNKNOWN_TOPIC_ID if has_no_name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if refused and refused[-1].name == name and refused[-1].topic_id == topic.topic_id:
            refused[-1].partitions.extend(_refusal(name, topic.topic_id, unknown, code).partitions)
        else:
            refused.append(_refusal(name, topic.topic_id, unknown, code))
    return m.OffsetCommitRequest.OffsetCommitRequestTopic(name=name, topic_id=topic.topic_id, partitions=known)


def _merged(answer: m.OffsetCommitResponse, refused: _Topics, topic_ids: dict[str, bytes]) -> m.OffsetCommitResponse:
    """Merges the refused partitions into the response, with one entry per topic."""
    by_name = {topic.name: topic for topic in answer.topics}
    for name, topic in by_name.items():
        topic.topic_id = topic_ids[name]
    for topic in refused:
        if topic.name in by_name:
            by_name[topic.name].partitions.extend(topic.partitions)
        else:
            answer.topics.append(topic)
    return answer
