"""WriteTxnMarkers (key 27), versions 0-2.

0     sent by Apache Kafka before 2.8
1     flexible
2     the transaction's version (`transaction.version`), which decides what epoch a marker may have
The transaction coordinator of another broker asks for the markers of partitions that this broker leads; a tool does so
to abort a hanging transaction. The answer has an error code for each producer and partition, and is sent when all
markers are durable or have failed.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Mapping, Sequence

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.partitions.transaction_markers import MarkerOutcome, TransactionMarker
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.in_slices import Turns
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import TopicPartition

API_KEY = ApiKey.WRITE_TXN_MARKERS
VERSIONS = range(3)
_Result = m.WriteTxnMarkersResponse.WritableTxnMarkerResult
_TopicResult = m.WriteTxnMarkersResponse.WritableTxnMarkerTopicResult

DEMANDS: Demands = (Demand(Operation.ALTER, ResourceType.CLUSTER, or_on_cluster=Operation.CLUSTER_ACTION),)


def handle(ctx: RequestContext, request: m.WriteTxnMarkersRequest) -> Answer:
    """Writes the markers; answers when they are durable."""
    if sum(len(topic.partition_indexes) for each in request.markers for topic in each.topics) > ELEMENTS_PER_SLICE:
        return ctx.in_order(_write_in_slices(ctx, request), lambda error: fail(request, code_of(error)))
    markers = [_marker(each, _partitions(each)) for each in request.markers]
    written = ctx.services.markers.write(markers)
    if written.done():
        return _response(markers, written.result())

    def answer(written: Future[list[MarkerOutcome]]) -> None:
        if not written.cancelled():
            ctx.reply(_response(markers, written.result()))

    written.add_done_callback(answer)
    return LATER


async def _write_in_slices(ctx: RequestContext, request: m.WriteTxnMarkersRequest) -> m.WriteTxnMarkersResponse:
    """As `handle`, for a large request. `write` appends in slices by itself."""
    turns, markers, results = Turns(), [], []
    for each in request.markers:
        partitions: list[TopicPartition] = []
        for topic in each.topics:
            for number in topic.partition_indexes:
                partitions.append(TopicPartition(topic.name, number))
                await turns.count()
        markers.append(_marker(each, partitions))
    by_producer = _by_producer(markers, await ctx.services.markers.write(markers))
    for producer_id, outcome in by_producer.items():
        topics: dict[str, _TopicResult] = {}
        for key, code in outcome.items():
            _add_result(topics, key, code)
            await turns.count()
        results.append(_Result(producer_id=producer_id, topics=list(topics.values())))
    return m.WriteTxnMarkersResponse(markers=results)


def fail(request: m.WriteTxnMarkersRequest, code: ErrorCode) -> m.WriteTxnMarkersResponse:
    """Returns the same error for every partition."""
    markers = [_marker(each, _partitions(each)) for each in request.markers]
    return _response(markers, [dict.fromkeys(each.partitions, code) for each in markers])


def _marker(
    asked: m.WriteTxnMarkersRequest.WritableTxnMarker, partitions: Sequence[TopicPartition]
) -> TransactionMarker:
    return TransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        partitions,
        asked.transaction_version,
    )


def _partitions(asked: m.WriteTxnMarkersRequest.WritableTxnMarker) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in asked.topics for number in topic.partition_indexes]


def _by_producer(markers: Iterable[TransactionMarker], outcomes: Iterable[MarkerOutcome]) -> dict[int, MarkerOutcome]:
    """One outcome for each producer, as Apache Kafka does for several markers of one producer."""
    by_producer: dict[int, MarkerOutcome] = {}
    for marker, outcome in zip(markers, outcomes, strict=True):
        by_producer.setdefault(marker.producer_id, {}).update(outcome)
    return by_producer


def _response(markers: Iterable[TransactionMarker], outcomes: Iterable[MarkerOutcome]) -> m.WriteTxnMarkersResponse:
    return m.WriteTxnMarkersResponse(
        markers=[
            _Result(producer_id=producer_id, topics=_topics(outcome))
            for producer_id, outcome in _by_producer(markers, outcomes).items()
        ]
    )


def _topics(outcome: Mapping[TopicPartition, ErrorCode]) -> list[_TopicResult]:
    topics: dict[str, _TopicResult] = {}
    for key, code in outcome.items():
        _add_result(topics, key, code)
    return list(topics.values())


def _add_result(topics: dict[str, _TopicResult], key: TopicPartition, code: ErrorCode) -> None:
    topic = topics.get(key.topic)
    if topic is None:
        topic = topics[key.topic] = _TopicResult(name=key.topic)
    topic.partitions.append(
        m.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(partition_index=key.partition, error_code=code)
    )
