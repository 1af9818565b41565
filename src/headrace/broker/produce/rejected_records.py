"""Finds the records for which a topic rejects a batch, and names them to the producer (KIP-467).

One record without a key, or with a timestamp too far from the broker's clock, has its whole batch refused. Produce 8
and newer name these records, so that a client can fail them alone and send the others again. Apache Kafka lists all of
them; here a list ends at `RECORD_ERRORS_PER_PRODUCE_MAX`, since a small compressed batch can hold a million. Source:
Kafka's `LogValidator.validateRecord` and `processRecordErrors`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import INT64_MAX, RECORD_ERRORS_PER_PRODUCE_MAX
from headrace.records.codecs.compression import decompress
from headrace.records.format2 import kernel
from headrace.records.format2.header import HEADER_BYTES, BatchHeader
from headrace.types import TopicPartition

_IN_THE_MESSAGE = 3  # records that the error message itself shows


class RejectedRecord(NamedTuple):
    """A record that the topic rejects."""

    batch_index: int
    """Its place in the batch, from 0."""
    timestamp_ms: int
    """The timestamp that is out of range; -1 if the record lacks a key."""


class RejectedRecords(KafkaError):
    """A batch with records that its topic does not take: INVALID_TIMESTAMP if a timestamp is among the reasons, else
    INVALID_RECORD."""

    def __init__(
        self, code: ErrorCode, records: Sequence[RejectedRecord], total: int, earliest_ms: int, latest_ms: int
    ) -> None:
        super().__init__(f"the topic rejects {total} records of the batch", code)
        self.records = records
        """The first rejected records."""
        self.total = total
        self.earliest_ms, self.latest_ms = earliest_ms, latest_ms

    def copy(self) -> RejectedRecords:
        """A copy without a traceback, which would keep the decompressed batch in memory."""
        return RejectedRecords(self.code, self.records, self.total, self.earliest_ms, self.latest_ms)

    def reason(self, record: RejectedRecord, partition: TopicPartition) -> str:
        """The reason why one of the records is rejected."""
        if record.timestamp_ms == -1:
            return f"Compacted topic cannot accept message without key in topic partition {partition}"
        return (
            f"Timestamp {record.timestamp_ms} of message with offset {record.batch_index} is out of range. "
            f"The timestamp should be within [{self.earliest_ms}, {self.latest_ms}]"
        )

    def summary(self, partition: TopicPartition) -> str:
        """The reason why the batch is rejected."""
        if self.code is ErrorCode.INVALID_TIMESTAMP:
            return "One or more records have been rejected due to invalid timestamp"
        shown = ", ".join(
            f"RecordError(batchIndex={record.batch_index}, message='{self.reason(record, partition)}')"
            for record in self.records[:_IN_THE_MESSAGE]
        )
        return (
            f"One or more records have been rejected due to {self.total} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )


def check_each_record(
    batch: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int, decompressed_bytes_max: int
) -> None:
    """Raises RejectedRecords if the topic rejects some records of a valid batch."""
    records: bytes | bytearray | memoryview = batch
    start = HEADER_BYTES
    if header.codec:
        records = decompress(header.codec, batch[HEADER_BYTES:], decompressed_bytes_max)
        start = 0
    earliest, latest = -INT64_MAX, INT64_MAX
    if config.message_timestamp_type == "CreateTime":
        earliest, latest = now_ms - config.before_max_ms, min(now_ms + config.after_max_ms, INT64_MAX)
    found = array("q", bytes(16 * min(header.record_count, RECORD_ERRORS_PER_PRODUCE_MAX)))
    problem, total, has_invalid_timestamp = kernel.refused_records(
        records,
        start,
        len(records),
        header.record_count,
        header.base_timestamp,
        config.is_compacted,
        earliest,
        latest,
        found,
    )
    if problem or not total:
        return
    pairs = [RejectedRecord(found[at], found[at + 1]) for at in range(0, 2 * min(total, len(found) // 2), 2)]
    code = ErrorCode.INVALID_TIMESTAMP if has_invalid_timestamp else ErrorCode.INVALID_RECORD
    raise RejectedRecords(code, pairs, total, earliest, latest)
