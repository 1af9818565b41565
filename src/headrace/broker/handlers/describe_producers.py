"""DescribeProducers (key 61), version 0.

Returns the idempotent and transactional producers of partitions that this broker has (KIP-664): their epoch, last
sequence, and the first offset of an open transaction. Tools find hanging transactions with it.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, RefusalPlace
from headrace.broker.request.sliced_requests import in_parts
from headrace.controller.decisions.topics import is_legal, validate_name
from headrace.errors import ErrorCode, KafkaError, UnknownTopicOrPartition
from headrace.log.producers.producer_state import ProducerEntry
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DESCRIBE_PRODUCERS
VERSIONS = range(1)


def _legal_topic(_ctx: RequestContext, entry: m.DescribeProducersRequest.TopicRequest) -> str | None:
    """As in Apache Kafka, a topic that cannot exist gets another error."""
    return entry.name if is_legal(entry.name) else None


DEMANDS: Demands = (
    Demand(
        Operation.READ, ResourceType.TOPIC, entries=Entries("topics", "topics", _legal_topic, place=RefusalPlace.ASKED)
    ),
)


def handle(ctx: RequestContext, request: m.DescribeProducersRequest) -> Answer:
    """Returns the producers of each partition."""
    return in_parts(
        ctx, request, ("topics", "partition_indexes"), ("topics", "partitions"), lambda part: _describe(ctx, part), fail
    )


def fail(request: m.DescribeProducersRequest, code: ErrorCode) -> m.DescribeProducersResponse:
    """Returns the same error for every partition."""
    return m.DescribeProducersResponse(
        topics=[
            m.DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[_refusal(number, KafkaError(code=code)) for number in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(ctx: RequestContext, request: m.DescribeProducersRequest) -> m.DescribeProducersResponse:
    return m.DescribeProducersResponse(
        topics=[
            m.DescribeProducersResponse.TopicResponse(
                name=topic.name, partitions=[_partition(ctx, topic.name, each) for each in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _partition(ctx: RequestContext, topic: str, number: int) -> m.DescribeProducersResponse.PartitionResponse:
    try:
        validate_name(topic)
        if ctx.services.metadata.topic(topic) is None:
            raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    except KafkaError as error:
        return _refusal(number, error)
    try:
        producers = ctx.services.replicas.get(topic, number).log.producers
    except KafkaError as error:
        return _refusal(number, KafkaError(code=error.code))  # as in Apache Kafka, only a topic's error has a message
    return m.DescribeProducersResponse.PartitionResponse(
        partition_index=number, active_producers=[_producer(each) for each in producers.entries.values()]
    )


def _producer(entry: ProducerEntry) -> m.DescribeProducersResponse.ProducerState:
    wrote_last = bool(entry.batches) and (entry.open_since >= 0 or entry.coordinator_epoch < 0)
    return m.DescribeProducersResponse.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.batches[-1].timestamp_ms if wrote_last else entry.seen_ms,  # of its marker
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.open_since,
    )


def _refusal(number: int, error: KafkaError) -> m.DescribeProducersResponse.PartitionResponse:
    return m.DescribeProducersResponse.PartitionResponse(
        partition_index=number, error_code=error.code, error_message=error.message or None
    )
