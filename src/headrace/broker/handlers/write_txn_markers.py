"""WriteTxnMarkers (key 27), versions 1-2.

1     flexible
2     the transaction's version (`transaction.version`), which decides what epoch a marker may have
The transaction coordinator of another broker asks for the markers of partitions that this broker leads; a tool does so
to abort a hanging transaction. The answer has an error code for each producer and partition, and is sent when all
markers are durable or have failed.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Mapping

from headrace.broker.partitions.transaction_markers import MarkerOutcome, TransactionMarker
from headrace.broker.request.admission import Demand, Demands
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import TopicPartition

API_KEY = ApiKey.WRITE_TXN_MARKERS
VERSIONS = range(1, 3)
DEMANDS: Demands = (Demand(Operation.ALTER, ResourceType.CLUSTER, or_on_cluster=Operation.CLUSTER_ACTION),)


def handle(ctx: RequestContext, request: m.WriteTxnMarkersRequest) -> Answer:
    """Writes the markers; answers when they are durable."""
    markers = [_marker(each) for each in request.markers]
    written = ctx.services.markers.write(markers)
    if written.done():
        return _response(markers, written.result())

    def answer(written: Future[list[MarkerOutcome]]) -> None:
        if not written.cancelled():
            ctx.reply(_response(markers, written.result()))

    written.add_done_callback(answer)
    return LATER


def fail(request: m.WriteTxnMarkersRequest, code: ErrorCode) -> m.WriteTxnMarkersResponse:
    """Returns the same error for every partition."""
    markers = [_marker(each) for each in request.markers]
    return _response(markers, [dict.fromkeys(each.partitions, code) for each in markers])


def _marker(asked: m.WriteTxnMarkersRequest.WritableTxnMarker) -> TransactionMarker:
    return TransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        tuple(TopicPartition(topic.name, number) for topic in asked.topics for number in topic.partition_indexes),
        asked.transaction_version,
    )


def _response(markers: Iterable[TransactionMarker], outcomes: Iterable[MarkerOutcome]) -> m.WriteTxnMarkersResponse:
    """Returns one result for each producer, as Apache Kafka does for several markers of one producer."""
    by_producer: dict[int, MarkerOutcome] = {}
    for marker, outcome in zip(markers, outcomes, strict=True):
        by_producer.setdefault(marker.producer_id, {}).update(outcome)
    return m.WriteTxnMarkersResponse(
        markers=[
            m.WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(outcome))
            for producer_id, outcome in by_producer.items()
        ]
    )


def _topics(
    outcome: Mapping[TopicPartition, ErrorCode],
) -> list[m.WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]:
    topics: dict[str, m.WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = {}
    for key, code in outcome.items():
        topic = topics.get(key.topic)
        if topic is None:
            topic = topics[key.topic] = m.WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=key.topic)
        topic.partitions.append(
            m.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(partition_index=key.partition, error_code=code)
        )
    return list(topics.values())
