"""The bytes of batches, and the Produce request of several. Does no IO."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.client.core.connection import Payload
from headrace.client.producer.delivery import Batch
from headrace.client.producer.producer_identity import ProducerIdentity
from headrace.protocol import messages as m
from headrace.records.codecs.compression import Codec
from headrace.records.format2.columns import batch_of_rows, build_batch
from headrace.records.format2.header import set_transactional
from headrace.records.format2.rows import RowBuffer


class SendPolicy(NamedTuple):
    """The settings of encoding and acknowledgement."""

    acks: int
    codec: Codec
    level: int | None
    idempotent: bool
    max_in_flight: int
    request_timeout_ms: int


def encode(batch: Batch, policy: SendPolicy, producer: ProducerIdentity, *, is_transactional: bool) -> None:
    """Give the batch its bytes, unless it has them. Raises KafkaError and others for what cannot be encoded."""
    if batch.encoded is not None:
        return
    rows = batch.content
    sequence = batch.base_sequence if policy.idempotent else -1
    if isinstance(rows, RowBuffer):
        batch.encoded = batch_of_rows(
            rows,
            codec=policy.codec,
            level=policy.level,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
        )
    else:
        batch.encoded = build_batch(
            rows.keys,
            rows.values,
            rows.start,
            rows.stop,
            rows.timestamps_ms,
            rows.headers,
            rows.order,
            codec=policy.codec,
            level=policy.level,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
        )
    if is_transactional:
        set_transactional(batch.encoded)


def produce_request(batches: Iterable[Batch], policy: SendPolicy, transactional_id: str | None) -> m.ProduceRequest:
    """The request of encoded batches, one a partition."""
    topics: dict[str, list[m.ProduceRequest.PartitionProduceData]] = {}
    for batch in batches:
        assert batch.encoded is not None
        data = m.ProduceRequest.PartitionProduceData(index=batch.partition.partition, records=Payload(batch.encoded))
        topics.setdefault(batch.partition.topic, []).append(data)
    return m.ProduceRequest(
        transactional_id=transactional_id,
        acks=policy.acks,
        timeout_ms=policy.request_timeout_ms,
        topic_data=[m.ProduceRequest.TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
    )
