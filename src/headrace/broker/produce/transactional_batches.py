"""The transactional batches of a Produce request, found by their headers before the batches are validated.

All batches of a request belong to one producer. A request with a transactional batch needs a transactional id, without
which it is refused as a whole. Source: Kafka's `KafkaApis.handleProduceRequest`, `ReplicaManager.handleProduceAppend`.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from headrace.broker.produce.transaction_partitions import TransactionalProducerId
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.records.format2.header import HEADER_BYTES, MAGIC, TRANSACTIONAL_BIT
from headrace.topics import INTERNAL_TOPICS
from headrace.types import TopicPartition

_MAGIC_AT, _ATTRIBUTES_AT, _PRODUCER_AT = 16, 22, 43
_producer = Struct(">qhi")


class TransactionalBatches(NamedTuple):
    """The producer of a request's transactional batches, and the first sequence of each partition's batch."""

    producer: TransactionalProducerId
    sequences: dict[TopicPartition, int]


def has_transactional_batches(request: m.ProduceRequest) -> bool:
    """Whether a request has a batch of a transaction."""
    return any(_is_transactional(each.records) for topic in request.topic_data for each in topic.partition_data)


def _is_transactional(records: memoryview | bytes | None) -> bool:
    """Whether a batch is of a transaction."""
    return (
        records is not None
        and len(records) >= HEADER_BYTES
        and records[_MAGIC_AT] == MAGIC
        and bool(records[_ATTRIBUTES_AT] & TRANSACTIONAL_BIT)
    )


def transactional_batches(request: m.ProduceRequest, names: Sequence[str]) -> TransactionalBatches | None:
    """The transactional batches of a request; None if there are none. `names` has the name of each of its topics.

    Raises TRANSACTIONAL_ID_AUTHORIZATION_FAILED without a transactional id, and INVALID_PRODUCER_ID_MAPPING for batches
    of several producers.
    """
    producer: TransactionalProducerId | None = None
    sequences: dict[TopicPartition, int] = {}
    for name, topic in zip(names, request.topic_data, strict=True):
        for each in topic.partition_data:
            records = each.records
            if records is None or not _is_transactional(records):
                continue
            if request.transactional_id is None:
                raise KafkaError(
                    "the request has a transactional batch, and no transactional id",
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                )
            producer_id, epoch, first_sequence = _producer.unpack_from(records, _PRODUCER_AT)
            if producer_id < 0:
                continue  # a batch without a producer, which the transactional bit does not make a part of anything
            found = TransactionalProducerId(request.transactional_id, producer_id, epoch)
            if producer not in (found, None):
                raise KafkaError(
                    "Transactional records contained more than one producer ID", ErrorCode.INVALID_PRODUCER_ID_MAPPING
                )
            producer = found
            if name and name not in INTERNAL_TOPICS:
                sequences.setdefault(TopicPartition(name, each.index), first_sequence)
    return None if producer is None else TransactionalBatches(producer, sequences)
