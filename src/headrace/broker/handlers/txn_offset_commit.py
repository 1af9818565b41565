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

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.produce.transaction_partitions import ClientKind, TransactionalProducerId, Verified
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import TOPICS, Demand, Demands, group, transaction
from headrace.coordinators.groups.answers import committed_in_transaction
from headrace.coordinators.groups.commits import COMMIT_ERRORS
from headrace.coordinators.runtime import TransactionalProducer
from headrace.errors import ErrorCode
from headrace.in_slices import Turns
from headrace.limits import ELEMENTS_PER_SLICE
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
    Demand(Operation.READ, ResourceType.TOPIC, entries=TOPICS),
)

_LOADING_FROM = 2


def handle(ctx: RequestContext, request: m.TxnOffsetCommitRequest) -> Answer:
    """Commits the offsets of the partitions that exist."""

    def failed(error: Exception) -> m.TxnOffsetCommitResponse:
        return fail(request, code_of(error))

    if sum(1 + len(topic.partitions) for topic in request.topics) > ELEMENTS_PER_SLICE:
        return ctx.in_order(_commit_in_slices(ctx, request), failed)
    known, unknown = _Known(ctx, request), []
    for topic in request.topics:
        unknown += known.add(topic.name, topic.partitions)
    verifying = _verify(ctx, known.request)
    if isinstance(verifying, ErrorCode):
        return _refusal(ctx, known.request, unknown, verifying)
    if verifying.done():
        return _commit(ctx, known.request, unknown, verifying.result())
    return ctx.in_order(_wait_then_commit(ctx, known.request, unknown, verifying), failed)


async def _commit_in_slices(ctx: RequestContext, request: m.TxnOffsetCommitRequest) -> Answer:
    """As `handle`, for a large request: looks some partitions up in each turn of the event loop."""
    turns = Turns()
    known, unknown = _Known(ctx, request), []
    for topic in request.topics:
        for start in range(0, len(topic.partitions), ELEMENTS_PER_SLICE):
            part = topic.partitions[start : start + ELEMENTS_PER_SLICE]
            unknown += known.add(topic.name, part)
            await turns.count(1 + len(part))
    verifying = _verify(ctx, known.request)
    if isinstance(verifying, ErrorCode):
        return _refusal(ctx, known.request, unknown, verifying)
    return await _wait_then_commit(ctx, known.request, unknown, verifying)


def _verify(ctx: RequestContext, known: m.TxnOffsetCommitRequest) -> ErrorCode | Future[Verified]:
    """Adds the group's partition of `__consumer_offsets` to the transaction, or verifies it; or the error of all
    partitions."""
    groups = ctx.services.groups
    if not known.topics:
        return ErrorCode.NONE
    if not known.group_id:
        return ErrorCode.INVALID_GROUP_ID
    partition = groups.partition_of(known.group_id)
    available = groups.availability(partition.partition)
    if available is not ErrorCode.NONE:
        return available
    producer = TransactionalProducerId(known.transactional_id, known.producer_id, known.producer_epoch)
    client = ClientKind.of_offset_commit(ctx.api_version)
    return ctx.services.transaction_partitions.begin(producer, {partition: NO_SEQUENCE}, client)


def fail(request: m.TxnOffsetCommitRequest, code: ErrorCode) -> m.TxnOffsetCommitResponse:
    """Returns the same error for every partition."""
    return committed_in_transaction((each, code) for each in _partitions(request))


def _partitions(request: m.TxnOffsetCommitRequest) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)


class _Known:
    """A request without the partitions that do not exist."""

    __slots__ = ("_metadata", "request")

    def __init__(self, ctx: RequestContext, request: m.TxnOffsetCommitRequest) -> None:
        self._metadata = ctx.services.metadata
        self.request = copy(request)
        self.request.topics = []

    def add(
        self, name: str, partitions: Iterable[m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]
    ) -> list[TopicPartition]:
        """Adds those of a topic's partitions that exist; returns the others."""
        known, unknown = [], []
        for each in partitions:
            if self._metadata.partition(name, each.partition_index) is None:
                unknown.append(TopicPartition(name, each.partition_index))
            else:
                known.append(each)
        if known:
            self.request.topics.append(
                m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=name, partitions=known)
            )
        return unknown


async def _wait_then_commit(
    ctx: RequestContext,
    request: m.TxnOffsetCommitRequest,
    unknown: list[TopicPartition],
    verifying: Future[Verified],
) -> Answer:
    return _commit(ctx, request, unknown, await verifying)


def _commit(
    ctx: RequestContext,
    request: m.TxnOffsetCommitRequest,
    unknown: list[TopicPartition],
    verified: Verified,
) -> Answer:
    partition = ctx.services.groups.partition_of(request.group_id)
    error = verified.errors.get(partition)
    if error is not None:
        return _refusal(ctx, request, unknown, COMMIT_ERRORS.get(error.code, error.code))
    producer = TransactionalProducer(request.producer_id, request.producer_epoch, verified.verifications.get(partition))
    ctx.services.groups.commit_in_transaction(
        request, ctx.api_version, producer, lambda response: ctx.reply(_answer(ctx, response, unknown))
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
