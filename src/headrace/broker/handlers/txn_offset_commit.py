"""TxnOffsetCommit (key 28), versions 0-5.

1     throttle time
2     leader epochs; clients handle COORDINATOR_LOAD_IN_PROGRESS (before: COORDINATOR_NOT_AVAILABLE)
3     flexible; a member's id, generation and instance id
4     TRANSACTION_ABORTABLE for a group that is not in the transaction
5     adds the group to the transaction; clients of earlier versions do so with AddOffsetsToTxn
The offsets are committed when the transaction is, and not visible before. Each partition that does not exist gets an
error. The partition of `__consumer_offsets` is added or verified as that of a Produce
(`broker.produce.transaction_partitions`), and the connection's later requests wait for that.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable
from copy import copy
from typing import cast

from headrace.broker.produce.transaction_partitions import Client, Producer, Verified
from headrace.broker.request.admission import Demand, Demands, group, topics, transaction
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.coordinators.groups.answers import committed_in_transaction
from headrace.coordinators.groups.commits import APPEND_ERRORS
from headrace.coordinators.runtime import TransactionalProducer
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.records.format2.header import NO_SEQUENCE
from headrace.security.access import Operation, ResourceType
from headrace.types import TopicPartition

API_KEY = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = range(6)
DEMANDS: Demands = (
    Demand(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction),
    Demand(Operation.READ, ResourceType.GROUP, group),
    Demand(Operation.READ, ResourceType.TOPIC, topics),
)

_LOADING_FROM = 2


def handle(ctx: RequestContext, request: m.TxnOffsetCommitRequest) -> Answer:
    """Commits the offsets of the partitions that exist."""
    known, unknown = _known(ctx, request)
    if not known.topics:
        return _answer(ctx, m.TxnOffsetCommitResponse(), unknown)
    groups = ctx.services.groups
    if not request.group_id:
        return _refusal(ctx, known, unknown, ErrorCode.INVALID_GROUP_ID)
    partition = groups.partition_of(request.group_id)
    available = groups.availability(partition.partition)
    if available is not ErrorCode.NONE:
        return _refusal(ctx, known, unknown, available)
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    client = Client.of_offset_commit(ctx.api_version)
    verifying = ctx.services.transaction_partitions.begin(producer, {partition: NO_SEQUENCE}, client)
    if verifying.done():
        return _commit(ctx, known, unknown, partition, verifying.result())

    def failed(error: Exception) -> m.TxnOffsetCommitResponse:
        return fail(request, error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)

    return ctx.in_order(_wait_then_commit(ctx, known, unknown, partition, verifying), failed)


def fail(request: m.TxnOffsetCommitRequest, code: ErrorCode) -> m.TxnOffsetCommitResponse:
    """Returns the same error for every partition."""
    return committed_in_transaction((each, code) for each in _partitions(request))


def _partitions(request: m.TxnOffsetCommitRequest) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)


def _known(
    ctx: RequestContext, request: m.TxnOffsetCommitRequest
) -> tuple[m.TxnOffsetCommitRequest, list[TopicPartition]]:
    """Returns the request without the partitions that do not exist, and these partitions."""
    metadata, unknown = ctx.services.metadata, []
    known = copy(request)
    known.topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            if metadata.partition(topic.name, each.partition_index) is None:
                unknown.append(TopicPartition(topic.name, each.partition_index))
            else:
                partitions.append(each)
        if partitions:
            known.topics.append(
                m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic.name, partitions=partitions)
            )
    return known, unknown


async def _wait_then_commit(
    ctx: RequestContext,
    request: m.TxnOffsetCommitRequest,
    unknown: list[TopicPartition],
    partition: TopicPartition,
    verifying: Future[Verified],
) -> Answer:
    return _commit(ctx, request, unknown, partition, await verifying)


def _commit(
    ctx: RequestContext,
    request: m.TxnOffsetCommitRequest,
    unknown: list[TopicPartition],
    partition: TopicPartition,
    verified: Verified,
) -> Answer:
    error = verified.errors.get(partition)
    if error is not None:
        return _refusal(ctx, request, unknown, APPEND_ERRORS.get(error.code, error.code))
    producer = TransactionalProducer(request.producer_id, request.producer_epoch, verified.verifications.get(partition))
    ctx.services.groups.commit_in_transaction(
        request,
        producer,
        lambda response: ctx.reply(_answer(ctx, cast("m.TxnOffsetCommitResponse", response), unknown)),
    )
    return LATER


def _refusal(
    ctx: RequestContext, request: m.TxnOffsetCommitRequest, unknown: list[TopicPartition], code: ErrorCode
) -> m.TxnOffsetCommitResponse:
    return _answer(ctx, fail(request, code), unknown)


def _answer(
    ctx: RequestContext, response: m.TxnOffsetCommitResponse, unknown: list[TopicPartition]
) -> m.TxnOffsetCommitResponse:
    """Adds the partitions that do not exist, and replaces errors that the client does not handle."""
    by_name = {topic.name: topic for topic in response.topics}
    missing = committed_in_transaction((each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for each in unknown)
    for topic in missing.topics:
        if topic.name in by_name:
            by_name[topic.name].partitions.extend(topic.partitions)
        else:
            response.topics.append(topic)
    if ctx.api_version < _LOADING_FROM:
        for topic in response.topics:
            for each in topic.partitions:
                if each.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    each.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return response
