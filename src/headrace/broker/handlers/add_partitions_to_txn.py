"""AddPartitionsToTxn (key 24), versions 0-5.

2     PRODUCER_FENCED for an old epoch, which is INVALID_PRODUCER_EPOCH before
3     flexible
4     of brokers: many transactions at once, and `verify_only`, which adds nothing; with rules only from brokers
5     transactions of clients of transaction.version 2
If a partition of a transaction does not exist, or belongs to an internal topic, none is added: the others get
OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, RefusalEffect
from headrace.coordinators.transactions.requests import TransactionProducer
from headrace.errors import ErrorCode
from headrace.in_slices import Turns
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import CLUSTER_NAME, Operation, ResourceType
from headrace.topics import INTERNAL_TOPICS
from headrace.types import TopicPartition

API_KEY = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS = range(6)

FENCED_FROM, BATCHES_FROM = 2, 4

Request = m.AddPartitionsToTxnRequest
Response = m.AddPartitionsToTxnResponse
Transaction = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


def _from_brokers(ctx: RequestContext, _request: Request) -> Iterable[str]:
    return (CLUSTER_NAME,) if ctx.api_version >= BATCHES_FROM else ()


def _transactional_ids(ctx: RequestContext, request: Request) -> Iterable[str]:
    return () if ctx.api_version >= BATCHES_FROM else (request.v3_and_below_transactional_id,)


_WRITTEN = Demand(Operation.WRITE, ResourceType.TOPIC, by_handler=RefusalEffect.ENTRY)

DEMANDS: Demands = (
    Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, _from_brokers, needs_rules=True),
    Demand(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, _transactional_ids),
    _WRITTEN,
)


class WantedPartitions(NamedTuple):
    """The partitions of one transaction."""

    transactional_id: str
    producer: TransactionProducer
    topics: tuple[str, ...]
    partitions: Sequence[TopicPartition]
    verify_only: bool


Outcome = Mapping[TopicPartition, ErrorCode]


def handle(ctx: RequestContext, request: Request) -> Answer:
    """Adds partitions to transactions; answers when every transaction is stored."""
    asked = list(_transactions(ctx, request))
    if len(asked) + sum(len(each.topics) + _count(each) for each in asked) > ELEMENTS_PER_SLICE:
        return ctx.in_order(_add_in_slices(ctx, asked), lambda error: fail(request, code_of(error)))
    wanted = [_wanted(each, list(_partitions(each))) for each in asked]
    adding = _Adding(ctx, len(wanted))
    for number, each in enumerate(wanted):
        refused = {key: code for key in each.partitions if (code := _refusal(ctx, key)) is not ErrorCode.NONE}
        adding.begin(number, each, refused)

    def answer(outcomes: Future[list[Outcome]]) -> None:
        if not outcomes.cancelled():
            pairs = zip(wanted, outcomes.result(), strict=True)
            ctx.reply(_response(ctx, [_results(*each, ctx.api_version) for each in pairs], wanted))

    if adding.outcomes.done():
        answer(adding.outcomes)
    else:
        adding.outcomes.add_done_callback(answer)
    return LATER


async def _add_in_slices(ctx: RequestContext, asked: Sequence[Transaction]) -> Response:
    """As `handle`, in slices: some partitions in each turn of the event loop, of one transaction or of several."""
    turns = Turns()
    adding = _Adding(ctx, len(asked))
    wanted: list[WantedPartitions] = []
    for number, transaction in enumerate(asked):
        partitions: list[TopicPartition] = []
        refused: dict[TopicPartition, ErrorCode] = {}
        for key in _partitions(transaction):
            partitions.append(key)
            code = _refusal(ctx, key)
            if code is not ErrorCode.NONE:
                refused[key] = code
            await turns.count()
        wanted.append(_wanted(transaction, partitions))
        adding.begin(number, wanted[-1], refused)
        await turns.count()
    outcomes = await adding.outcomes
    results: list[list[Response.AddPartitionsToTxnTopicResult]] = []
    for each, outcome in zip(wanted, outcomes, strict=True):
        whole: dict[str, Response.AddPartitionsToTxnTopicResult] = {}
        for start in range(0, max(1, len(each.partitions)), ELEMENTS_PER_SLICE):
            part = each._replace(partitions=each.partitions[start : start + ELEMENTS_PER_SLICE])
            _add_results(whole, part, outcome, ctx.api_version)
            await turns.count(1 + len(part.partitions))
        results.append(list(whole.values()))
    return _response(ctx, results, wanted)


def fail(request: Request, code: ErrorCode) -> Response:
    """Returns the same error for every partition."""
    return Response(
        error_code=code,
        results_by_topic_v3_and_below=[
            Response.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    Response.AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                    for number in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ],
    )


def _transactions(ctx: RequestContext, request: Request) -> Iterable[Transaction]:
    if ctx.api_version >= BATCHES_FROM:
        return request.transactions
    return (
        Transaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        ),
    )


def _count(transaction: Transaction) -> int:
    return sum(len(topic.partitions) for topic in transaction.topics)


def _partitions(transaction: Transaction) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, number) for topic in transaction.topics for number in topic.partitions)


def _wanted(transaction: Transaction, partitions: Sequence[TopicPartition]) -> WantedPartitions:
    return WantedPartitions(
        transaction.transactional_id,
        TransactionProducer(transaction.producer_id, transaction.producer_epoch),
        tuple(topic.name for topic in transaction.topics),
        partitions,
        transaction.verify_only,
    )


def _refusal(ctx: RequestContext, partition: TopicPartition) -> ErrorCode:
    """The error of a partition that cannot be added; NONE if it can."""
    if partition.topic in INTERNAL_TOPICS and ctx.api_version < BATCHES_FROM:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if ctx.api_version < BATCHES_FROM and not ctx.services.admission.permits(ctx, _WRITTEN, partition.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    is_known = ctx.services.metadata.partition(*partition) is not None
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class _Adding:
    """The transactions of one request; `outcomes` is done when each of them has an outcome."""

    __slots__ = ("_ctx", "_missing", "_outcomes", "outcomes")

    def __init__(self, ctx: RequestContext, count: int) -> None:
        self._ctx, self._missing = ctx, count
        self._outcomes: list[Outcome] = [{}] * count
        self.outcomes: Future[list[Outcome]] = ctx.services.loop.create_future()
        if not count:
            self.outcomes.set_result([])

    def begin(self, number: int, wanted: WantedPartitions, refused: Outcome) -> None:
        """Adds or verifies the partitions of the transaction, unless some are `refused`."""
        transactions, partitions = self._ctx.services.transactions, wanted.partitions
        if refused:
            self._done(number, {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions})
        elif wanted.verify_only:
            self._done(number, transactions.verify_partitions(wanted.transactional_id, wanted.producer, partitions))
        else:
            transactions.add_partitions(
                wanted.transactional_id,
                wanted.producer,
                partitions,
                2 if self._ctx.api_version >= BATCHES_FROM else 0,
                lambda code: self._done(number, dict.fromkeys(partitions, code)),
            )

    def _done(self, number: int, outcome: Outcome) -> None:
        self._outcomes[number] = outcome
        self._missing -= 1
        if not self._missing and not self.outcomes.done():
            self.outcomes.set_result(self._outcomes)


def _results(wanted: WantedPartitions, outcome: Outcome, version: int) -> list[Response.AddPartitionsToTxnTopicResult]:
    topics: dict[str, Response.AddPartitionsToTxnTopicResult] = {}
    _add_results(topics, wanted, outcome, version)
    return list(topics.values())


def _add_results(
    topics: dict[str, Response.AddPartitionsToTxnTopicResult], wanted: WantedPartitions, outcome: Outcome, version: int
) -> None:
    """Adds the results of `wanted.partitions`. A topic without partitions has a result without any."""
    if not topics:
        topics.update((name, Response.AddPartitionsToTxnTopicResult(name=name)) for name in wanted.topics)
    for partition in wanted.partitions:
        code = outcome[partition]
        if code is ErrorCode.PRODUCER_FENCED and version < FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        topics[partition.topic].results_by_partition.append(
            Response.AddPartitionsToTxnPartitionResult(partition_index=partition.partition, partition_error_code=code)
        )


def _response(
    ctx: RequestContext,
    results: Sequence[list[Response.AddPartitionsToTxnTopicResult]],
    wanted: Sequence[WantedPartitions],
) -> Response:
    if ctx.api_version < BATCHES_FROM:
        return Response(results_by_topic_v3_and_below=results[0])
    return Response(
        results_by_transaction=[
            Response.AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=result)
            for each, result in zip(wanted, results, strict=True)
        ]
    )
