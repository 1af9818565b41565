"""Validates a produced batch against its topic's settings, and sets its codec and timestamps where they ask for it.

`records.format2.validation` has the rules of the bytes themselves. This module has the topic's rules: timestamps and
codec. Formats before 2 are in `formats`.
Source: Kafka's `LogValidator`, `ProduceRequest.validateRecords`.
"""

from typing import NamedTuple

from headrace.broker.produce.rejected_records import check_each_record
from headrace.config import TopicConfig
from headrace.errors import ErrorCode, InvalidRecord, KafkaError, KeylessRecord
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import BatchHeader
from headrace.records.format2.validation import check_produced

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class CheckedBatch(NamedTuple):
    """A validated batch: writable bytes and their header."""

    records: memoryview
    header: BatchHeader


def checked_batch(
    records: memoryview | bytes | None,
    config: TopicConfig,
    now_ms: int,
    check_records: bool,
    decompressed_bytes_max: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> CheckedBatch:
    """Validates the one batch of `records` for its topic. Raises `KafkaError` with Kafka's code for what is wrong."""
    if not records:
        raise InvalidRecord("the partition has no record batch; a Produce request must carry exactly one per partition")
    view = memoryview(records)
    max_bytes = config.max_message_bytes
    try:
        header = check_produced(
            view,
            max_message_bytes=max_bytes,
            compacted=config.is_compacted,
            check_records=check_records,
            max_decompressed_bytes=decompressed_bytes_max,
        )
    except KeylessRecord:
        header = check_produced(
            view, max_message_bytes=max_bytes, compacted=False, max_decompressed_bytes=decompressed_bytes_max
        )  # damage behind the first such record comes first
        check_each_record(view, header, config, now_ms, decompressed_bytes_max)
        raise
    if config.message_timestamp_type == "CreateTime":
        if header.max_timestamp - now_ms > config.after_max_ms or (check_records and config.before_max_ms < now_ms):
            check_each_record(view, header, config, now_ms, decompressed_bytes_max)
        check_timestamps(header.base_timestamp, header.max_timestamp, config, now_ms)
    wanted = config.compression_type
    if wanted != "producer" and CODECS[wanted] != header.codec:
        from headrace.records.format2.recompression import recompress  # few topics have a codec of their own

        return CheckedBatch(
            *recompress(view, header, CODECS[wanted], config.compression_level, max_bytes=decompressed_bytes_max)
        )
    return CheckedBatch(view, header)


def check_timestamps(first_ms: int, largest_ms: int, config: TopicConfig, now_ms: int) -> None:
    """Raises INVALID_TIMESTAMP for records too far from the broker's clock. A timestamp of -1 means none."""
    if largest_ms - now_ms > config.after_max_ms:
        raise KafkaError(
            f"timestamp {largest_ms} is more than {config.after_max_ms} ms (message.timestamp.after.max.ms) "
            f"ahead of the broker's clock, {now_ms}",
            ErrorCode.INVALID_TIMESTAMP,
        )
    if 0 <= first_ms < now_ms - config.before_max_ms:
        raise KafkaError(
            f"timestamp {first_ms} is more than {config.before_max_ms} ms (message.timestamp.before.max.ms) "
            f"behind the broker's clock, {now_ms}",
            ErrorCode.INVALID_TIMESTAMP,
        )
