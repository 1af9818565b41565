"""AddPartitionsToTxn (key 24), versions 0-5.

2     PRODUCER_FENCED for an old epoch, which is INVALID_PRODUCER_EPOCH before
3     flexible
4     of brokers: many transactions at once, and `verify_only`, which adds nothing; with rules only from brokers
5     transactions of clients of transaction.version 2
If a partition of a transaction does not exist, or belongs to an internal topic, none is added: the others get
OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.broker.request.admission import Demand, Demands
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.coordinators.transactions.coordinator import Producer
from headrace.errors import ErrorCode
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


def _from_brokers(ctx: RequestContext, _request: Request) -> Iterable[str]:
    return (CLUSTER_NAME,) if ctx.api_version >= BATCHES_FROM else ()


def _transactional_ids(ctx: RequestContext, request: Request) -> Iterable[str]:
    return () if ctx.api_version >= BATCHES_FROM else (request.v3_and_below_transactional_id,)


def _topics(ctx: RequestContext, request: Request) -> Iterable[str]:
    return () if ctx.api_version >= BATCHES_FROM else (each.name for each in request.v3_and_below_topics)


DEMANDS: Demands = (
    Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, _from_brokers, needs_rules=True),
    Demand(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, _transactional_ids),
    Demand(Operation.WRITE, ResourceType.TOPIC, _topics),
)


class Wanted(NamedTuple):
    """The partitions of one transaction."""

    transactional_id: str
    producer: Producer
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]
    verify_only: bool

    @classmethod
    def of(
        cls,
        transactional_id: str,
        producer: Producer,
        topics: Iterable[Request.AddPartitionsToTxnTopic],
        *,
        verify_only: bool = False,
    ) -> Wanted:
        """The partitions in a request. A topic may have none."""
        names = tuple(each.name for each in topics)
        partitions = tuple(TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)
        return cls(transactional_id, producer, names, partitions, verify_only)


Outcome = Mapping[TopicPartition, ErrorCode]


def handle(ctx: RequestContext, request: Request) -> Answer:
    """Adds partitions to transactions; answers when every transaction is stored."""
    if ctx.api_version < BATCHES_FROM:
        producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        wanted = [Wanted.of(request.v3_and_below_transactional_id, producer, request.v3_and_below_topics)]
    else:
        wanted = [
            Wanted.of(
                each.transactional_id,
                Producer(each.producer_id, each.producer_epoch),
                each.topics,
                verify_only=each.verify_only,
            )
            for each in request.transactions
        ]
    _Adding(ctx, wanted)
    return LATER


def fail(request: Request, code: ErrorCode) -> Response:
    """Returns the same error for every partition."""
    wanted = Wanted.of(request.v3_and_below_transactional_id, Producer(), request.v3_and_below_topics)
    results = _results(wanted, dict.fromkeys(wanted.partitions, code), FENCED_FROM)
    return Response(error_code=code, results_by_topic_v3_and_below=results)


class _Adding:
    """One request, which is answered when each of its transactions has an outcome."""

    __slots__ = ("_ctx", "_missing", "_outcomes", "_wanted")

    def __init__(self, ctx: RequestContext, wanted: list[Wanted]) -> None:
        self._ctx, self._wanted = ctx, wanted
        self._outcomes: dict[int, Outcome] = {}
        self._missing = len(wanted)
        for number, each in enumerate(wanted):
            self._begin(number, each)
        if not wanted:
            ctx.reply(Response())

    def _begin(self, number: int, wanted: Wanted) -> None:
        transactions = self._ctx.services.transactions
        partitions = wanted.partitions
        refused = self._refused(partitions)
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

    def _refused(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """The partitions that cannot be added, each with its error code."""
        metadata, refused = self._ctx.services.metadata, {}
        is_client = self._ctx.api_version < BATCHES_FROM
        for each in partitions:
            if is_client and each.topic in INTERNAL_TOPICS:
                refused[each] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif metadata.partition(*each) is None:
                refused[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused

    def _done(self, number: int, outcome: Outcome) -> None:
        self._outcomes[number] = outcome
        self._missing -= 1
        if self._missing:
            return
        version = self._ctx.api_version
        results = [_results(each, self._outcomes[n], version) for n, each in enumerate(self._wanted)]
        if version < BATCHES_FROM:
            self._ctx.reply(Response(results_by_topic_v3_and_below=results[0]))
            return
        self._ctx.reply(
            Response(
                results_by_transaction=[
                    Response.AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=result)
                    for each, result in zip(self._wanted, results, strict=True)
                ]
            )
        )


def _results(wanted: Wanted, outcome: Outcome, version: int) -> list[Response.AddPartitionsToTxnTopicResult]:
    topics = {name: Response.AddPartitionsToTxnTopicResult(name=name) for name in wanted.topics}
    for partition in wanted.partitions:
        code = outcome[partition]
        if code is ErrorCode.PRODUCER_FENCED and version < FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        topics[partition.topic].results_by_partition.append(
            Response.AddPartitionsToTxnPartitionResult(partition_index=partition.partition, partition_error_code=code)
        )
    return list(topics.values())
